"""Tracebacks in the text of a log, as values. Linear in the text, whatever it holds."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

HEADER = "Traceback (most recent call last):"
CHAINS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
MOST_MESSAGE = 200  # lines of one exception's message

_FRAME = re.compile(r'\s*File "([^"]*)", line \d+')
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?::|$)")
_CARETS = re.compile(r"\s*[\^~][\^~\s]*$")
_SYNTAX = ("SyntaxError", "IndentationError", "TabError")
_NOT_THE_USERS = (
    "/site-packages/",
    "/dist-packages/",
    "/lib/python",
    "/lib64/python",
    "/__autograph_generated_file",
)

# A line that TensorFlow's C++ half or absl's logging writes: `I0000 00:00:1796.7 16019 port.cc:1]`.
NATIVE = re.compile(r"[IWEF]\d{4} [\d:.]+ +\d+ |\d{4}-\d\d-\d\d [\d:.]+: [IWEF] ")


@dataclass
class Traceback:
    """One exception as Python printed it.

    `frames` are (path, lines); `message` are the exception's lines, its name first.
    """

    frames: list[tuple[str, list[str]]] = field(default_factory=list)
    message: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The exception's class, without its module."""
        return self.message[0].partition(":")[0].rpartition(".")[2]

    @property
    def users_frames(self) -> list[tuple[str, list[str]]]:
        """The frames of the user's own files, not of what is installed."""
        return [frame for frame in self.frames if _is_users(frame[0])]

    @property
    def users_place(self) -> str | None:
        """The last line of the user's that the message names: where a graph's node was made."""
        places = [line for line in self.message if (m := _FRAME.match(line)) and _is_users(m[1])]
        return places[-1] if places else None


def _is_users(path: str) -> bool:
    return not path.startswith("<") and not any(part in path for part in _NOT_THE_USERS)


@dataclass
class Chain:
    """Tracebacks that Python printed as one: the root first. `at` is its first line's number."""

    at: int
    tracebacks: list[Traceback]
    in_thread: bool

    @property
    def own(self) -> Traceback:
        """The one that began it: the first that passed through the user's files."""
        return next((t for t in self.tracebacks if t.users_frames), self.tracebacks[0])


def chains(lines: list[str]) -> list[Chain]:
    """Find every chain of tracebacks, in the order of the log."""
    found: list[Chain] = []
    at, chained = 0, False
    while at < len(lines):
        start = at
        if lines[at].endswith(HEADER):
            traceback, at = _body(lines, at + 1)
        elif _FRAME.match(lines[at]):  # a syntax error in the boot file has no header
            traceback, at = _body(lines, at)
            if traceback and traceback.name not in _SYNTAX:
                traceback = None
        else:
            chained = lines[at] in CHAINS or (chained and not lines[at].strip())
            at += 1
            continue
        if traceback is None:
            at = max(at, start + 1)
        elif chained and found:
            found[-1].tracebacks.append(traceback)
        else:
            before = " ".join(lines[max(start - 2, 0) : start])
            if "Exception ignored in" not in before:
                found.append(Chain(start, [traceback], "Exception in thread" in before))
        chained = False
    return found


def _body(lines: list[str], at: int) -> tuple[Traceback | None, int]:
    """Read frames and the exception from line `at`; None where there is no exception."""
    traceback = Traceback()
    while at < len(lines):
        line = lines[at]
        if frame := _FRAME.match(line):
            traceback.frames.append((frame.group(1), [line]))
        elif line.startswith("  ") and traceback.frames:
            if not _CARETS.match(line):
                traceback.frames[-1][1].append(line)
        elif not NATIVE.match(line):  # another thread's line may come in between
            break
        at += 1
    if at == len(lines) or not _EXCEPTION.match(lines[at]) or lines[at].endswith(HEADER):
        return None, at
    traceback.message.append(lines[at])
    at += 1
    while at < len(lines) and len(traceback.message) < MOST_MESSAGE:
        if lines[at] in CHAINS or lines[at].endswith(HEADER) or NATIVE.match(lines[at]):
            break
        traceback.message.append(lines[at])
        at += 1
    while not traceback.message[-1].strip():
        traceback.message.pop()
    return traceback, at
