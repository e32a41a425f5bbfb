"""Tracebacks in the text of a log, as values. Linear in the text, whatever it holds."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

HEADER = "Traceback (most recent call last):"
CHAINS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
MOST_MESSAGE = 1000  # lines of one exception's message

_FRAME = re.compile(r'\s*File "([^"]*)", line \d+')
_EXCEPTION = re.compile(r"[^\W\d][\w.<>]*(?::|$)")
_GROUP = re.compile(rf" *[+|] Exception Group {re.escape(HEADER)}$")
_MARGIN = re.compile(r" +[|+](?: |$)")  # before what Python prints of an exception group
_RULE = re.compile(r" +\+(?:-\+)?-{4,}(?: (?:\d+|\.\.\.) -{4,})?$")  # between its exceptions
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

    `frames` are (path, lines); `message` are the exception's lines, its name first, from line `at`
    of the log.
    """

    frames: list[tuple[str, list[str]]] = field(default_factory=list)
    message: list[str] = field(default_factory=list)
    at: int = 0

    @property
    def name(self) -> str:
        """The exception's class, without its module."""
        return self.message[0].partition(":")[0].rpartition(".")[2]

    @property
    def is_group(self) -> bool:
        """Whether it only holds others."""
        return self.name.endswith("ExceptionGroup")

    @property
    def users_frames(self) -> list[tuple[str, list[str]]]:
        """The frames of the user's own files, not of what is installed."""
        return [frame for frame in self.frames if _is_users(frame[0])]

    @property
    def users_place(self) -> list[str]:
        """Where a graph's node was made: the message's last place of the user's, and its source."""
        found: list[str] = []
        for number, line in enumerate(self.message):
            if (place := _FRAME.match(line)) and _is_users(place[1]):
                source = self.message[number + 1 : number + 2]
                found = [line, *(x for x in source if x.startswith("   ") and not _FRAME.match(x))]
        return found


def _is_users(path: str) -> bool:
    return not path.startswith("<") and not any(part in path for part in _NOT_THE_USERS)


@dataclass
class Chain:
    """Tracebacks that Python printed as one: the root first. `at` is its first line's number.

    One `in_thread` ended a thread; one that is `ignored` ended nothing.
    """

    at: int
    tracebacks: list[Traceback]
    in_thread: bool
    ignored: bool

    @property
    def own(self) -> Traceback:
        """The one that began it: the first that passed through the user's files."""
        single = [t for t in self.tracebacks if not t.is_group] or self.tracebacks
        return next((t for t in single if t.users_frames), single[0])


def chains(texts: list[str], groups: list[int]) -> list[Chain]:
    """Find every chain of tracebacks in bare lines, in the order of the log."""
    found: list[Chain] = []
    at, chained, group = 0, False, 0  # the exception group that the last traceback belongs to
    while at < len(texts):
        if not texts[at]:
            at += 1
            continue
        start = at
        unraised = groups[at] and _RULE.match(texts[at])  # one of a group's, with no header
        if unraised or texts[at].endswith(HEADER):
            traceback, at = _body(texts, at + 1)
        elif _FRAME.match(texts[at]):  # a syntax error in the boot file has no header
            traceback, at = _body(texts, at)
            if traceback and traceback.name not in _SYNTAX:
                traceback = None
        else:
            chained = texts[at] in CHAINS or (chained and not texts[at].strip())
            at += 1
            continue
        if traceback is None:
            at = max(at, start + 1)
        elif found and (chained or (group and groups[start] == group)):
            found[-1].tracebacks.append(traceback)
            group = groups[start]
        else:
            before = " ".join(texts[max(start - 2, 0) : start])
            ignored = "Exception ignored in" in before
            found.append(Chain(start, [traceback], "Exception in thread" in before, ignored))
            group = groups[start]
        chained = False
    return found


def bare(lines: list[str]) -> tuple[list[str], list[int]]:
    """Return the lines without what stands before each line of a traceback, and their groups.

    That is what a launcher prints before every line (`[rank0]: `), and an exception group's
    margin. The lines of one group have its number, all others 0.
    """
    texts: list[str] = []
    groups: list[int] = []
    prefix, group, last = "", 0, 0
    for number, line in enumerate(lines):
        if not (line or prefix or group):
            texts.append("")
            groups.append(0)
            continue
        if line.endswith(HEADER) and not (prefix and line.startswith(prefix)):
            prefix = line.removesuffix(HEADER).removesuffix("  + Exception Group ")
            following = lines[number + 1] if number + 1 < len(lines) else ""
            if not following.startswith(prefix):
                prefix = ""
        if prefix and not line.startswith(prefix.rstrip()):
            prefix = ""
        text = line[len(prefix) :]
        if not group and _GROUP.match(text):
            group = last = last + 1
        elif group and not (_MARGIN.match(text) or _RULE.match(text)):
            group = 0
        texts.append(_MARGIN.sub("", text, count=1) if group else text)
        groups.append(group)
    return texts, groups


def _body(lines: list[str], at: int) -> tuple[Traceback | None, int]:
    """Read frames and the exception from line `at`; None where there is no exception."""
    traceback = Traceback()
    while at < len(lines):
        line = lines[at]
        if frame := _FRAME.match(line):
            traceback.frames.append((frame.group(1), [line]))
        elif line.startswith("  ") and traceback.frames and not _RULE.match(line):
            if not _CARETS.match(line):
                traceback.frames[-1][1].append(line)
        elif not NATIVE.match(line):  # another thread's line may come in between
            break
        at += 1
    if at == len(lines) or not _EXCEPTION.match(lines[at]) or lines[at].endswith(HEADER):
        return None, at
    traceback.at = at
    traceback.message.append(lines[at])
    at += 1
    while at < len(lines) and len(traceback.message) < MOST_MESSAGE:
        line = lines[at]
        if line in CHAINS or line.endswith(HEADER) or NATIVE.match(line) or _RULE.match(line):
            break
        traceback.message.append(line)
        at += 1
    while not traceback.message[-1].strip():
        traceback.message.pop()
    return traceback, at
