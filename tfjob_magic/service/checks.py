"""What is refused before anything is done, beyond the job's own fields: InvalidJobError."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tfjob_magic.core import cell, sizes
from tfjob_magic.errors import InvalidJobError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfjob_magic.core.job import Job


def check_cell(source: str) -> None:
    """Refuse a cell that Python cannot run; its first line, the magic's, is a comment by now."""
    first, _, rest = source.partition("\n")
    cell.check(rest if first.startswith("#") else source)


def check_boot_file(job: Job) -> None:
    """Refuse a boot file that is not there."""
    path = Path(job.cwd, job.boot_file)
    if not (os.path.isfile(path) and os.access(path, os.R_OK)):  # noqa: PTH113 - for any length
        message = f"{str(path)!r} is not a file that can be read; name one that is"
        raise InvalidJobError([Problem("boot_file", message)])


def check_environment(environment: Mapping[str, str]) -> None:
    """Refuse variables that no program can be given; their values may be secrets."""
    for name, value in environment.items():
        try:
            passed = os.fsencode(f"{name}={value}")
        except UnicodeEncodeError:
            passed = b"\0"
        if not name or "=" in name or b"\0" in passed:
            message = f"the variable {name!r} cannot be passed to a program; leave it out"
            raise InvalidJobError([Problem("environment", message)])
        if len(passed) > sizes.LONGEST:
            message = (
                f"the variable {name!r} has {len(passed)} bytes, and a program takes at most"
                f" {sizes.LONGEST} in one; unset it"
            )
            raise InvalidJobError([Problem("environment", message)])


def check_poll(cursors: Mapping[str, int], wait: float) -> None:
    """Refuse offsets and times that cannot be."""
    problems = [
        Problem("cursors", f"{offset} of {task} is not a number of bytes; give 0 or more")
        for task, offset in cursors.items()
        if offset < 0
    ]
    if not wait >= 0:
        problems.append(Problem("wait", f"{wait} is not possible; give seconds, 0 or more"))
    if problems:
        raise InvalidJobError(problems)
