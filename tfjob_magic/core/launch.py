"""The launch message: what an engine tells a supervisor, on its stdin, as JSON.

Standard library only, Python 3.10 syntax. It holds the tasks' environments, so it travels through
a pipe and is never written down.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class TaskLaunch:
    """One task as the supervisor starts it.

    `log` is a file's name inside the run directory's `logs/`; `cores` are those that it may run
    on, empty for all; `environment` is the whole of it.
    """

    name: str
    role: str
    argv: tuple[str, ...]
    cwd: str
    log: str
    cores: tuple[int, ...]
    environment: dict[str, str]


@dataclass(frozen=True)
class Launch:
    """A run as the supervisor starts it; `grace` and `timeout` in seconds."""

    grace: float
    timeout: float | None
    tasks: tuple[TaskLaunch, ...]


def encode(launch: Launch) -> bytes:
    """Give the message's bytes; file names that are no UTF-8 survive as escaped surrogates."""
    return json.dumps(asdict(launch)).encode("ascii")


def decode(message: bytes) -> Launch:
    """Read the launch that `encode` wrote."""
    fields = json.loads(message)
    tasks = tuple(
        TaskLaunch(**{**task, "argv": tuple(task["argv"]), "cores": tuple(task["cores"])})
        for task in fields["tasks"]
    )
    return Launch(grace=fields["grace"], timeout=fields["timeout"], tasks=tasks)
