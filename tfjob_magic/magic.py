"""`%%tfjob`, which runs a cell as a job, and `%tfjob`, which asks about runs.

Imported by `%load_ext tfjob_magic`, which is to be instant: what costs time to import (0.2 s) is
imported where it is used, and by a thread meanwhile.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from IPython.core.magic import MAGIC_NO_VAR_EXPAND_ATTR

from tfjob_magic import grammar
from tfjob_magic.errors import TfjobError

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from tfjob_magic.commands import Outcome
    from tfjob_magic.follow import Face
    from tfjob_magic.grammar import Command
    from tfjob_magic.service import Run, Submission

_WIDTH = 110  # columns that a notebook shows without wrapping
_RED, _PLAIN = "\x1b[31m", "\x1b[0m"


class RefusedError(TfjobError):
    """What a cell asked for cannot be; the message is all that there is to say."""

    def _render_traceback_(self) -> list[str]:
        return [f"{_mark('tfjob')}: {self}"]


class JobFailedError(TfjobError):
    """The job of a cell did not succeed. `run` is how it ended."""

    def __init__(self, run: Run, headline: str, text: str) -> None:
        super().__init__(headline)
        self.run = run
        self._text = text

    def _render_traceback_(self) -> list[str]:
        first, newline, rest = self._text.partition("\n")
        return [f"{_mark(first)}{newline}{rest}"]


class JobInterrupted(KeyboardInterrupt):
    """The cell was interrupted, and its job with it."""

    def _render_traceback_(self) -> list[str]:
        return [_mark(str(self))]


def register(shell: InteractiveShell) -> None:
    """Give the shell `%%tfjob` and `%tfjob`."""

    def tfjob(line: str, cell: str | None = None) -> None:
        try:
            if cell is None:
                _line(shell, line)
            else:
                _cell(shell, line, cell)
        except (RefusedError, JobFailedError, JobInterrupted):
            raise
        except TfjobError as error:
            raise RefusedError(str(error)) from None
        except KeyboardInterrupt:
            raise JobInterrupted("interrupted; `%tfjob list` shows what is running") from None

    tfjob.__doc__ = grammar.manual()
    setattr(tfjob, MAGIC_NO_VAR_EXPAND_ATTR, True)
    shell.magics_manager.register_function(tfjob, "line_cell", "tfjob")
    threading.Thread(target=_import_the_rest, name="tfjob-imports", daemon=True).start()


def _import_the_rest() -> None:
    """Import what the first use needs, so that it need not wait for it."""
    from tfjob_magic import client, commands  # noqa: F401, PLC0415


def _cell(shell: InteractiveShell, line: str, cell: str) -> None:
    """Run a cell as a job. Raises unless the job succeeds, so that "Run All" stops."""
    line, cell = continued(line, cell)
    command = grammar.cell(line, shell.user_ns)
    if command.verb == "help":
        print(grammar.manual())  # noqa: T201 - a notebook's stdout is where people read
        return
    from tfjob_magic import commands  # noqa: PLC0415 - see the module's docstring

    asked = submission(command, line, cell, shell.user_ns)
    if command.dry_run:
        from tfjob_magic.client import connect  # noqa: PLC0415

        commands.preview(command, asked, connect(), _face())
    else:
        _launch(shell, command, asked)


def _line(shell: InteractiveShell, line: str) -> None:
    """Do what a line asks about runs; `run` as a cell does."""
    command = grammar.line(line, shell.user_ns)
    if command.verb == "help":
        print(grammar.manual() if command.topic is None else grammar.usage(command.topic))  # noqa: T201
        return
    from tfjob_magic import commands  # noqa: PLC0415
    from tfjob_magic.client import connect  # noqa: PLC0415

    if command.verb == "run" and not command.dry_run:
        _launch(shell, command, commands.submission(command, sys.executable, os.environ))
    elif command.verb in {"run", "plan"}:
        asked = commands.submission(command, sys.executable, os.environ)
        commands.preview(command, asked, connect(), _face())
    else:
        commands.perform(command, connect(), _face())


def _launch(shell: InteractiveShell, command: Command, asked: Submission) -> None:
    from tfjob_magic import commands  # noqa: PLC0415
    from tfjob_magic.client import connect  # noqa: PLC0415
    from tfjob_magic.follow import Interrupts  # noqa: PLC0415

    with Interrupts() as interrupts:
        outcome = commands.launch(command, asked, connect(), _face(), interrupts)
    if command.out:
        shell.user_ns[command.out] = outcome.run
    if not command.detach:
        _conclude(outcome)


def _conclude(outcome: Outcome) -> None:
    """Say how a run ended: by a line if it succeeded, else by raising."""
    from tfjob_magic import summary  # noqa: PLC0415

    run = outcome.run
    if outcome.interrupted is not None:
        raise JobInterrupted(summary.ending(run))
    if run.phase != "succeeded":
        raise JobFailedError(run, summary.headline(run), summary.failure(run))
    _write(f"{summary.ending(run)}\n")


def continued(line: str, cell: str) -> tuple[str, str]:
    r"""Join a magic's line that ends in `\` with the cell's first lines, which become empty.

    So the lines of the cell keep their numbers.
    """
    blank = 0
    while len(line) - len(line.rstrip("\\")) & 1 and cell:
        following, _, cell = cell.partition("\n")
        line = f"{line[:-1]} {following.rstrip()}"
        blank += 1
    return line, "\n" * blank + cell


def submission(command: Command, line: str, cell: str, namespace: dict[str, object]) -> Submission:
    """Make the submission of a cell.

    The job dir is `user-job-dir` beside the notebook; the job is named after the notebook, and its
    code dir after the job, unless the command says otherwise (contract C1, C2).
    """
    from tfjob_magic.commands import interpreter  # noqa: PLC0415
    from tfjob_magic.core import cell as cells  # noqa: PLC0415
    from tfjob_magic.core.job import slug  # noqa: PLC0415
    from tfjob_magic.service import Submission  # noqa: PLC0415

    cells.check(cell)
    folder, stem = notebook(namespace)
    job = dict(command.job)
    job["python"] = interpreter(str(job.get("python", sys.executable)))
    job.setdefault("name", slug(str(job.get("code_dir", stem))))
    job.setdefault("code_dir", job["name"])
    job["job_dir"] = str(Path(folder, Path(str(job.get("job_dir", "user-job-dir"))).expanduser()))
    return Submission(
        job=job,
        source=cells.text(line, cell),
        replace=command.replace,
        environment=dict(os.environ),
    )


def notebook(namespace: dict[str, object]) -> tuple[str, str]:
    """Return the notebook's folder and its name without suffix; else the working directory, `job`.

    The Jupyter server tells a kernel its notebook in `JPY_SESSION_NAME`, VS Code in a variable.
    """
    for told in (namespace.get("__vsc_ipynb_file__"), os.environ.get("JPY_SESSION_NAME")):
        path = Path(told) if isinstance(told, str) else Path()
        if path.is_absolute() and path.suffix == ".ipynb" and path.parent.is_dir():
            return str(path.parent), path.stem
    return str(Path.cwd()), "job"


def _face() -> Face:
    from tfjob_magic.follow import Budget, Face  # noqa: PLC0415

    return Face(write=_write, say=lambda text: _write(f"{text}\n"), budget=Budget(), width=_WIDTH)


def _write(text: str) -> None:
    if text:
        sys.stdout.write(text)
        sys.stdout.flush()


def _mark(text: str) -> str:
    return text if "NO_COLOR" in os.environ else f"{_RED}{text}{_PLAIN}"
