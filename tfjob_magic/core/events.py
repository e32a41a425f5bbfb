"""Events: the recorded facts about a run, one JSON object a line in `events.jsonl`.

Standard library only, Python 3.10 syntax: the supervisor writes them in any interpreter.
Times are seconds since the epoch; a task is named `worker-0`.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar


@dataclass(frozen=True)
class Event:
    """One fact, with the moment at which it was true."""

    time: float
    kind: ClassVar[str]


@dataclass(frozen=True)
class Created(Event):
    """The run directory was made; the run is about to be started on its engine."""

    kind: ClassVar[str] = "created"
    run: str
    engine: str = "local"  # the only one there was before this was recorded


@dataclass(frozen=True)
class Supervised(Event):
    """The supervisor holds the run; `cgroup` is the control group of its tasks, if it has one."""

    kind: ClassVar[str] = "supervised"
    pid: int
    cgroup: str | None = None


@dataclass(frozen=True)
class TaskStarted(Event):
    """A task's process exists."""

    kind: ClassVar[str] = "task_started"
    task: str
    pid: int
    attempt: int


@dataclass(frozen=True)
class TaskNotStarted(Event):
    """A task's program could not be executed; `error` is the system's reason."""

    kind: ClassVar[str] = "task_not_started"
    task: str
    attempt: int
    error: str


@dataclass(frozen=True)
class TaskExited(Event):
    """A task's process ended: `code` as a process returns it, or the `signal` that ended it.

    `oom_kills` counts the kernel's out-of-memory kills on this machine while the task ran.
    """

    kind: ClassVar[str] = "task_exited"
    task: str
    attempt: int
    code: int | None
    signal: int | None
    oom_kills: int = 0


@dataclass(frozen=True)
class Noted(Event):
    """Something that a person should know of and that changes nothing, as a sentence."""

    kind: ClassVar[str] = "noted"
    note: str


@dataclass(frozen=True)
class StopRequested(Event):
    """Somebody asked for the run to stop; a `grace` (seconds) replaces the job's."""

    kind: ClassVar[str] = "stop_requested"
    by: str
    grace: float | None = None


@dataclass(frozen=True)
class TimedOut(Event):
    """The job's timeout passed."""

    kind: ClassVar[str] = "timed_out"
    after: float


@dataclass(frozen=True)
class DeadlinePassed(Event):
    """A grace that the lifecycle asked for is over."""

    kind: ClassVar[str] = "deadline_passed"


@dataclass(frozen=True)
class OrphansEnded(Event):
    """Processes that tasks had left behind were ended."""

    kind: ClassVar[str] = "orphans_ended"
    pids: tuple[int, ...]


@dataclass(frozen=True)
class Finished(Event):
    """The last event of a run: its final phase and, for a failure, the task that caused it."""

    kind: ClassVar[str] = "finished"
    phase: str
    cause: str | None = None


KINDS: dict[str, type[Event]] = {
    cls.kind: cls
    for cls in (
        Created,
        Supervised,
        TaskStarted,
        TaskNotStarted,
        TaskExited,
        Noted,
        StopRequested,
        TimedOut,
        DeadlinePassed,
        OrphansEnded,
        Finished,
    )
}


def encode(event: Event) -> str:
    """One line of `events.jsonl`, without its newline."""
    return json.dumps({"kind": event.kind, **asdict(event)}, ensure_ascii=False)


def decode(line: str) -> Event | None:
    """Read the event of one line; None for a kind that this version does not know.

    Fields that a later version added are left out. Raises ValueError, and nothing else, for a line
    that is not an event: also where a field has a value of another type, or a number is not finite.
    """
    try:
        record = json.loads(line)
    except RecursionError as error:
        raise ValueError("not an event: it is nested too deeply") from error
    kind = record.get("kind") if isinstance(record, dict) else None
    if not isinstance(kind, str):
        raise ValueError(f"not an event: {line!r}")  # noqa: TRY004 - it is the line's fault
    cls = KINDS.get(kind)
    if cls is None:
        return None
    values: dict[str, Any] = {}
    for field in fields(cls):
        if field.name in record:
            value = record[field.name]
            if not _fits(value, str(field.type)):
                raise ValueError(f"not an event: its {field.name!r} is not of type {field.type}")
            values[field.name] = tuple(value) if isinstance(value, list) else value
    try:
        return cls(**values)
    except TypeError as error:
        raise ValueError(f"not an event: {line!r}") from error


def _fits(value: object, annotation: str) -> bool:
    """Whether what JSON has for a field is of the type that the field's annotation names."""
    if annotation == "tuple[int, ...]":
        return isinstance(value, list) and all(_fits(item, "int") for item in value)
    return any(_is(value, name) for name in annotation.split(" | "))


def _is(value: object, name: str) -> bool:
    if name == "None":
        return value is None
    if name == "str":
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, int | float if name == "float" else int):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that is larger than any float
        return False
