"""What the service takes and answers, and what it can be asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from tfjob_magic.core import network, shares, state

if TYPE_CHECKING:
    from tfjob_magic.core.flavor import Flavor
    from tfjob_magic.core.plan import Plan


@dataclass(frozen=True)
class Submission:
    """What a face hands in: the job as the user wrote it, not yet checked.

    `job` maps the fields of `Job` to raw values (`flavor` is its text); what is absent takes its
    default. `source` is the text to write as the boot file (a cell), None where the file is there
    already. `environment` is the caller's own, passed to the tasks and never written down.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # for the doors, which check what comes

    job: dict[str, object]
    source: str | None = None
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskStatus:
    """One task of a run as its events tell it. Times are seconds since the epoch."""

    name: str
    role: shares.Role
    index: int
    node: int
    phase: state.TaskPhase
    pid: int | None
    attempt: int
    code: int | None
    signal: int | None
    started: float | None
    ended: float | None
    log: str  # absolute path


@dataclass(frozen=True)
class Cause:
    """Why a run failed, ready to be shown.

    `task` failed first; `words` say how it ended; `error` is its own exception's line, where its
    log has one; `lines` are the lines of its log worth reading, `hint` what would help; `same`
    names the other tasks that died of the very same error.
    """

    task: str
    words: str
    error: str | None
    lines: tuple[str, ...]
    hint: str | None
    same: tuple[str, ...]
    log: str


@dataclass(frozen=True)
class Run:
    """One execution of a Plan, as of now."""

    id: str
    name: str
    engine: str
    phase: state.RunPhase
    reason: str | None  # why it is stopping or how it ended, in words
    created: float
    ended: float | None
    nodes: int
    flavor: str
    network: network.Mode
    rehearsal: bool
    directory: str  # the run directory, absolute
    code_dir: str  # absolute
    boot_file: str
    tasks: tuple[TaskStatus, ...]
    notes: tuple[str, ...]
    cause: Cause | None

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.phase in state.OVER


@dataclass(frozen=True)
class Chunk:
    """Bytes of one task's log: from `offset` on, `data` as written (standard Base64 in JSON)."""

    task: str
    offset: int
    data: bytes


@dataclass(frozen=True)
class Batch:
    """A run's state and what its logs hold beyond the cursors that were handed in.

    `run` is read before the logs: when it is over and no chunk comes, there is nothing more.
    """

    run: Run
    chunks: tuple[Chunk, ...] = field(default=())


class Jobs(Protocol):
    """What faces may ask; the in-process service and the client of the server both answer it.

    A run is named by its id, by a prefix that only one run has, or by `last`.
    Every error is one of `tfjob_magic.errors`, whatever the arguments hold.
    """

    def preview(self, submission: Submission) -> Plan:
        """Plan the job and start nothing, write nothing."""
        ...

    def submit(self, submission: Submission) -> Run:
        """Write the boot file if there is a source, make the run directory, start the run.

        Raises InUseError where a live run uses the code dir. What goes wrong before the run
        directory is there leaves everything as it was. Where the run then cannot be started, there
        is no run, but the boot file holds the new source.
        """
        ...

    def runs(self) -> list[Run]:
        """List every run of this user, newest first; without causes, which logs would tell."""
        ...

    def run(self, name: str) -> Run:
        """Look at one run."""
        ...

    def plan(self, name: str) -> Plan:
        """Show the plan that the run was started with (the user's variables are masked)."""
        ...

    def stop(self, name: str, grace: float | None = None) -> Run:
        """Ask the run to stop, return at once; asking a run that is over changes nothing.

        `grace`, in seconds, takes the place of the job's own.
        """
        ...

    def remove(self, name: str) -> None:
        """Delete the directory of a run that is over; never a code dir."""
        ...

    def poll(self, name: str, cursors: dict[str, int], wait: float = 0.0) -> Batch:
        """Read each task's log from its cursor (a byte offset, 0 where absent).

        Waits up to `wait` seconds (at most 10) for something new. A reply holds 1 MiB at most;
        what is left comes with the next.
        """
        ...

    def flavors(self) -> list[Flavor]:
        """List the flavors that have a name: the table's and the user's own."""
        ...
