"""Locks that live as long as an open file: inherited over fork and exec, asked for without taking.

Linux's open-file-description locks, on ranges of bytes. Elsewhere `flock` on the whole file, where
asking takes the lock for an instant. Standard library only, Python 3.10 syntax.
"""

from __future__ import annotations

import fcntl
import os
import struct

LINUX = hasattr(fcntl, "F_OFD_SETLK")

# struct flock: type, whence, start, length (0 = to the end), pid (0 for these locks).
FLOCK = "hhqqi0q"


def take(fd: int, start: int = 0, length: int = 0, *, shared: bool = False) -> bool:
    """Lock a range of a file for as long as this open file lives; False when another has it."""
    try:
        if LINUX:
            kind = fcntl.F_RDLCK if shared else fcntl.F_WRLCK
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _range(kind, start, length))
        else:
            kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def is_taken(fd: int, start: int = 0, length: int = 0) -> bool:
    """Whether another open file has a lock in the range; never takes it where that can be asked."""
    if LINUX:
        asked = _range(fcntl.F_WRLCK, start, length)
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked)
        kind: int = struct.unpack(FLOCK, answer)[0]
        return kind != fcntl.F_UNLCK
    if not take(fd):
        return True
    release(fd)
    return False


def release(fd: int, start: int = 0, length: int = 0) -> None:
    """Give a range back before the open file ends."""
    if LINUX:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _range(fcntl.F_UNLCK, start, length))
    else:
        fcntl.flock(fd, fcntl.LOCK_UN)


def open_to_lock(path: str | os.PathLike[str]) -> int:
    """Open a lock's file, made if there is none; readable by its owner only."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _range(kind: int, start: int, length: int) -> bytes:
    return struct.pack(FLOCK, kind, os.SEEK_SET, start, length, 0)
