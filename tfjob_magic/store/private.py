"""Directories of this user alone, in places where other users can write too."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


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
