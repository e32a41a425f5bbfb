"""A Plan: a Job resolved on Nodes. Printable, no side effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfjob_magic.core.job import Job
from tfjob_magic.core.node import Nic, Share

Role = Literal["chief", "worker", "ps", "evaluator"]
Mode = Literal["none", "container", "host"]


@dataclass(frozen=True)
class Network:
    """How the tasks of a run reach each other, and the one-sentence reason (contract N1 to N6)."""

    mode: Mode
    reason: str
    nic: Nic | None


@dataclass(frozen=True)
class PlannedNode:
    """A node of the plan: what the flavor asks of it and what it was granted."""

    index: int
    address: str
    asked: Share
    granted: Share


@dataclass(frozen=True)
class Task:
    """One process of the run.

    `env` holds the contract's variables and the launcher's, not the caller's environment and not
    the user's own variables (those are secrets until shown otherwise: `Job.env`). `address` is
    `host:port`, None where the run has a single task. `log` is the file name inside the run
    directory's `logs/`.
    """

    role: Role
    index: int
    node: int
    asked: Share
    granted: Share
    address: str | None
    cwd: str
    argv: tuple[str, ...]
    env: dict[str, str]
    log: str

    @property
    def name(self) -> str:
        """The task's name, `worker-0`."""
        return f"{self.role}-{self.index}"


@dataclass(frozen=True)
class Plan:
    """A Job resolved on Nodes; `notes` are the sentences that a person should read before."""

    run: str
    job: Job
    network: Network
    rehearsal: bool
    nodes: tuple[PlannedNode, ...]
    tasks: tuple[Task, ...]
    notes: tuple[str, ...]
