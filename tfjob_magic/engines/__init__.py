"""Engines: where a plan runs. All have one shape, so that faces and service need know none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from tfjob_magic.core.job import Job
    from tfjob_magic.core.node import Nic, Node
    from tfjob_magic.core.plan import Plan
    from tfjob_magic.store.rundir import RunDir


class Reservation(Protocol):
    """What an engine can give a job now; kept until the reservation is left or the run started."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, as `plan` takes them."""
        ...

    @property
    def ports(self) -> tuple[int, ...]:
        """One port per task; none for a run of a single task."""
        ...

    @property
    def nics(self) -> tuple[Nic, ...]:
        """The network cards that the nodes have."""
        ...


R = TypeVar("R", bound=Reservation)


class Engine(Protocol[R]):
    """Where a plan runs."""

    @property
    def name(self) -> str:
        """The engine's name, as a run tells it."""
        ...

    def reserve(self, job: Job) -> AbstractContextManager[R]:
        """Find room for a job; leaving the context gives back what no run has taken over.

        Raises UnavailableError when there is none.
        """
        ...

    def start(
        self,
        plan: Plan,
        directory: RunDir,
        lock: int,
        environments: Mapping[str, Mapping[str, str]],
        reservation: R,
    ) -> None:
        """Start a plan's run; return once it has its supervisor.

        `lock` is the run's lock, which is closed here; `environments` is by task name and each
        the whole of a task's environment. Raises UnavailableError when it cannot be started.
        """
        ...

    def stop(self, directory: RunDir, by: str, grace: float | None = None) -> None:
        """Ask a run to stop, and return; a run that is over stays as it is."""
        ...

    def settle(self, directory: RunDir) -> None:
        """Find out whether a run that looks unfinished is lost, and then record it, once."""
        ...
