"""A control group for the processes of a run: none of them leaves it without saying so.

Linux with cgroup v2, where this user may make a group below the one that the supervisor is in; no
controller is needed. Elsewhere there is none, and the mark in the environment has to do. Standard
library only, Python 3.10 syntax.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc/self")


def make(directory: Path) -> Path | None:
    """Make the group of the run of `directory`, empty; None where none can be made."""
    own = _own()
    if own is None:
        return None
    group = own / _name(directory)
    try:
        group.mkdir()
    except OSError:
        return None
    if (group / "cgroup.procs").exists():
        return group
    remove(group)
    return None


def found(path: str | None, directory: Path) -> Path | None:
    """Find the group of the run of `directory` where `path` says; None where it is not."""
    if path is None:
        return None
    group = Path(path)
    is_it = group.name == _name(directory) and (group / "cgroup.procs").exists()
    return group if is_it else None


def enter(group: Path) -> None:
    """Move this process into the group, and all that it will start, if that can be done."""
    with suppress(OSError):
        (group / "cgroup.procs").write_text("0")  # whoever writes


def members(group: Path) -> list[int]:
    """Find the processes in the group and the groups below it, zombies left out."""
    pids = []
    for each in _with_all_below(group):
        with suppress(OSError):
            pids += [int(line) for line in (each / "cgroup.procs").read_bytes().split()]
    return [pid for pid in pids if pid > 0]  # 0 is one of another PID namespace


def kill(group: Path) -> None:
    """SIGKILL all processes in the group, without waiting; call again until none is left."""
    try:
        (group / "cgroup.kill").write_text("1")
    except OSError:  # before Linux 5.14
        for pid in members(group):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def remove(group: Path) -> None:
    """Remove the group, and those below it, if no process is left in them."""
    for each in reversed(_with_all_below(group)):
        with suppress(OSError):
            each.rmdir()


def _name(directory: Path) -> str:
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:12]
    return f"tfjob-{re.sub('[^A-Za-z0-9-]', '_', directory.name)[:100]}-{digest}"


def _with_all_below(group: Path) -> list[Path]:
    """The group, then those below it, each before its own."""
    return [Path(each) for each, _, _ in os.walk(group)]


def _own() -> Path | None:
    """Find the group that this process is in, as a directory."""
    try:
        groups = (PROC / "cgroup").read_text().splitlines()
        mounts = (PROC / "mountinfo").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    own = next((line[len("0::") :] for line in groups if line.startswith("0::")), None)
    if own is None or ".." in own.split("/"):  # above what this process may see
        return None
    for line in mounts:
        mount, _, system = line.partition(" - ")
        if system.startswith("cgroup2 "):
            root, at = (_unescaped(field) for field in mount.split(" ")[3:5])
            if own == root or own.startswith(root.rstrip("/") + "/"):
                return Path(at, own[len(root) :].lstrip("/"))
    return None


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), field)
