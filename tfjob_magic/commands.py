"""What the magic and the `tfjob` command do, once: launch, plan, list, show, logs, stop, rm."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tfjob_magic import drawing, summary
from tfjob_magic.core import exits
from tfjob_magic.core.job import slug
from tfjob_magic.core.plan import to_json
from tfjob_magic.errors import (
    InUseError,
    InvalidJobError,
    NotFoundError,
    Problem,
    UnavailableError,
)
from tfjob_magic.follow import Face, Interrupts, follow, logs
from tfjob_magic.service import Submission

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tfjob_magic.grammar import Command
    from tfjob_magic.service import Jobs, Run, TaskStatus

_ENDED = {signal.SIGTERM, signal.SIGKILL}
_DRAWN = 100  # columns of a drawing where the reader's width is not known
_GAP = 2  # columns between two of a table
_LEAST = 12  # columns of a table's last column, however narrow the reader's place is
_PAUSE = 0.1  # seconds between two looks at a run that is to be replaced
_MOST_REPLACED = 5  # runs that one launch stops; others may start in the code dir meanwhile


class AbandonedError(Exception):
    """A launch was interrupted before its job was started; `signal` is what interrupted it."""

    def __init__(self, signal: int) -> None:
        self.signal = signal
        super().__init__("interrupted; nothing was started")


def submission(command: Command, python: str, environment: Mapping[str, str]) -> Submission:
    """Make the submission of `run FILE` and `plan [FILE]`: the file runs where it is (contract C2).

    `python` is the interpreter where the command names none. A plan without a file is that of an
    empty one.
    """
    job = dict(command.job)
    job["python"] = interpreter(str(job.get("python", python)))
    path = Path(absolute(command.file or "train.py"))
    _check_file(path)
    job |= {"job_dir": str(path.parent.parent), "code_dir": path.parent.name}
    job.setdefault("name", slug(path.stem))
    return Submission(
        job=job | {"boot_file": path.name},
        source="" if command.file is None else None,
        environment=dict(environment),
    )


def _check_file(path: Path) -> None:
    """Refuse a file that cannot be a boot file, before the job's fields are made of its path."""
    shown = f"`{path}`".encode(errors="replace").decode()
    if path.parent == path.parent.parent:
        wrong = f"{shown} is in the root directory, which cannot be a code dir; move it to a folder"
    elif path.suffix != ".py":
        wrong = f"{shown} is not a Python file; name a file that ends in .py"
    elif path.name.startswith("-"):
        wrong = f"{shown} begins with a hyphen, as an option does; rename the file"
    elif any("\ud800" <= character <= "\udfff" for character in str(path)):
        wrong = f"{shown} is not valid Unicode; rename the file or its folder"
    else:
        return
    raise InvalidJobError([Problem("file", wrong)])


def interpreter(text: str) -> str:
    """Return the absolute path of an interpreter, looked for as a shell would."""
    found = shutil.which(os.path.expanduser(text))  # noqa: PTH111 - `./python` must keep its dot
    if found is None:
        raise InvalidJobError(
            [Problem("python", f"`{text}` is not a program that can be run; give the path of one")]
        )
    return absolute(found)


def absolute(path: str) -> str:
    """Make a path absolute from the working directory; links in it stay links.

    Raises UnavailableError where the path is relative and the working directory is gone.
    """
    try:
        return os.path.abspath(path)  # noqa: PTH100 - `resolve` follows links, `absolute` keeps ..
    except OSError:
        raise UnavailableError(
            "the working directory does not exist any more; change to another one with cd"
        ) from None


def launch(
    command: Command,
    asked: Submission,
    jobs: Jobs,
    face: Face,
    interrupts: Interrupts,
    *,
    started: Callable[[Run], None] = lambda _run: None,
) -> tuple[Run, int | None]:
    """Start a job and, unless it is detached, follow it to its end.

    Returns the run and the signal that ended it early, if one did; `started` gets the run as soon
    as there is one. Raises AbandonedError where an interrupt comes before that, and what
    `Jobs.submit` raises. That the run fails raises nothing.
    """
    run = _start(command, asked, jobs, face, interrupts)
    started(run)
    face.say("\n".join([summary.heading(run, face.width), *_notes(run, face)]))
    if command.detach and not interrupts.received:
        face.tell(
            f"started; `tfjob logs {run.id} --follow` shows it, `tfjob stop {run.id}` ends it"
        )
        return run, None
    run = follow(jobs, run, face, interrupts)
    return run, interrupts.received[0] if interrupts.received else None


def _start(
    command: Command, asked: Submission, jobs: Jobs, face: Face, interrupts: Interrupts
) -> Run:
    """Start a job; with `--replace`, first stop the run that uses its code dir."""
    replaced = 0
    while True:
        _check_interrupts(interrupts)
        try:
            return jobs.submit(asked)
        except InUseError as error:
            if not command.replace and command.file is not None:
                raise InUseError(
                    f"file: {error.run} is running in the same folder; wait for it, or stop it"
                    " first with --replace",
                    error.run,
                ) from None
            if not command.replace or replaced == _MOST_REPLACED:
                raise
            replaced += 1
            _replace(error.run, jobs, face, interrupts)


def _replace(name: str, jobs: Jobs, face: Face, interrupts: Interrupts) -> None:
    """Stop a run and wait for its end. An interrupt ends the wait; the run stops all the same."""
    face.tell(f"stopping {name}, which uses this code dir")
    try:
        run = jobs.stop(name)
        while not run.over:
            _check_interrupts(interrupts)
            time.sleep(_PAUSE)
            run = jobs.run(name)
    except NotFoundError:  # it is over and was removed
        return


def _check_interrupts(interrupts: Interrupts) -> None:
    if interrupts.received:
        raise AbandonedError(interrupts.received[0])


def preview(command: Command, asked: Submission, jobs: Jobs, face: Face) -> None:
    """Show how a job would run: its drawing, and its commands with their variables."""
    plan = jobs.preview(asked)
    if command.json:
        _print_json(to_json(plan), face)
    else:
        drawn = drawing.draw(plan, face.width or _DRAWN)
        face.write(f"{drawn}\n\n{drawing.commands(plan)}\n")


def perform(command: Command, jobs: Jobs, face: Face) -> None:
    """Do what is asked about runs: list, show, logs, stop, rm, flavors."""
    match command.verb:
        case "list":
            _list(command, jobs, face)
        case "show":
            _show(command, jobs, face)
        case "logs":
            _logs(command, jobs, face)
        case "stop":
            _stop(command, jobs, face)
        case "rm":
            run = jobs.run(command.run)
            jobs.remove(run.id)
            face.tell(f"removed {run.directory}")
        case "flavors":
            _flavors(jobs, face)


def _list(command: Command, jobs: Jobs, face: Face) -> None:
    runs = jobs.runs()
    if command.json:
        _print_json([_run_json(run) for run in runs], face)
        return
    if not runs:
        face.tell("no runs yet; `tfjob run train.py --flavor cpu-4c8g` or %%tfjob starts one")
        return
    now = time.time()
    _print_table(
        ("RUN", "PHASE", "STARTED", "TOOK", "WHAT", "CODE"),
        (
            (
                run.id,
                run.phase,
                _ago(now - run.created),
                summary.duration((run.ended or now) - run.created),
                f"{run.nodes} × {summary.resources(run)}",  # noqa: RUF001 - times
                f"{run.code_dir}/{run.boot_file}",
            )
            for run in runs
        ),
        face,
    )


def _ago(seconds: float) -> str:
    """Say how long ago, roughly: `3 min ago`."""
    number, unit = summary.duration(seconds).split()[:2]
    return f"{number} {unit} ago"


def _show(command: Command, jobs: Jobs, face: Face) -> None:
    run = jobs.run(command.run)
    if command.json:
        _print_json(_run_json(run), face)
        return
    now_at = f"{run.phase}: {summary.path(run.directory)}"
    face.write(f"{summary.heading(run, face.width)}\n")
    face.write(f"{summary.ending(run, face.width) if run.over else now_at}\n\n")
    now = time.time()
    _print_table(
        ("TASK", "NODE", "STATE", "TOOK", "LOG"),
        (
            (
                task.name,
                str(task.node),
                _state(task, run),
                summary.duration((task.ended or now) - task.started) if task.started else "",
                summary.path(task.log),
            )
            for task in run.tasks
        ),
        face,
    )
    if run.notes:
        face.write("\n".join(["", *_notes(run, face), ""]))
    if run.cause is not None:
        face.write(f"\n{summary.failure(run, face.width)}\n")


def _state(task: TaskStatus, run: Run) -> str:
    if task.phase == "running":
        return f"running (process {task.pid})"
    if task.phase == "pending":
        return "not started" if run.over else "pending"
    if task.started is None:
        return "could not be started"
    if task.code == 0:
        return "finished"
    if task.signal in _ENDED and (run.cause is None or run.cause.task != task.name):
        return "ended with the job"  # a task that fails by itself is the cause
    return exits.words(task.code, task.signal)


def _logs(command: Command, jobs: Jobs, face: Face) -> None:
    run = jobs.run(command.run)
    if not command.follow:
        logs(jobs, run, face, command.task)
        return
    # ^C leaves the reader's seat; the run goes on.
    run = follow(jobs, run, face, None, command.task)
    face.say(summary.ending(run, face.width))


def _stop(command: Command, jobs: Jobs, face: Face) -> None:
    before = jobs.run(command.run)
    if before.over:
        face.say(summary.ending(before, face.width))
        return
    run = jobs.stop(before.id, command.grace)
    face.tell(f"stopping {run.id}; `tfjob show {run.id}` tells how it ended")


def _flavors(jobs: Jobs, face: Face) -> None:
    _print_table(
        ("FLAVOR", "ACCELERATORS", "CORES", "MEMORY"),
        (
            (
                flavor.name,
                f"{flavor.accelerators} {flavor.accelerator}" if flavor.accelerator else "none",
                str(flavor.cpus),
                f"{flavor.memory_mib / 1024:g} GB",
            )
            for flavor in jobs.flavors()
        ),
        face,
    )


def _notes(run: Run, face: Face) -> list[str]:
    return [line for note in run.notes for line in summary.paragraph(note, face.width, "• ", "  ")]


def _run_json(run: Run) -> dict[str, object]:
    return asdict(run)


def _print_json(value: object, face: Face) -> None:
    face.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _print_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]], face: Face) -> None:
    """Print a table, one line a row; what is too long of the last column is cut at its left."""
    table = [head, *rows]
    widths = [max(map(len, column)) for column in list(zip(*table, strict=True))[:-1]]
    room = None
    if face.width is not None:
        room = max(_LEAST, face.width - sum(width + _GAP for width in widths))
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)]
        line = (" " * _GAP).join([*cells, _cut(row[-1], room)]).rstrip()
        face.write(f"\x1b[1m{line}\x1b[0m\n" if face.colours and row is head else f"{line}\n")


def _cut(text: str, room: int | None) -> str:
    """Cut a path to its end, where it differs from others: `…/looks/train.py`."""
    if room is None or len(text) <= room:
        return text
    end = text[len(text) - room + 1 :]
    slash = end.find("/")
    return f"…{end[slash:] if slash >= 0 else end}"
