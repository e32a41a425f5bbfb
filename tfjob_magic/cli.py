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
    _open_closed_descriptors()
    out, err = _Stream(sys.stdout, 1), _Stream(sys.stderr, 2)
    try:
        return _answer(argv, out, err)
    except TfjobError as error:
        err.say(f"tfjob: {summary.mistakes(error, err.width)}")
        return 1 if isinstance(error, UnavailableError) else _MISTAKE
    except KeyboardInterrupt:
        return _SIGNALLED + signal.SIGINT
    except _UnwritableError as error:
        if error.reason is None:
            return _SIGNALLED + signal.SIGPIPE
        err.say(f"tfjob: standard output cannot be written: {error.reason}")
        return 1


def _answer(argv: Sequence[str], out: _Stream, err: _Stream) -> int:
    if list(argv) == ["--version"]:
        out.write(f"tfjob {__version__}\n")
        return 0
    command = grammar.arguments(argv)
    if command.verb == "help":
        out.write(grammar.usage(command.topic))
        return 0
    return _perform(command, out, err)


def _open_closed_descriptors() -> None:
    """Put /dev/null where standard input, output or error is closed (`>&-`).

    Otherwise the next file to be opened would get its number, and be taken for it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 - standard error
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - it takes no name
    os.close(descriptor)


class _UnwritableError(Exception):
    """A stream takes no more; `reason` is None where its reader has only gone away."""

    def __init__(self, reason: str | None) -> None:
        self.reason = reason
        super().__init__(reason)


class _Stream:
    """Standard output or error, through a buffer of our own.

    Where PYTHONUNBUFFERED is set, Python's own stream drops what one write(2) does not take.
    `stream` is Python's own, which is None where the descriptor was closed.
    """

    def __init__(self, stream: TextIO | None, descriptor: int) -> None:
        self.is_terminal = os.isatty(descriptor)
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        self.has_colours = self.is_terminal and not plain
        self.width = shutil.get_terminal_size().columns if self.is_terminal else None
        self._failed: _UnwritableError | None = None
        self._stream = open(  # noqa: SIM115 - it lives as long as the process
            descriptor,
            "w",
            encoding=stream.encoding if stream else "utf-8",
            errors="replace",  # a log may hold what a locale cannot print
            closefd=False,
        )

    def write(self, text: str) -> None:
        """Write at once. Raises _UnwritableError, from the first failure on every time."""
        if self._failed is not None:
            raise self._failed
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            broken = isinstance(error, BrokenPipeError)
            self._failed = _UnwritableError(None if broken else error.strerror)
            nowhere = os.open(os.devnull, os.O_WRONLY)  # for what is still in the buffer
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
            raise self._failed from None

    def say(self, text: str) -> None:
        """Write lines of ours while they are read; the mark of an end in its colour."""
        mark = text[:1]
        if self.has_colours and mark in _COLOURS:
            text = f"\x1b[{_COLOURS[mark]}m{mark}\x1b[0m{text[1:]}"
        with suppress(_UnwritableError):
            self.write(f"{text}\n")

    def write_or_tell(self, text: str, other: _Stream) -> None:
        """Write at once; where that fails, tell it once on the `other` stream and go on without."""
        failed = self._failed
        try:
            self.write(text)
        except _UnwritableError as error:
            if failed is None and error.reason is not None:
                other.say(
                    f"tfjob: standard output cannot be written: {error.reason};"
                    " the job goes on, and its logs are kept"
                )


def _perform(command: Command, out: _Stream, err: _Stream) -> int:
    # Only now: help and mistakes are answered at once.
    from tfjob_magic import commands  # noqa: PLC0415
    from tfjob_magic.client import connect  # noqa: PLC0415
    from tfjob_magic.follow import Face, Interrupts  # noqa: PLC0415

    runs = command.verb == "run" and not command.dry_run
    face = Face(
        # When its logs can be shown no more, a job goes on, and we with it.
        write=(lambda text: out.write_or_tell(text, err)) if runs else out.write,
        say=err.say,
        colours=out.has_colours,
        width=out.width,
    )
    if command.verb not in {"run", "plan"}:
        commands.perform(command, connect(), face)
        return 0
    asked = commands.submission(command, _python(), os.environ)
    if not runs:
        commands.preview(command, asked, connect(), face)
        return 0
    with Interrupts(signal.SIGINT, signal.SIGTERM) as interrupts:
        try:
            run, interrupted = commands.launch(command, asked, connect(), face, interrupts)
        except commands.AbandonedError as error:
            face.say(f"tfjob: {error}")
            return _SIGNALLED + error.signal
    if not run.over:  # detached
        return 0
    end = summary.failure if run.phase == "failed" else summary.ending
    face.say(end(run, face.width))
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
