"""Directories of this user alone."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def state_home() -> Path:
    """Where this user's state is: `$XDG_STATE_HOME/tfjob`, else `~/.local/state/tfjob`.

    Raises RuntimeError where the user has no home directory.
    """
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():  # the XDG specification: a relative path is to be ignored
        state = Path.home() / ".local" / "state"
    return state / "tfjob"


def make(directory: Path) -> None:
    """Make the directory, or make sure that nobody else can have put anything in it.

    Its parent exists. Raises OSError where it cannot be made, and where what is there is a link,
    not a directory, or another user's.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
    if found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "Another user's", str(directory))
    if stat.S_IMODE(found.st_mode) != 0o700:  # noqa: PLR2004
        directory.chmod(0o700)
