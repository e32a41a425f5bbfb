"""Becoming a process that nothing else depends on: own session, parent gone, stdio its own."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING

from tfjob_magic.store.rundir import RunDir

if TYPE_CHECKING:
    from collections.abc import Callable

READY = b"ready"


def detached(directory: str, body: Callable[[Callable[[], None]], None]) -> int:
    """Run `body` in a detached child; return, in the caller, the exit status for it.

    `body` is given a function to call once it is under way; until then the caller waits, and what
    goes wrong is the caller's to say (on stderr). Afterwards it goes to `supervisor.log`.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _live(directory, body, write)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    if said == READY:
        return 0
    os.waitpid(pid, 0)
    reason = said.decode("utf-8", "replace") or "the supervisor died before it had the run"
    sys.stderr.write(reason + "\n")
    return 1


def _live(directory: str, body: Callable[[Callable[[], None]], None], report: int) -> None:
    """Be the child, for its whole life; never returns."""
    status = 1
    try:
        os.setsid()
        _replace_stdio(RunDir(directory).supervisor_log_path)
        os.chdir("/")

        def ready() -> None:
            nonlocal report
            os.write(report, READY)
            os.close(report)
            report = -1

        body(ready)
        status = 0
    except BaseException as error:  # noqa: BLE001 - the last frame of the process: it tells and ends
        if report >= 0:
            with suppress(OSError):
                os.write(report, f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _replace_stdio(log: str | os.PathLike[str]) -> None:
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    own = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(null, 0)
    os.dup2(own, 1)
    os.dup2(own, 2)
    os.close(null)
    os.close(own)
