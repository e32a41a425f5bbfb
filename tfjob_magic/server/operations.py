"""What can be asked through the server: one table for the browser's door and the kernels'.

An operation runs in a thread, knows no HTTP but the query, and raises `tfjob_magic.errors`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tfjob_magic import __version__
from tfjob_magic.core.flavor import Flavor
from tfjob_magic.errors import InvalidJobError, NotFoundError, Problem
from tfjob_magic.service import Run, Submission, checks, wire
from tfjob_magic.service.inprocess import LONGEST_WAIT, Service


@dataclass(frozen=True)
class Later:
    """Nothing new yet: ask again after a pause, until `deadline` (of the monotonic clock)."""

    run: str  # its id, whatever it was asked for by
    marker: int
    deadline: float


@dataclass(frozen=True)
class Call:
    """One request: `run` and `task` are from its path.

    `gone` says whether nobody waits for the answer any more; `later` is what the operation
    answered the last time, where it is asked again.
    """

    query: Mapping[str, str]
    body: bytes
    run: str = ""
    task: str = ""
    gone: Callable[[], bool] = lambda: False
    later: Later | None = None


@dataclass(frozen=True)
class LogFile:
    """A log to be sent as it is, from a byte offset on; `name` is what a download is called."""

    path: Path
    offset: int
    name: str
    download: bool


Operation: TypeAlias = Callable[[Service, Call], bytes | LogFile | Later]


def hello(service: Service, _call: Call) -> bytes:
    """Say who answers."""
    answer = wire.Hello(uid=os.getuid(), version=__version__, home=str(service.home))
    return wire.encode(wire.Hello, answer)


def flavors(service: Service, _call: Call) -> bytes:
    """List the named flavors."""
    return wire.encode(list[Flavor], service.flavors())


def preview(service: Service, call: Call) -> bytes:
    """Plan a job."""
    return wire.encode_plan(service.preview(wire.decode(Submission, call.body)))


def runs(service: Service, _call: Call) -> bytes:
    """List the runs."""
    return wire.encode(list[Run], service.runs())


def submit(service: Service, call: Call) -> bytes:
    """Start a job."""
    return wire.encode(Run, service.submit(wire.decode(Submission, call.body), call.gone))


def run(service: Service, call: Call) -> bytes:
    """Tell about one run."""
    return wire.encode(Run, service.run(call.run))


def remove(service: Service, call: Call) -> bytes:
    """Delete the directory of a run that is over."""
    service.remove(call.run)
    return b"null"


def plan(service: Service, call: Call) -> bytes:
    """Tell a run's plan."""
    return wire.encode_plan(service.plan(call.run))


def stop(service: Service, call: Call) -> bytes:
    """Ask a run to stop."""
    asked = wire.decode(wire.StopRequest, call.body or b"{}")
    return wire.encode(Run, service.stop(call.run, asked.grace))


def poll(service: Service, call: Call) -> bytes | Later:
    """Read a run's state and logs; waiting for something new is left to the caller."""
    asked = wire.decode(wire.PollRequest, call.body or b"{}")
    checks.check_poll(asked.cursors, asked.wait)
    if call.later is None:
        name, marker = call.run, None
        deadline = time.monotonic() + min(asked.wait, LONGEST_WAIT)
    else:
        name, marker, deadline = call.later.run, call.later.marker, call.later.deadline
    glance = service.glance(name, asked.cursors, marker)
    if glance.news or time.monotonic() >= deadline or call.gone():
        return wire.encode_batch(glance.batch)
    return Later(glance.batch.run.id, glance.marker, deadline)


def log(service: Service, call: Call) -> LogFile:
    """Find the log of one task."""
    found = service.run(call.run)
    offset = call.query.get("offset", "0")
    if not (offset.isascii() and offset.isdigit()):
        raise InvalidJobError(
            [Problem("offset", f"'{offset}' is not a number of bytes; give 0 or more")]
        )
    for task in found.tasks:
        if task.name == call.task:
            name = f"{found.id}-{task.name}.log"
            return LogFile(Path(task.log), int(offset), name, call.query.get("download") == "1")
    names = ", ".join(task.name for task in found.tasks)
    raise NotFoundError(f"task: the run {found.id} has no '{call.task}'; it has {names}")


_RUN = r"runs/(?P<run>[^/]*)"

OPERATIONS: Mapping[str, Mapping[str, Operation]] = {
    "hello": {"GET": hello},
    "flavors": {"GET": flavors},
    "preview": {"POST": preview},
    "runs": {"GET": runs, "POST": submit},
    _RUN: {"GET": run, "DELETE": remove},
    rf"{_RUN}/plan": {"GET": plan},
    rf"{_RUN}/stop": {"POST": stop},
    rf"{_RUN}/poll": {"POST": poll},
    rf"{_RUN}/logs/(?P<task>[^/]*)": {"GET": log},
}
"""Paths below `/tfjob/api/`, as regular expressions, to operations by HTTP method."""
