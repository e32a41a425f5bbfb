"""A run's life as a table: `advance(state, event)` gives the next state and what to do about it.

Pure, standard library only, Python 3.10 syntax. The supervisor is a loop around `advance`; readers
fold the same events by the same table and ignore the actions. Contract E1, E2, E3 and E5.

    pending → starting → running → stopping → succeeded, failed, stopped, lost

Stopping has steps of its own: `ask` (SIGTERM: workers first, PS once those are gone), `kill`
(SIGKILL, when the one grace that they share is over), `over` (no task is left).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from tfjob_magic.core.events import (
    DeadlinePassed,
    Event,
    Finished,
    Noted,
    StopRequested,
    Supervised,
    TaskExited,
    TaskNotStarted,
    TaskStarted,
    TimedOut,
)
from tfjob_magic.core.state import (
    FAILED,
    LOST,
    PENDING,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    SUCCEEDED,
    RunPhase,
    State,
    TaskState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

NEVER_STARTED = "it was never started"
SUPERVISOR_DIED = "its supervisor died; the processes of the run that were found have been ended"

KILL_PATIENCE = 5.0  # seconds until a task that SIGKILL does not end is left to itself


@dataclass(frozen=True)
class Action:
    """What the supervisor is to do."""


@dataclass(frozen=True)
class Start(Action):
    """Start a task; answered by `TaskStarted` or `TaskNotStarted`."""

    task: str
    attempt: int


@dataclass(frozen=True)
class Ask(Action):
    """Ask tasks to end (SIGTERM)."""

    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Kill(Action):
    """End tasks at once (SIGKILL)."""

    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Finish(Action):
    """End what tasks left behind by the state's deadline; answered by `Finished`."""

    phase: str
    cause: str | None


Step = tuple[State, tuple[Action, ...]]


def begin(tasks: Mapping[str, str], grace: float, timeout: float | None) -> State:
    """Give the state of a run before its first event.

    `tasks` maps names to roles, in the order in which they are to be started. A grace that is not
    a number is none, and so is a timeout that is not finite.
    """
    if not set(tasks.values()) & {"chief", "worker"}:
        raise ValueError("a run needs a chief or a worker: their end is the run's end")
    states = {name: TaskState(name, role) for name, role in tasks.items()}
    if timeout is not None and not math.isfinite(timeout):
        timeout = None
    return State(tasks=states, grace=_span(grace) or 0.0, timeout=timeout)


def advance(state: State, event: Event) -> Step:
    """Give the state after `event` and what to do now.

    An event that means nothing in the state's phase changes nothing.
    """
    rule = RULES.get((state.phase, type(event)))
    if rule is None or getattr(event, "task", None) not in {None, *state.tasks}:
        return state, ()
    return rule(state, event)


def fold(state: State, events: Iterable[Event]) -> State:
    """Give the state after `events`, for readers: what there was to do has been done."""
    for event in events:
        state, _ = advance(state, event)
    return state


def alarm(state: State, now: float) -> Event | None:
    """Give the event that time itself is by now: the job's timeout or the end of a grace."""
    if state.deadline is None or now < state.deadline or state.step == "over":
        return None
    if state.phase == STOPPING:
        return DeadlinePassed(now)
    return TimedOut(now, after=state.timeout or 0.0)


# What each event does in each phase


def _supervised(state: State, event: Supervised) -> Step:
    deadline = None if state.timeout is None else event.time + state.timeout
    return _start_next(replace(state, phase=STARTING, deadline=deadline))


def _started(state: State, event: TaskStarted) -> Step:
    if not _is_awaited(state, event):
        return state, ()
    return _start_next(_with_started(state, event))


def _start_next(state: State) -> Step:
    # One at a time: whatever comes in between may end the run, and nothing starts after that.
    for task in state.tasks.values():
        if task.phase == PENDING:
            return state, (Start(task.name, task.attempt + 1),)
    return replace(state, phase=RUNNING), ()


def _not_started(state: State, event: TaskNotStarted) -> Step:
    if not _is_awaited(state, event):
        return state, ()
    return _judge(_with_not_started(state, event), event.task, event.time)


def _exited(state: State, event: TaskExited) -> Step:
    if not _is_current(state, event):
        return state, ()
    return _judge(_with_exited(state, event), event.task, event.time)


def _judge(state: State, name: str, time: float) -> Step:
    task = state.tasks[name]
    if task.failed:
        state = replace(state, outcome=FAILED, cause=name, reason=f"{name} {task.words}")
        return _stop(state, time, state.grace)
    if all(key.succeeded for key in _key_tasks(state)):
        return _stop(replace(state, outcome=SUCCEEDED), time, state.grace)
    return state, ()


def _key_tasks(state: State) -> list[TaskState]:
    chiefs = [task for task in state.tasks.values() if task.role == "chief"]
    return chiefs or [task for task in state.tasks.values() if task.role == "worker"]


def _stop_requested(state: State, event: StopRequested) -> Step:
    state = replace(state, outcome=STOPPED, reason=f"stopped by {event.by}")
    return _stop(state, event.time, _grace(state, event))


def _grace(state: State, event: StopRequested) -> float:
    asked = _span(event.grace)
    return state.grace if asked is None else asked


def _span(seconds: float | None) -> float | None:
    """Seconds that are never less than 0; None for what is not a number, which has no order."""
    return None if seconds is None or math.isnan(seconds) else max(seconds, 0.0)


def _timed_out(state: State, event: TimedOut) -> Step:
    reason = f"the job's timeout of {event.after:g} s passed"
    return _stop(replace(state, outcome=FAILED, reason=reason), event.time, state.grace)


def _stop(state: State, time: float, grace: float) -> Step:
    state = replace(state, phase=STOPPING, step="ask", stopping_since=time, deadline=time + grace)
    return _press_on(state, time)


def _press_on(state: State, time: float) -> Step:
    """Bring a stopping run nearer to its end: ask the next tasks, kill all, or finish."""
    running = [task for task in state.tasks.values() if task.phase == RUNNING]
    if not running:
        return _finish(state, time)
    if state.step == "ask" and state.deadline is not None and time >= state.deadline:
        state = replace(state, step="kill", deadline=time + KILL_PATIENCE)
        return _signal(state, running, time, Kill)
    if state.step == "kill":
        late = [task for task in running if task.signalled is None]
        return _signal(state, late, time, Kill)
    # A PS that goes first makes the workers print errors about it: they are asked first.
    wave = [task for task in running if task.role != "ps"] or running
    return _signal(state, [task for task in wave if task.signalled is None], time, Ask)


def _signal(state: State, tasks: list[TaskState], time: float, how: type[Ask | Kill]) -> Step:
    if not tasks:
        return state, ()
    for task in tasks:
        if task.signalled is None:
            state = _with(state, replace(task, signalled=time))
    return state, (how(tuple(task.name for task in tasks)),)


def _finish(state: State, time: float) -> Step:
    outcome = state.outcome or FAILED
    deadline = time if state.step == "kill" else state.deadline
    state = replace(state, step="over", deadline=deadline)
    return state, (Finish(outcome, state.cause),)


def _started_late(state: State, event: TaskStarted) -> Step:
    if not _is_awaited(state, event):
        return state, ()
    return _press_on(_with_started(state, event), event.time)


def _not_started_late(state: State, event: TaskNotStarted) -> Step:
    if state.step == "over" or not _is_awaited(state, event):
        return state, ()
    return _press_on(_with_not_started(state, event), event.time)


def _exited_late(state: State, event: TaskExited) -> Step:
    if state.step == "over" or not _is_current(state, event):
        return state, ()
    return _press_on(_with_exited(state, event), event.time)


def _hurried(state: State, event: StopRequested) -> Step:
    # Once more, and perhaps more urgently; never more slowly, and the outcome stays.
    if state.step == "kill" or state.deadline is None:
        return state, ()
    state = replace(state, deadline=min(state.deadline, event.time + _grace(state, event)))
    return (state, ()) if state.step == "over" else _press_on(state, event.time)


def _deadline_passed(state: State, event: DeadlinePassed) -> Step:
    if state.deadline is None or event.time < state.deadline:
        return state, ()  # the deadline was moved while this was on its way
    if state.step == "ask":
        return _press_on(state, event.time)
    if state.step == "kill":
        left = [task.name for task in state.tasks.values() if task.phase == RUNNING]
        note = f"{', '.join(left)} could not be killed and may still be there"
        return _finish(replace(state, notes=(*state.notes, note)), event.time)
    return state, ()


def _finished(state: State, event: Finished) -> Step:
    state = replace(
        state,
        phase=cast("RunPhase", event.phase),
        cause=event.cause or state.cause,
        deadline=None,
        ended=event.time,
    )
    if event.phase == LOST:
        never = state.stopping_since is None and not any(t.pid for t in state.tasks.values())
        state = replace(state, reason=NEVER_STARTED if never else SUPERVISOR_DIED)
        for task in state.tasks.values():
            if task.phase == RUNNING:
                state = _with(state, replace(task, phase="exited"))
    return state, ()


def _noted(state: State, event: Noted) -> Step:
    return replace(state, notes=(*state.notes, event.note)), ()


# What each event says about its task


def _with(state: State, task: TaskState) -> State:
    return replace(state, tasks={**state.tasks, task.name: task})


def _with_started(state: State, event: TaskStarted) -> State:
    task = state.tasks[event.task]
    return _with(
        state,
        TaskState(
            task.name,
            task.role,
            phase=RUNNING,
            pid=event.pid,
            attempt=event.attempt,
            started=event.time,
        ),
    )


def _with_not_started(state: State, event: TaskNotStarted) -> State:
    task = state.tasks[event.task]
    return _with(
        state,
        replace(task, phase="exited", attempt=event.attempt, error=event.error, ended=event.time),
    )


def _with_exited(state: State, event: TaskExited) -> State:
    task = state.tasks[event.task]
    return _with(
        state,
        replace(
            task,
            phase="exited",
            code=event.code,
            signal=event.signal,
            oom_kills=event.oom_kills,
            ended=event.time,
        ),
    )


def _is_awaited(state: State, event: TaskStarted | TaskNotStarted) -> bool:
    return state.tasks[event.task].phase == PENDING


def _is_current(state: State, event: TaskExited) -> bool:
    task = state.tasks[event.task]
    return task.phase == RUNNING and task.attempt == event.attempt


RULES: dict[tuple[str, type[Event]], Callable[[State, Any], Step]] = {
    (PENDING, Supervised): _supervised,
    (PENDING, StopRequested): _stop_requested,
    (PENDING, Finished): _finished,
    (STARTING, TaskStarted): _started,
    (STARTING, TaskNotStarted): _not_started,
    (STARTING, TaskExited): _exited,
    (STARTING, StopRequested): _stop_requested,
    (STARTING, TimedOut): _timed_out,
    (STARTING, Noted): _noted,
    (STARTING, Finished): _finished,
    (RUNNING, TaskExited): _exited,
    (RUNNING, StopRequested): _stop_requested,
    (RUNNING, TimedOut): _timed_out,
    (RUNNING, Noted): _noted,
    (RUNNING, Finished): _finished,
    (STOPPING, TaskStarted): _started_late,
    (STOPPING, TaskNotStarted): _not_started_late,
    (STOPPING, TaskExited): _exited_late,
    (STOPPING, StopRequested): _hurried,
    (STOPPING, DeadlinePassed): _deadline_passed,
    (STOPPING, Noted): _noted,
    (STOPPING, Finished): _finished,
}
