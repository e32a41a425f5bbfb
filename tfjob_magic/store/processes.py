"""Processes as `/proc` shows them: a process's descendants, and those that carry the mark of a run.

Linux only; elsewhere nothing is found. Standard library only, Python 3.10 syntax.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

PROC = Path("/proc")
RUN_DIR = "TFJOB_RUN_DIR"  # in every task's environment: the run directory, which no two runs share


def descendants(root: int) -> list[int]:
    """Find the living processes below `root`, zombies left out."""
    children: dict[int, list[int]] = {}
    dead = set()
    for pid in _all_pids():
        found = _parent_and_state(pid)
        if found is None:
            continue
        parent, state = found
        children.setdefault(parent, []).append(pid)
        if state in "ZX":
            dead.add(pid)
    below: list[int] = []
    queue = [root]
    while queue:
        generation = children.get(queue.pop(), [])
        below.extend(generation)
        queue.extend(generation)
    return [pid for pid in below if pid not in dead]


def marked(directory: str) -> list[int]:
    """Find this user's processes that were started in the run of `directory`, but this one."""
    return [pid for pid in _all_pids() if pid != os.getpid() and _is_marked(pid, directory)]


def kill_marked(pid: int, directory: str) -> bool:
    """SIGKILL a process of the run of `directory`; False when it is none (any more).

    The process is held by a descriptor before it is looked at, so that a pid that has been given
    to another meanwhile is never killed.
    """
    if sys.platform != "linux":
        return False
    try:
        held = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not _is_marked(pid, directory):
            return False
        signal.pidfd_send_signal(held, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(held)
    return True


def is_supervisor(pid: int, directory: str) -> bool:
    """Whether a process is the supervisor of the run of `directory`: its command says so."""
    try:
        arguments = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except (OSError, OverflowError):
        return False
    return os.fsencode(directory) in arguments and any(
        argument.endswith(b"/supervisor/__main__.py") for argument in arguments
    )


def signal_supervisor(pid: int, directory: str, number: int) -> bool:
    """Signal the supervisor of the run of `directory`; False when the process is another."""
    if sys.platform != "linux":
        return False
    try:
        held = os.pidfd_open(pid)
    except (OSError, OverflowError):
        return False
    try:
        if not is_supervisor(pid, directory):
            return False
        signal.pidfd_send_signal(held, number)
    except OSError:
        return False
    finally:
        os.close(held)
    return True


def oom_kills() -> int:
    """How often the kernel's out-of-memory killer has struck on this machine since it booted."""
    try:
        lines = (PROC / "vmstat").read_bytes().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(b"oom_kill ")), 0)


def _all_pids() -> list[int]:
    if sys.platform != "linux":
        return []
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def _parent_and_state(pid: int) -> tuple[int, str] | None:
    try:
        data = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The name, in parentheses, may hold anything; what follows its last parenthesis is plain.
    state, parent = data[data.rfind(b")") + 2 :].split()[:2]
    return int(parent), state.decode("ascii")


def _is_marked(pid: int, directory: str) -> bool:
    try:
        process = PROC / str(pid)
        if process.stat().st_uid != os.geteuid():
            return False
        environment = (process / "environ").read_bytes()
    except OSError:
        return False
    return os.fsencode(f"{RUN_DIR}={directory}") in environment.split(b"\0")
