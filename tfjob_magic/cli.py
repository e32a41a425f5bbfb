"""The `tfjob` command: logs and data on stdout, what it has to say on stderr.

It exits with the failing task's code, with 128 + n for a signal n as a shell does, with 2 for a
mistake of the user's. ^C and SIGTERM stop the job that it runs, a second one kills it; a closed
terminal (SIGHUP) leaves it running.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
from typing import TYPE_CHECKING, TextIO

from tfjob_magic import __version__, grammar
from tfjob_magic.errors import TfjobError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_magic.commands import Outcome
    from tfjob_magic.grammar import Command

_MISTAKE = 2
_SIGNALLED = 128


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a log may hold what a locale cannot print
    try:
        if list(argv) == ["--version"]:
            _write(f"tfjob {__version__}\n")
            return 0
        command = grammar.arguments(argv)
        if command.verb == "help":
            _write(grammar.usage(command.topic))
            return 0
        return _perform(command)
    except TfjobError as error:
        _say(f"tfjob: {error}")
        return 1 if isinstance(error, UnavailableError) else _MISTAKE
    except KeyboardInterrupt:
        return _SIGNALLED + signal.SIGINT
    except BrokenPipeError:
        _discard(sys.stdout)
        return _SIGNALLED + signal.SIGPIPE


def _perform(command: Command) -> int:
    # Only now: help and mistakes are answered at once.
    from tfjob_magic import commands, summary  # noqa: PLC0415
    from tfjob_magic.client import connect  # noqa: PLC0415
    from tfjob_magic.follow import Face, Interrupts  # noqa: PLC0415

    terminal = sys.stdout.isatty()
    runs = command.verb == "run" and not command.dry_run
    face = Face(
        write=_write_while_read if runs else _write,
        say=_say,
        colours=terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb",
        width=shutil.get_terminal_size().columns if terminal else None,
    )
    if command.verb not in {"run", "plan"}:
        commands.perform(command, connect(), face)
        return 0
    asked = commands.submission(command, _python(), os.environ)
    if not runs:
        commands.preview(command, asked, connect(), face)
        return 0
    with Interrupts(signal.SIGINT, signal.SIGTERM) as interrupts:
        outcome = commands.launch(command, asked, connect(), face, interrupts)
    if command.detach:
        return 0
    ended = summary.failure if outcome.run.phase == "failed" else summary.ending
    _say(ended(outcome.run))
    return _code(outcome)


def _python() -> str:
    """Return what `which python` gives (contract C1), or what comes nearest on this machine."""
    return shutil.which("python") or shutil.which("python3") or sys.executable


def _code(outcome: Outcome) -> int:
    """Return the code to exit with: the failing task's, as a shell would give it."""
    run = outcome.run
    if run.phase == "succeeded":
        return 0
    if outcome.interrupted is not None:
        return _SIGNALLED + outcome.interrupted
    if run.phase == "stopped":
        return _SIGNALLED + signal.SIGTERM
    for task in run.tasks:
        if run.cause is not None and task.name == run.cause.task:
            return _SIGNALLED + task.signal if task.signal else task.code or 1
    return 1


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _write_while_read(text: str) -> None:
    """Write logs; when nobody reads them any more the job goes on, and we with it."""
    try:
        _write(text)
    except BrokenPipeError:
        _discard(sys.stdout)


def _say(text: str) -> None:
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except BrokenPipeError:
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """Let what is written to the stream from now on, and at exit, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
