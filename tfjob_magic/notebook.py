"""A cell run as a job, and lines about runs: what `%%tfjob` and `%tfjob` do."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tfjob_magic import commands, grammar, summary
from tfjob_magic.client import connect
from tfjob_magic.core import cell as cells
from tfjob_magic.core.job import slug
from tfjob_magic.errors import InvalidJobError, Problem, TfjobError
from tfjob_magic.follow import Budget, Face, Interrupts
from tfjob_magic.service import Submission

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from IPython.core.interactiveshell import InteractiveShell

    from tfjob_magic.grammar import Command
    from tfjob_magic.service import Run

_WIDTH = 100  # columns that a notebook shows without wrapping
_RED = "\x1b[31m{}\x1b[0m"


class _Told:
    """An exception that IPython shows as a text of its own, without a frame of ours."""

    shown: str

    def _render_traceback_(self) -> list[str]:
        return [self.shown]


class RefusedError(_Told, TfjobError):
    """What was asked cannot be done; the message says why."""


class JobFailedError(_Told, TfjobError):
    """The job of a cell did not succeed. `run` is the run as it ended."""

    run: Run


class JobInterrupted(_Told, KeyboardInterrupt):
    """The cell was interrupted, and its job with it; or the kernel is going away without it."""


def perform(shell: InteractiveShell, line: str, cell: str | None) -> None:
    """Run a cell as a job, or do what a line asks (`cell` is None).

    Raises RefusedError, JobFailedError or JobInterrupted, so that "Run All" stops.
    """
    try:
        if cell is None:
            _line(shell, line)
        else:
            _cell(shell, line, cell)
    except (RefusedError, JobFailedError, JobInterrupted):
        raise
    except TfjobError as error:
        refused = RefusedError(str(error))
        refused.shown = f"{_red(shell, 'tfjob:')} {summary.mistakes(error, _WIDTH)}"
        raise refused from None
    except KeyboardInterrupt:
        raise _interrupted(shell, "interrupted; `%tfjob list` shows what is running") from None


def _cell(shell: InteractiveShell, line: str, cell: str) -> None:
    line, cell = continued(line, cell)
    command = grammar.cell(line, shell.user_ns)
    if command.verb == "help":
        _write(grammar.manual())
        return
    asked = submission(command, line, cell, shell.user_ns)
    if command.dry_run:
        commands.preview(command, asked, connect(), _FACE)
    else:
        _launch(shell, command, asked)


def _line(shell: InteractiveShell, line: str) -> None:
    command = grammar.line(line, shell.user_ns)
    if command.verb == "help":
        _write(grammar.manual() if command.topic is None else grammar.usage(command.topic))
    elif command.verb not in {"run", "plan"}:
        commands.perform(command, connect(), _FACE)
    else:
        asked = commands.submission(command, sys.executable, os.environ)
        if command.verb == "plan" or command.dry_run:
            commands.preview(command, asked, connect(), _FACE)
        else:
            _launch(shell, command, asked)


def _launch(shell: InteractiveShell, command: Command, asked: Submission) -> None:
    """Start a job and follow it; its end is a line if it succeeded, else an exception."""

    def keep(run: Run) -> None:
        if command.out:
            shell.user_ns[command.out] = run

    with Interrupts(leaving=_leaving(shell)) as interrupts:
        try:
            run, interrupted = commands.launch(
                command, asked, connect(), _FACE, interrupts, started=keep
            )
        except commands.AbandonedError as error:
            raise _interrupted(shell, str(error)) from None
    keep(run)
    if interrupted is not None:
        gone = f"the kernel is going away; {run.id} goes on"
        raise _interrupted(shell, summary.ending(run, _WIDTH) if run.over else gone)
    if run.over and run.phase != "succeeded":
        failed = JobFailedError(summary.headline(run))
        failed.run = run
        head, newline, rest = summary.failure(run, _WIDTH).partition("\n")
        failed.shown = f"{_red(shell, head)}{newline}{rest}"
        raise failed
    if not command.detach:
        _FACE.say(summary.ending(run, _WIDTH))


def _leaving(shell: InteractiveShell) -> Callable[[], bool] | None:
    """Give what tells whether the shell's kernel was asked to shut down, None without a kernel.

    Jupyter sends that request right after an interrupt, and another thread of ipykernel keeps it.
    """
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return None
    return lambda: getattr(kernel, "_shutdown_message", None) is not None


def continued(line: str, cell: str) -> tuple[str, str]:
    r"""Join a magic's line that ends in `\` with the cell's first lines, which become empty.

    So the lines of the cell keep their numbers.
    """
    taken = 0
    while (len(line) - len(line.rstrip("\\"))) % 2 and cell:
        following, _, cell = cell.partition("\n")
        line = f"{line[:-1]} {following.rstrip()}"
        taken += 1
    return line, "\n" * taken + cell


def submission(
    command: Command, line: str, cell: str, namespace: Mapping[str, object]
) -> Submission:
    """Make the submission of a cell. Raises InvalidJobError for one that Python cannot run.

    The job dir is `user-job-dir` beside the notebook. The code dir has the name that the command
    gives the job, else the notebook's, as it is: two notebooks never share one unless asked to.
    The job is named after its code dir (contract C1, C2).
    """
    cells.check(cell)
    folder, stem = location(namespace)
    job = dict(command.job)
    job["python"] = commands.interpreter(str(job.get("python", sys.executable)))
    job.setdefault("code_dir", job.get("name", stem))
    job.setdefault("name", slug(str(job["code_dir"])))
    job_dir = os.path.expanduser(str(job.get("job_dir", "user-job-dir")))  # noqa: PTH111 - below
    if job_dir.startswith("~"):
        home = job_dir.partition("/")[0]
        message = f"`{home}` is not a user's home directory; write the path in full"
        raise InvalidJobError([Problem("job_dir", message)])
    job["job_dir"] = commands.absolute(str(Path(folder, job_dir)))
    return Submission(
        job=job,
        source=cells.text(line, cell),
        environment=dict(os.environ),
    )


def location(namespace: Mapping[str, object]) -> tuple[str, str]:
    """Find the notebook's folder and its name without suffix; else the working directory and `job`.

    The Jupyter server tells a kernel its notebook in `JPY_SESSION_NAME`, VS Code in a variable.
    """
    for told in (namespace.get("__vsc_ipynb_file__"), os.environ.get("JPY_SESSION_NAME")):
        path = Path(told) if isinstance(told, str) else Path()
        if path.is_absolute() and path.suffix == ".ipynb" and path.parent.is_dir():
            return str(path.parent), path.stem
    return commands.absolute("."), "job"


def _interrupted(shell: InteractiveShell, text: str) -> JobInterrupted:
    error = JobInterrupted(text)
    error.shown = _red(shell, text)
    return error


def _red(shell: InteractiveShell, text: str) -> str:
    plain = shell.colors.lower() == "nocolor" or "NO_COLOR" in os.environ
    return text if plain else _RED.format(text)


def _write(text: str) -> None:
    if text:
        sys.stdout.write(text)  # the cell's, looked up each time: a shell may replace it
        sys.stdout.flush()


_FACE = Face(write=_write, say=lambda text: _write(f"{text}\n"), budget=Budget(), width=_WIDTH)
