"""A run's state as its events tell it: phases, tasks, and the run (see `core.lifecycle`).

Pure, standard library only, Python 3.10 syntax.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tfjob_magic.core.exits import words

if TYPE_CHECKING:
    from collections.abc import Mapping

RunPhase = Literal[
    "pending", "starting", "running", "stopping", "succeeded", "failed", "stopped", "lost"
]
TaskPhase = Literal["pending", "running", "exited"]
PENDING: Final = "pending"
STARTING: Final = "starting"
RUNNING: Final = "running"
STOPPING: Final = "stopping"
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
STOPPED: Final = "stopped"
LOST: Final = "lost"
OVER: frozenset[str] = frozenset({SUCCEEDED, FAILED, STOPPED, LOST})


@dataclass(frozen=True)
class TaskState:
    """One task as its events tell it.

    `error` says why it could not be started; `signalled` is when it was asked to end.
    """

    name: str
    role: str
    phase: TaskPhase = PENDING
    pid: int | None = None
    attempt: int = 0
    code: int | None = None
    signal: int | None = None
    oom_kills: int = 0
    error: str | None = None
    started: float | None = None
    ended: float | None = None
    signalled: float | None = None

    @property
    def ended_by_us(self) -> bool:
        """Whether it ended after it was asked to: that counts as finished (contract E2)."""
        return self.signalled is not None and self.ended is not None and self.ended > self.signalled

    @property
    def succeeded(self) -> bool:
        """Whether it ended by itself, with code 0."""
        return self.code == 0 and not self.ended_by_us

    @property
    def failed(self) -> bool:
        """Whether it failed by itself."""
        return self.ended is not None and self.code != 0 and not self.ended_by_us

    @property
    def words(self) -> str:
        """How it ended, as the words that follow its name."""
        if self.error is not None:
            return f"could not be started: {self.error}"
        return words(self.code, self.signal, self.oom_kills)


@dataclass(frozen=True)
class State:
    """A run as its events tell it. Times are seconds since the epoch, spans are seconds.

    `outcome` is the phase that a stopping run will end in; `cause` the task that failed first and
    `reason` the same in words; `stopping_since` is the moment from which tasks are being ended;
    `deadline` is when time itself becomes an event (`alarm`).
    """

    tasks: Mapping[str, TaskState]
    grace: float
    timeout: float | None
    phase: RunPhase = PENDING
    step: str = ""
    outcome: str | None = None
    cause: str | None = None
    reason: str | None = None
    notes: tuple[str, ...] = ()
    stopping_since: float | None = None
    deadline: float | None = None
    ended: float | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.phase in OVER

    @property
    def failures(self) -> tuple[str, ...]:
        """The tasks that had failed before any task was asked to end, the cause first.

        Several may fail in one instant, and the one that was seen first need not be the one worth
        showing.
        """
        if self.stopping_since is None:
            return ()
        failed = [
            (task.name != self.cause, task.ended, task.name)
            for task in self.tasks.values()
            if task.failed and task.ended is not None and task.ended <= self.stopping_since
        ]
        return tuple(name for _, _, name in sorted(failed))
