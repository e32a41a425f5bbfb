"""The supervisor's loop: what happens becomes an event, `advance` says what to do about it."""

from __future__ import annotations

import os
import signal
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tfjob_magic.core import lifecycle
from tfjob_magic.core.events import (
    Event,
    Finished,
    Noted,
    OrphansEnded,
    StopRequested,
    Supervised,
    TaskExited,
    TaskNotStarted,
    TaskStarted,
)
from tfjob_magic.core.lifecycle import Action, Ask, Finish, Kill, Start
from tfjob_magic.store import cgroups
from tfjob_magic.store.processes import RUN_DIR, descendants, oom_kills
from tfjob_magic.store.rundir import EventWriter, RunDir
from tfjob_magic.supervisor import linux, tasks
from tfjob_magic.supervisor.clock import Clock
from tfjob_magic.supervisor.wakeups import Wakeups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tfjob_magic.core.launch import Launch

DISK_PATIENCE = 30  # seconds to wait for a full disk before the last events are given up


def supervise(
    directory: str,
    launch: Launch,
    held_fds: Iterable[int],
    become: tasks.Become,
    ready: Callable[[], None],
) -> None:
    """Live through one run, in a process of one thread that is nobody else's; return at its end.

    The held descriptors (the run's lock, its ports, its hold on the ledger) are kept for just as
    long as this process lives. `become` is how a fork becomes its task; `ready` is called once the
    run has its supervisor.
    """
    for fd in held_fds:
        os.set_inheritable(fd, False)  # noqa: FBT003 - it has no keyword
    supervisor = Supervisor(RunDir(directory), launch, become)
    try:
        supervisor.run(ready)
    except BaseException:
        # Without a last event the run is lost, which is the truth; its tasks end with it.
        supervisor.kill_all()
        raise


class Supervisor:
    """One run's state, its processes and its events."""

    def __init__(self, directory: RunDir, launch: Launch, become: tasks.Become) -> None:
        self._directory = directory
        self._become = become
        self._launches = {
            task.name: replace(
                task,
                # By this its processes are found, wherever they go.
                environment={**task.environment, RUN_DIR: str(directory.path)},
            )
            for task in launch.tasks
        }
        self._state = lifecycle.begin(
            {task.name: task.role for task in launch.tasks}, launch.grace, launch.timeout
        )
        self._clock = Clock()
        self._writer = EventWriter(directory.events_path)
        self._group: Path | None = None
        self._alive: dict[int, Start] = {}  # by pid, the start that made it
        self._oom_before: dict[str, int] = {}
        self._queue: deque[Event] = deque()
        self._wakeups = Wakeups(
            directory.nudge_path,
            hear=(signal.SIGCHLD, signal.SIGTERM),
            ignore=(signal.SIGINT, signal.SIGHUP, signal.SIGPIPE),
        )

    def run(self, ready: Callable[[], None]) -> None:
        """From `supervised` to `finished`."""
        linux.adopt_orphans()
        # Made only now, so that whoever finds the run finds the group as well.
        self._group = cgroups.make(self._directory.path)
        group = None if self._group is None else str(self._group)
        supervised = Supervised(self._clock.read(), pid=os.getpid(), cgroup=group)
        self._writer.append(supervised)
        self._writer.check()
        ready()
        self._advance(supervised)
        while not self._state.over:
            self._look(0.0 if self._queue else self._until_deadline())
            if self._queue:
                event = self._queue.popleft()
                self._writer.append(event)
                self._advance(event)
        self._flush()

    def kill_all(self) -> None:
        """End every process of the run, without waiting."""
        for pid in {*self._alive, *self._left()}:
            _kill(pid, signal.SIGKILL)
        if self._group is not None:
            cgroups.remove(self._group)

    def _advance(self, event: Event) -> None:
        self._state, actions = lifecycle.advance(self._state, event)
        for action in actions:
            self._do(action, event.time)

    # What happens becomes events

    def _until_deadline(self) -> float | None:
        deadline = self._state.deadline
        return None if deadline is None else deadline - self._clock.read()

    def _look(self, seconds: float | None) -> None:
        """Wait for something to happen, and queue all that has as of one moment."""
        came = self._wakeups.wait(seconds)
        now = self._clock.read()
        self._reap(now)
        if signal.SIGTERM in came:
            self._queue.append(StopRequested(now, by="SIGTERM to its supervisor"))
        request = self._directory.take_stop_request()
        if request is not None:
            by, grace = request
            self._queue.append(StopRequested(now, by=by, grace=grace))
        alarm = lifecycle.alarm(self._state, now)
        if alarm is not None and not self._queue:  # what has happened may call it off
            self._queue.append(alarm)

    def _reap(self, now: float) -> None:
        """Queue the ends of tasks; those of adopted processes are nobody's news."""
        exits: list[TaskExited] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            start = self._alive.pop(pid, None)
            if start is not None:
                exits.append(self._exit(start, status, now))
        # Of what happened in one moment, success comes first: when the workers are done the job
        # has succeeded, whatever else fell over just then.
        exits.sort(key=lambda exited: exited.code != 0)
        self._queue.extend(exits)

    def _exit(self, start: Start, status: int, now: float) -> TaskExited:
        killed = os.WIFSIGNALED(status)
        return TaskExited(
            now,
            task=start.task,
            attempt=start.attempt,
            code=None if killed else os.WEXITSTATUS(status),
            signal=os.WTERMSIG(status) if killed else None,
            oom_kills=oom_kills() - self._oom_before[start.task],
        )

    # What is to be done is done

    def _do(self, action: Action, now: float) -> None:
        if isinstance(action, Start):
            self._start(action)
        elif isinstance(action, Ask):
            # Whoever is dead already has died before we asked: that is no end of our making.
            self._reap(now)
            # A stopped process would never hear of it.
            self._signal(action.tasks, (signal.SIGTERM, signal.SIGCONT))
        elif isinstance(action, Kill):
            self._reap(now)
            self._signal(action.tasks, (signal.SIGKILL,))
        elif isinstance(action, Finish):
            self._finish(action)

    def _start(self, action: Start) -> None:
        name = action.task
        launch = self._launches[name]
        self._oom_before[name] = oom_kills()
        try:
            pid, note = tasks.start(
                launch, self._directory.log_path(launch.log), self._become, self._group
            )
        except (tasks.NotStartedError, OSError) as error:
            self._queue.append(
                TaskNotStarted(
                    self._clock.read(), task=name, attempt=action.attempt, error=str(error)
                )
            )
            return
        self._alive[pid] = action
        self._queue.append(
            TaskStarted(self._clock.read(), task=name, pid=pid, attempt=action.attempt)
        )
        if note:
            self._queue.append(Noted(self._clock.read(), note=f"{name} {note}"))

    def _signal(self, names: tuple[str, ...], numbers: tuple[int, ...]) -> None:
        groups = [pid for pid, start in self._alive.items() if start.task in names]
        for pid in groups:
            for number in numbers:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, number)

    def _finish(self, action: Finish) -> None:
        ended = self._end_what_is_left()
        if self._group is not None:
            cgroups.remove(self._group)
        if ended:
            self._queue.append(OrphansEnded(self._clock.read(), pids=tuple(sorted(ended))))
        self._queue.append(Finished(self._clock.read(), phase=action.phase, cause=action.cause))

    def _end_what_is_left(self) -> set[int]:
        """End what tasks have left behind, also in sessions of its own: SIGTERM, then SIGKILL.

        This process has adopted it, and it is in the run's group where there is one. The tasks'
        deadline is its deadline; what even SIGKILL does not end is left to itself after a while.
        """
        ended: set[int] = set()
        give_up = None
        while True:
            left = self._left()
            now = self._clock.read()
            if not left or (give_up is not None and now >= give_up):
                return ended
            deadline = self._state.deadline
            if give_up is None and (deadline is None or now >= deadline):
                give_up = now + lifecycle.KILL_PATIENCE
            for pid in left:
                if give_up is not None:
                    _kill(pid, signal.SIGKILL)
                elif pid not in ended:
                    _kill(pid, signal.SIGTERM)
                    _kill(pid, signal.SIGCONT)
            ended.update(left)
            self._look_at_orphans((give_up or deadline or now) - now)

    def _left(self) -> set[int]:
        group = [] if self._group is None else cgroups.members(self._group)
        return {*descendants(os.getpid()), *group}

    def _look_at_orphans(self, seconds: float) -> None:
        self._look(seconds)
        while self._queue:
            event = self._queue.popleft()
            self._writer.append(event)
            self._state, _ = lifecycle.advance(self._state, event)

    def _flush(self) -> None:
        for _ in range(DISK_PATIENCE):
            if self._writer.flush():
                return
            self._wakeups.wait(1.0)
        self._writer.check()


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
