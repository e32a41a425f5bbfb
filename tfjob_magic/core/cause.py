"""What a failing task's log says of why it failed, and which task failed first (contract E3)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfjob_magic.core.hints import hint
from tfjob_magic.core.tracebacks import Chain, Traceback, chains

if TYPE_CHECKING:
    from collections.abc import Sequence

TAIL = 256 * 1024  # bytes of a log that are read
MOST_LINES = 20
TOGETHER = 1.0  # seconds within which an own error comes before a derived one

_MOST_COLUMNS = 400
_CONTEXT = 20  # lines of a message, and before a traceback, in which the reason may be
_LAST_WORDS = 12

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[()][0-9A-Za-z])")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_BANNERS = re.compile(
    r"I\d{4} [\d:.]+ +\d+ |\d{4}-\d\d-\d\d [\d:.]+: I |To enable the following instructions: "
    r"|WARNING: All log messages before absl|WARNING: Logging before flag parsing"
    r"|WARNING:tensorflow:From |Instructions for updating:|non-resource variables are not supp"
)
_DERIVED = {"CancelledError", "AbortedError", "UnavailableError"}
_FOLLOWS = "this follows from the end of another task: its log says why"
_DERIVED_STATUS = "tensorflow.DerivedStatus"
_FATAL = re.compile(
    r"F\d{4} [\d:.]+ +\d+ [^\]]{1,200}\] (?P<check>.*)"
    r"|\d{4}-\d\d-\d\d [\d:.]+: F (?P<old>.*)"
    r"|terminate called|Fatal Python error: |FATAL Flags parsing error: |Segmentation fault"
    r"|[^:\s]+: can't open file |ERROR: Could not consume arg: |\s*│ (?:No such|Missing) option"
)
_NATIVE_ERROR = re.compile(r"E\d{4} |\d{4}-\d\d-\d\d [\d:.]+: E ")
_PLACE = re.compile(r'\s*File "|Detected at node ')  # where a graph's node was made
_USAGE = re.compile(r"[Uu]sage: ")
_REFUSED = re.compile(r"(?:[^:\s][^:]{0,200}: error|Error): ")
_VARIES = re.compile(
    r"(?P<address>\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?|\blocalhost:\d+|\[[0-9a-f:]+\]:\d+)"
    r"|(?P<task>/job:\w+(?:/replica:\d+)?/task:\d+|\b[Tt]ask \d+|\b(?:ps|worker|chief)-\d+)"
    r"|(?P<id>\b0x[0-9a-fA-F]+|\bpid[ =]\d+)"
    r"|(?P<time>\b\d\d:\d\d:\d\d(?:\.\d+)?)"
    r"|(?P<number>\b\d{5,}\b)"
)


@dataclass(frozen=True)
class Explanation:
    """What a failing task's log says.

    `error` is its own error's line, None where the log names none; `lines` are those worth reading
    (at most `MOST_LINES`); `hint` is what would help. A `derived` error only follows from another
    task's end.
    """

    error: str | None
    lines: tuple[str, ...]
    hint: str | None
    derived: bool


@dataclass(frozen=True)
class Failure:
    """A task that failed before anything was ended: when (seconds since the epoch), and why."""

    task: str
    time: float
    explanation: Explanation


def explain(tail: bytes, python: str = "python") -> Explanation:
    """Explain a failure by the end of the task's log; `python` names its interpreter in hints.

    Of several exceptions it takes the task's own rather than a derived one, and of a chain the
    one that began it. The time taken is linear in the log, of which `TAIL` bytes are read.
    """
    lines = _lines(tail[-TAIL:])
    found = chains(lines)
    fatal = _fatal(lines)
    chain = _own(found)
    if chain is not None and (fatal is None or fatal[1] <= found[-1].at):
        return _of_chain(chain, lines, python)
    if fatal is not None:
        start, at = fatal
        said = _tidy(lines[start:])[:MOST_LINES]
        return Explanation(
            error=_cut(_message(lines[at])),
            lines=said,
            hint=hint("\n".join(said), python),
            derived=False,
        )
    return Explanation(error=None, lines=_tidy(lines)[-_LAST_WORDS:], hint=None, derived=False)


def first(failures: Sequence[Failure]) -> tuple[Failure, tuple[str, ...]]:
    """Return the failure that is the cause, and the other tasks that died of the very same error.

    The earliest, but within `TOGETHER` of it an own error comes before a derived one. Errors are
    the same when they differ in addresses, tasks, times and ids only. `failures` is not empty.
    """
    earliest = min(failure.time for failure in failures)
    together = [f for f in failures if f.time - earliest <= TOGETHER]
    cause = min(together, key=lambda f: (f.explanation.derived, f.time))
    error = cause.explanation.error
    same = (
        ()
        if error is None
        else tuple(
            f.task
            for f in failures
            if f is not cause and alike(f.explanation.error or "") == alike(error)
        )
    )
    return cause, same


def alike(error: str) -> str:
    """Return an error's line without what differs from task to task."""
    return _VARIES.sub(lambda match: f"<{match.lastgroup}>", error)


def _lines(tail: bytes) -> list[str]:
    """Return the lines without what a terminal would have overwritten."""
    lines = []
    for raw in tail.decode("utf-8", "replace").split("\n"):
        line = raw.rstrip("\r\b")
        line = line[max(line.rfind("\r"), line.rfind("\b")) + 1 :][: 4 * _MOST_COLUMNS]
        lines.append(_UNPRINTABLE.sub("", _ANSI.sub("", line)))
    return lines


def _cut(line: str) -> str:
    return line if len(line) <= _MOST_COLUMNS else f"{line[: _MOST_COLUMNS - 1]}…"


def _tidy(lines: list[str]) -> tuple[str, ...]:
    """Return the lines that say something, without TensorFlow's start-up banners."""
    return tuple(_cut(line) for line in lines if line.strip() and not _BANNERS.match(line))


def _own(found: list[Chain]) -> Chain | None:
    """Return the chain that the task died of.

    It is the last. But where that is derived, an uncaught one of another thread comes before, and
    a cancellation follows from whatever failed earlier in the same process.
    """
    if not found:
        return None
    last = found[-1]
    if _is_derived(last.own):
        for chain in reversed(found[:-1]):
            cancelled = last.own.name == "CancelledError"
            if not _is_derived(chain.own) and (chain.in_thread or cancelled):
                return chain
    return last


def _is_derived(traceback: Traceback) -> bool:
    return traceback.name in _DERIVED or _DERIVED_STATUS in "\n".join(traceback.message)


def _of_chain(chain: Chain, lines: list[str], python: str) -> Explanation:
    own = chain.own
    error = _error(own)
    shown = [line for _, frame in (own.users_frames or own.frames)[-4:] for line in frame[:2]]
    shown += [own.users_place] if own.users_place else []
    shown += [line for line in own.message if line.strip() and not _PLACE.match(line)][:8]
    for closing in (*error, chain.tracebacks[-1].message[0]):
        if closing not in (line.strip() for line in shown):
            shown.append(closing)
    before = [x for x in lines[max(chain.at - _CONTEXT, 0) : chain.at] if _NATIVE_ERROR.match(x)]
    told = {id(t): t for t in (own, chain.tracebacks[0], chain.tracebacks[-1])}.values()
    said = [_cut(line) for traceback in told for line in traceback.message[:_CONTEXT]]
    derived = _is_derived(own)
    advice = hint("\n".join([*map(_cut, before), *said]), python) or (_FOLLOWS if derived else None)
    worth = tuple(_cut(line) for line in shown[-MOST_LINES:])
    return Explanation(_cut(" ".join(error)), worth, advice, derived)


def _error(traceback: Traceback) -> list[str]:
    """Return an exception's line; where that only announces the error, with what it announces."""
    name, *rest = (
        line.strip()
        for line in traceback.message
        if line.strip() and not _PLACE.match(line) and "most recent call last" not in line
    )
    if name.endswith("in user code:") and rest:  # a traceback in a message: its end counts
        return [rest[-1]]
    said = [name]
    for line in rest[:2]:
        if not said[-1].endswith((":", "root error(s) found.")):
            break
        said.append(line)
    return said


def _fatal(lines: list[str]) -> tuple[int, int] | None:
    """Return the first line to show and the line of the last error that is no exception."""
    for at in range(len(lines) - 1, -1, -1):
        line = lines[at]
        if _FATAL.match(line):
            return at, at
        if _REFUSED.match(line):
            before = range(at, max(at - 40, -1), -1)
            usage = next((i for i in before if _USAGE.match(lines[i])), None)
            if usage is not None:
                return max(usage, at - MOST_LINES + 1), at
    return None


def _message(line: str) -> str:
    """Return a fatal line without the clock and the thread before it."""
    match = _FATAL.match(line)
    said = match and (match["check"] or match["old"])
    return said or line.strip(" │")
