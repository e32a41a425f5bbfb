"""`python -I -S .../supervisor/__main__.py RUN_DIRECTORY FD,FD,...`.

Reads the launch message from its stdin up to the end, detaches a supervisor, and exits: with 0 once
the supervisor has the run, else with 1 and the reason on stderr.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Start the supervisor of one run, whose tasks are programs to execute."""
    # By its path and without site-packages, so this package is importable only if we say so; at
    # the end of the path, so that nothing there stands before the standard library.
    sys.path.append(str(Path(__file__).absolute().parents[2]))
    from tfjob_magic.core.launch import decode  # noqa: PLC0415 - importable from here on
    from tfjob_magic.supervisor.detach import detached  # noqa: PLC0415
    from tfjob_magic.supervisor.loop import supervise  # noqa: PLC0415
    from tfjob_magic.supervisor.tasks import execute  # noqa: PLC0415

    directory, held = arguments
    launch = decode(sys.stdin.buffer.read())
    held_fds = tuple(int(fd) for fd in held.split(","))
    return detached(directory, lambda ready: supervise(directory, launch, held_fds, execute, ready))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
