"""What a failing task's log says of why it failed, and which task failed first (contract E3)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfjob_magic.core.ending import BANNERS, STRUCTURE, Aftermath, Ending, aftermath
from tfjob_magic.core.hints import hint
from tfjob_magic.core.tracebacks import Chain, Traceback, bare, chains

if TYPE_CHECKING:
    from collections.abc import Sequence

TAIL = 256 * 1024  # bytes of a log that are read, where they hold a traceback
MOST_LINES = 20
TOGETHER = 1.0  # seconds within which an own error comes before a derived one

_MOST_COLUMNS = 400
_CONTEXT = 20  # lines of a message, and before a traceback, in which the reason may be
_LAST_WORDS = 12
_AFTER = 4  # lines shown of what follows an exception

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[()][0-9A-Za-z])")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_DERIVED = {"CancelledError", "AbortedError", "UnavailableError"}
_FOLLOWS = "this follows from the end of another task: its log says why"
_DERIVED_STATUS = "tensorflow.DerivedStatus"
_EARLIER = "earlier in its log: {error}"
_CRASH = re.compile(
    r"F\d{4} [\d:.]+ +\d+ [^\]]{1,200}\] (?P<check>.*)"
    r"|\d{4}-\d\d-\d\d [\d:.]+: F (?P<old>.*)"
    r"|terminate called|Fatal Python error: |Segmentation fault"
)
_BAD_COMMAND = re.compile(
    r"FATAL Flags parsing error: |[^:\s]+: can't open file |ERROR: Could not consume arg: "
    r"|\s*│ (?:No such|Missing) option"
)
_ABSL = 1  # absl's exit code for a command line that it refuses
_NATIVE_ERROR = re.compile(r"E\d{4} |\d{4}-\d\d-\d\d [\d:.]+: E ")
_USAGE = re.compile(r"[Uu]sage: ")
_REFUSED = re.compile(r"(?:(?P<program>[^:\s][^:]{0,200}): error|Error): ")
_INNER = re.compile(r" {4}[^\W\d][\w.]*: ")  # an exception's line inside a message
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


def explain(
    log: bytes, python: str = "python", *, code: int | None = None, signal: int | None = None
) -> Explanation:
    """Explain a failure by the end of the task's log, and by how the task ended.

    `python` names its interpreter in hints; `code` is what it returned and `signal` what ended it,
    both None where nobody saw that. An exception is the task's error only where the task ended as
    after an uncaught one and did not go on after it; of several it takes the task's own rather
    than a derived one, and of a chain the one that began it. Where nothing in the log is the
    error, its last lines are given. The time taken is linear in the log.
    """
    ending = Ending(code, signal)
    lines = _lines(log)
    quiet, groups = bare(lines)
    every = chains(quiet, groups)
    for chain in every:
        if chain.ignored:  # Python itself went on
            end = chain.tracebacks[-1].at + 1
            quiet[chain.at : end] = [""] * (end - chain.at)
    found = [chain for chain in every if not chain.ignored]
    fatal = _fatal(quiet, ending)
    if not found:
        return _without_chain(fatal, lines, python)
    chain = _own(found, quiet)
    last = _end(found[-1])
    stop = fatal[1] if fatal is not None and fatal[1] >= last else len(quiet)
    after = aftermath(quiet[last:stop])
    if ending.is_of_exception(after, quiet[stop:]):
        explanation = _of_chain(chain, lines, python)
        return explanation if after.silent else _and_last(explanation, quiet[last:stop])
    explanation = _without_chain(fatal, lines, python)
    if _is_derived(chain.own):
        derived = ending.signal is None and fatal is None and not after.went_on
        return replace(explanation, derived=derived)
    error = _cut(" ".join(_error(chain.own)[0]))
    if explanation.hint or error in explanation.lines:
        return explanation
    return replace(explanation, hint=_EARLIER.format(error=error))


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
    lines: list[str] = []
    for raw in tail.decode("utf-8", "replace").split("\n"):
        if not raw:
            lines.append(raw)
            continue
        line = raw.rstrip("\r\b")
        line = line[max(line.rfind("\r"), line.rfind("\b")) + 1 :][: 4 * _MOST_COLUMNS]
        lines.append(_UNPRINTABLE.sub("", _ANSI.sub("", line)))
    return lines


def _cut(line: str) -> str:
    return line if len(line) <= _MOST_COLUMNS else f"{line[: _MOST_COLUMNS - 1]}…"


def _tidy(lines: list[str]) -> tuple[str, ...]:
    """Return the lines that say something, without TensorFlow's start-up banners."""
    return tuple(_cut(line) for line in lines if line.strip() and not BANNERS.match(line))


def _without_chain(fatal: tuple[int, int] | None, lines: list[str], python: str) -> Explanation:
    """Explain by a fatal line, or else by the log's last lines."""
    if fatal is None:
        return Explanation(error=None, lines=_tidy(lines)[-_LAST_WORDS:], hint=None, derived=False)
    start, at = fatal
    said = _tidy(lines[start:])[:MOST_LINES]
    return Explanation(
        error=_cut(_message(lines[at])),
        lines=said,
        hint=hint("\n".join(said), python),
        derived=False,
    )


def _and_last(explanation: Explanation, after: list[str]) -> Explanation:
    """Add the log's last lines to those of an exception."""
    last = [line for line in _tidy(after)[-_AFTER:] if line not in explanation.lines]
    return replace(explanation, lines=(*explanation.lines, *last)[-MOST_LINES:])


def _own(found: list[Chain], lines: list[str]) -> Chain:
    """Return the chain that the last one comes from.

    It is the last. But where that is derived, an uncaught one of another thread comes before, and
    a cancellation follows from what failed shortly before in the same process.
    """
    last = found[-1]
    if _is_derived(last.own):
        cancelled = last.own.name == "CancelledError"
        for chain in reversed(found[:-1]):
            if not _is_derived(chain.own) and (chain.in_thread or cancelled):
                between = aftermath(lines[_end(chain) : last.at])
                return last if between.went_on else chain
    return last


def _end(chain: Chain) -> int:
    """Return the number of the line after the chain's last error."""
    traceback = chain.tracebacks[-1]
    return traceback.at + _error(traceback)[1]


def _is_derived(traceback: Traceback) -> bool:
    return traceback.name in _DERIVED or _DERIVED_STATUS in "\n".join(traceback.message)


def _of_chain(chain: Chain, lines: list[str], python: str) -> Explanation:
    own = chain.own
    error = _error(own)[0]
    shown = [line for _, frame in (own.users_frames or own.frames)[-4:] for line in frame[:2]]
    shown += [line for line in own.users_place if line not in shown]
    shown += [line for line in own.message if line.strip() and not STRUCTURE.match(line)][:8]
    for closing in (*error, chain.tracebacks[-1].message[0]):
        if closing not in (line.strip() for line in shown):
            shown.append(closing)
    before = [x for x in lines[max(chain.at - _CONTEXT, 0) : chain.at] if _NATIVE_ERROR.match(x)]
    told = {id(t): t for t in (own, chain.tracebacks[0], chain.tracebacks[-1])}.values()
    said = [line for traceback in told for line in traceback.message[:_CONTEXT]]
    derived = _is_derived(own)
    text = "\n".join(_cut(line) for line in [*before, *said, *error])
    advice = hint(text, python) or (_FOLLOWS if derived else None)
    worth = tuple(_cut(line) for line in shown[-MOST_LINES:])
    return Explanation(_cut(" ".join(error)), worth, advice, derived)


def _error(traceback: Traceback) -> tuple[list[str], int]:
    """Return an exception's line, and how many lines of the log it took to say it.

    Where that line only announces the error (`Graph execution error:`), what it announces follows,
    after the places and nodes of the graph.
    """
    name = traceback.message[0].strip()
    if name.endswith("in user code:"):  # a traceback in a message: its last exception counts
        inner = [i for i, line in enumerate(traceback.message) if _INNER.match(line)]
        if inner:
            return [traceback.message[inner[-1]].strip()], inner[-1] + 1
    said, end, placed = [name], 1, False
    for number, line in enumerate(traceback.message[1:], 2):
        if len(said) > 2 or not said[-1].endswith((":", "root error(s) found.")):  # noqa: PLR2004
            break
        if STRUCTURE.match(line):
            placed = line.lstrip().startswith("File ")
        elif line.strip() and not (placed and line.startswith("  ")):  # or a place's source
            said.append(line.strip())
            end = number
    return said, end


def _fatal(lines: list[str], ending: Ending) -> tuple[int, int] | None:
    """Return the first line to show and the line of the last error that is not an exception."""
    after = Aftermath()
    for at in range(len(lines) - 1, -1, -1):
        line = lines[at]
        if ending.crashed and _CRASH.match(line):
            return at, at
        if ending.is_of_usage(_ABSL) and _BAD_COMMAND.match(line):
            return at, at
        if after.silent and ending.is_of_usage() and (refused := _REFUSED.match(line)):
            usage = _usage(lines, at, refused["program"] or "")
            if usage is not None:
                return max(usage, at - MOST_LINES + 1), at
        after.add(line)
        if after.went_on:
            break
    return None


def _usage(lines: list[str], at: int, program: str) -> int | None:
    """Return the line of the usage that a parser prints before it refuses, at most 40 above."""
    before = range(at - 1, max(at - 41, -1), -1)
    usage = next((i for i in before if _USAGE.match(lines[i])), None)
    return usage if usage is not None and program in lines[usage] else None


def _message(line: str) -> str:
    """Return a fatal line without the clock and the thread before it."""
    match = _CRASH.match(line)
    said = match and (match["check"] or match["old"])
    return said or line.strip(" │")
