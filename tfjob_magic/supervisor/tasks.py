"""Starting one task: a fork that becomes the user's program."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from tfjob_magic.core.launch import TaskLaunch
from tfjob_magic.store import cgroups
from tfjob_magic.supervisor import linux

# What a fork does to become its task's program; never returns. The descriptor `STARTED` tells the
# supervisor, by being closed, that it has; exec closes it by itself.
Become = Callable[[TaskLaunch], NoReturn]

STARTED = 3


class NotStartedError(Exception):
    """A task's program could not be executed, with the system's reason."""


def execute(task: TaskLaunch) -> NoReturn:
    """Become the task's program by exec: exactly `argv`, no shell between."""
    os.execvpe(task.argv[0], task.argv, task.environment)  # noqa: S606 - a list, no shell


def start(
    task: TaskLaunch, log: Path, become: Become, group: Path | None = None
) -> tuple[int, str]:
    """Start a task; its pid, and a note of what could not be given to it (empty if nothing).

    `group` is the run's control group. Raises NotStartedError when its program cannot be executed.
    """
    parent = os.getpid()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be(task, log, become, group, parent, write)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode("utf-8", "surrogateescape")
    note, _, error = said.partition("\0")
    if error:
        os.waitpid(pid, 0)
        raise NotStartedError(error)
    return pid, note


def _be(  # noqa: PLR0917
    task: TaskLaunch, log: Path, become: Become, group: Path | None, parent: int, report: int
) -> NoReturn:
    """Be the child, up to where it is the task's program.

    It says a note, or nothing; then, if it cannot go on, NUL and the reason.
    """
    try:
        os.setsid()
        linux.die_with_parent(parent)
        if group is not None:
            cgroups.enter(group)
        _reset_signals()
        note = _keep_to_cores(task.cores)
        report = _arrange_descriptors(log, report)
        os.write(report, note.encode("utf-8", "surrogateescape"))
        os.chdir(task.cwd)
        become(task)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        reason = f"{where}{error.strerror}"
    except BaseException as error:  # noqa: BLE001 - a fork must never go on as its parent
        reason = f"{type(error).__name__}: {error}"
    try:
        os.write(report, f"\0{reason}".encode("utf-8", "surrogateescape"))
    finally:
        os._exit(127)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _keep_to_cores(cores: tuple[int, ...]) -> str:
    if not cores or sys.platform != "linux":
        return ""
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        return f"could not be kept to cores {', '.join(map(str, cores))} ({error.strerror})"
    return ""


def _arrange_descriptors(log: Path, report: int) -> int:
    """Make stdin empty, stdout and stderr the log; close all else but the descriptor `STARTED`."""
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    if report != STARTED:
        os.dup2(report, STARTED, inheritable=False)
    for entry in list(Path("/dev/fd").iterdir()):
        if int(entry.name) > STARTED:
            with suppress(OSError):  # the listing's own
                os.close(int(entry.name))
    return STARTED
