"""What Linux has for a supervisor and Python has no name for; elsewhere it does nothing."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# Loaded here, before any fork: a child does nothing but call it.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; end now if it has already."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if _libc is not None and _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
