"""The `tfjob` command: logs and data on stdout, what it has to say on stderr.

It exits with the failing task's code, with 128 + n for a signal n as a shell does, with 2 for a
mistake of the user's. ^C and SIGTERM stop the job that it runs, a second one kills it; a closed
terminal (SIGHUP) leaves it running.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from tfjob_magic import __version__, grammar, summary
from tfjob_magic.errors import TfjobError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_magic.grammar import Command
    from tfjob_magic.service import Run

_MISTAKE = 2
_SIGNALLED = 128
_COLOURS = {"✓": 32, "✗": 31, "■": 33}  # green, red, yellow


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    out, err = _Stream(sys.stdout), _Stream(sys.stderr)
    try:
        if list(argv) == ["--version"]:
            out.write(f"tfjob {__version__}\n")
            return 0
        command = grammar.arguments(argv)
        if command.verb == "help":
            out.write(grammar.usage(command.topic))
            return 0
        return _perform(command, out, err)
    except TfjobError as error:
        err.say(f"tfjob: {summary.mistakes(error)}")
        return 1 if isinstance(error, UnavailableError) else _MISTAKE
    except KeyboardInterrupt:
        return _SIGNALLED + signal.SIGINT
    except BrokenPipeError:
        return _SIGNALLED + signal.SIGPIPE


class _Stream:
    """Standard output or error, through a buffer of our own.

    Where PYTHONUNBUFFERED is set, Python's own stream drops what one write(2) does not take.
    """

    def __init__(self, stream: TextIO) -> None:
        self.is_terminal = stream.isatty()
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        self.has_colours = self.is_terminal and not plain
        self._open = True
        self._stream = open(  # noqa: SIM115 - it lives as long as the process
            stream.fileno(),
            "w",
            encoding=stream.encoding,
            errors="replace",  # a log may hold what a locale cannot print
            closefd=False,
        )

    def write(self, text: str) -> None:
        """Write at once. Raises BrokenPipeError, every time, where nobody reads any more."""
        if not self._open:
            raise BrokenPipeError
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            self._open = False
            nowhere = os.open(os.devnull, os.O_WRONLY)  # for what is still in the buffer
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
            raise

    def say(self, text: str) -> None:
        """Write lines of ours while they are read; the mark of an end in its colour."""
        mark = text[:1]
        if self.has_colours and mark in _COLOURS:
            text = f"\x1b[{_COLOURS[mark]}m{mark}\x1b[0m{text[1:]}"
        self.write_while_read(f"{text}\n")

    def write_while_read(self, text: str) -> None:
        """Write at once; where nobody reads any more, go on without."""
        with suppress(BrokenPipeError):
            self.write(text)


def _perform(command: Command, out: _Stream, err: _Stream) -> int:
    # Only now: help and mistakes are answered at once.
    from tfjob_magic import commands  # noqa: PLC0415
    from tfjob_magic.client import connect  # noqa: PLC0415
    from tfjob_magic.follow import Face, Interrupts  # noqa: PLC0415

    runs = command.verb == "run" and not command.dry_run
    face = Face(
        # When nobody reads its logs any more, a job goes on, and we with it.
        write=out.write_while_read if runs else out.write,
        say=err.say,
        colours=out.has_colours,
        width=shutil.get_terminal_size().columns if out.is_terminal else None,
    )
    if command.verb not in {"run", "plan"}:
        commands.perform(command, connect(), face)
        return 0
    asked = commands.submission(command, _python(), os.environ)
    if not runs:
        commands.preview(command, asked, connect(), face)
        return 0
    with Interrupts(signal.SIGINT, signal.SIGTERM) as interrupts:
        run, interrupted = commands.launch(command, asked, connect(), face, interrupts)
    if not run.over:  # detached
        return 0
    face.say(summary.failure(run) if run.phase == "failed" else summary.ending(run))
    return _code(run, interrupted)


def _python() -> str:
    """Return what `which python` gives (contract C1), or what comes nearest on this machine."""
    return shutil.which("python") or shutil.which("python3") or sys.executable


def _code(run: Run, interrupted: int | None) -> int:
    """Return the code to exit with: the failing task's, as a shell would give it."""
    if run.phase == "succeeded":
        return 0
    if interrupted is not None:
        return _SIGNALLED + interrupted
    if run.phase == "stopped":
        return _SIGNALLED + signal.SIGTERM
    for task in run.tasks:
        if run.cause is not None and task.name == run.cause.task:
            return _SIGNALLED + task.signal if task.signal else task.code or 1
    return 1


if __name__ == "__main__":
    sys.exit(main())
