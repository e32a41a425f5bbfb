"""Whether what a log says is what its process died of: what follows in the log, how it ended."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfjob_magic.core.exits import CRASHES, FIRST_SIGNAL_CODE, SIGNALS
from tfjob_magic.core.tracebacks import CHAINS, HEADER, NATIVE

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_LINES = 20  # that other threads, a handler or a message may write after an exception
_PROGRESS = 3  # lines alike but for their numbers: the program went on
_INTERRUPT = 2  # SIGINT: what Python ends itself with after an uncaught KeyboardInterrupt
_UNCAUGHT = 1  # the exit code after an uncaught exception
USAGE = 2  # the exit code of a command line that is refused

BANNERS = re.compile(
    r"I\d{4} [\d:.]+ +\d+ |\d{4}-\d\d-\d\d [\d:.]+: I |To enable the following instructions: "
    r"|WARNING: All log messages before absl|WARNING: Logging before flag parsing"
    r"|WARNING:tensorflow:From |Instructions for updating:|non-resource variables are not supp"
)
STRUCTURE = re.compile(  # lines of a graph error around its reason
    r'\s*File "|Detected at node |Node: |From /job:|<stack traces unavailable>'
    r"|Recent warning and error logs|\s+[IWEF]\d{4} |Additional GRPC error information|:UNKNOWN:"
    r"|Original stack trace for |Function call stack:|\s*\[\[\{\{node "
)
_TEARDOWN = re.compile(
    r"[)\]}>]"  # a message's last bracket
    r"|(?:WARNING|ERROR):tensorflow:|\S+:\d+: \w*Warning: |Exception (?:ignored in|in thread)"
    r"|Fatal Python error: |Python runtime state: |(?:Current thread|Thread) 0x|Extension modules:"
    r"|terminate called|libc\+\+abi: |Aborted|Segmentation fault|Bus error|\*\*\* |PC: @"
)
_FINALIZING = re.compile(
    r"terminate called without an active|Fatal Python error: .*at interpreter shutdown"
    r"|Python runtime state: finalizing"
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_LETTERS = re.compile(r"[^\W\d_]{2}")


class Aftermath:
    """What a process wrote after something in its log: line by line, in either direction."""

    def __init__(self) -> None:
        self._lines = 0
        self._shapes: Counter[str] = Counter()

    def add(self, line: str) -> None:
        """Take another line."""
        if not line or not _is_ordinary(line):
            return
        self._lines += 1
        if _NUMBER.search(line) and _LETTERS.search(line):
            self._shapes[_NUMBER.sub("#", line)] += 1

    @property
    def silent(self) -> bool:
        """Whether there was nothing but what a process and its libraries write as they end."""
        return self._lines == 0

    @property
    def went_on(self) -> bool:
        """Whether the program did more work than a handler or other threads do."""
        return self._lines > _MOST_LINES or max(self._shapes.values(), default=0) >= _PROGRESS


def _is_ordinary(line: str) -> bool:
    return not (
        not line.strip()
        or line[0].isspace()
        or line in CHAINS
        or line.endswith(HEADER)
        or any(known.match(line) for known in (NATIVE, BANNERS, STRUCTURE, _TEARDOWN))
    )


def aftermath(lines: Iterable[str]) -> Aftermath:
    """Read what follows something in a log, as far as it tells more."""
    result = Aftermath()
    for line in lines:
        result.add(line)
        if result.went_on:
            break
    return result


@dataclass(frozen=True)
class Ending:
    """How a process ended: the code it returned, or the signal; neither where nobody saw it."""

    code: int | None = None
    signal: int | None = None

    @property
    def unseen(self) -> bool:
        """Whether nobody saw it."""
        return self.code is None and self.signal is None

    @property
    def _signal(self) -> int | None:
        inner = (self.code or 0) - FIRST_SIGNAL_CODE + 1
        return inner if inner in SIGNALS else self.signal

    @property
    def crashed(self) -> bool:
        """Whether native code ended it, or may have."""
        return self.unseen or self._signal in CRASHES

    def is_of_usage(self, *codes: int) -> bool:
        """Whether a refused command line ends so; some libraries have `codes` of their own."""
        return self.unseen or self.code in {USAGE, *codes}

    def is_of_exception(self, after: Aftermath, end: Iterable[str]) -> bool:
        """Say whether an exception ended it, from what follows that in the log.

        After one that nobody caught, Python returns 1. With another code, or a crash, it must be
        the last thing said, unless the log's `end` shows that the interpreter was shutting down.
        """
        if self.unseen or self.code == _UNCAUGHT:
            return not after.went_on
        if self._signal is not None and not (self.crashed or self._signal == _INTERRUPT):
            return False
        shutdown = self.crashed and any(_FINALIZING.match(line) for line in end)
        return after.silent or (shutdown and not after.went_on)
