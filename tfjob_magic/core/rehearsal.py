"""When a run is a rehearsal: the nodes have less than the flavor asks (contract R8)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tfjob_magic.core.node import same_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_magic.core.job import Job
    from tfjob_magic.core.node import Node


def lacking(job: Job, nodes: Sequence[Node]) -> tuple[str, ...]:
    """Say what there is of what is asked: `2 of 144 cores`; empty where nothing is short."""
    flavor = job.flavor
    short = []
    named = {core for node in nodes for core in node.capacity.cores}
    cpus = len(named) or sum(node.capacity.cpus for node in nodes)
    if cpus < job.nodes * flavor.cpus:
        short.append(f"{cpus} of {job.nodes * flavor.cpus} cores")
    memory = sum(node.capacity.memory_mib for node in nodes)
    if memory < job.nodes * flavor.memory_mib:
        short.append(f"{gigabytes(memory)} of {gigabytes(job.nodes * flavor.memory_mib)} memory")
    if flavor.accelerator:
        devices = sum(node.capacity.accelerators for node in nodes)
        asked = f"{job.nodes * flavor.accelerators} {flavor.accelerator}"
        kinds = {node.capacity.accelerator for node in nodes if node.capacity.accelerator}
        if not all(same_kind(flavor.accelerator, kind) for kind in kinds):
            short.append(f"{devices} {', '.join(sorted(kinds))} in place of {asked}")
        elif devices < job.nodes * flavor.accelerators:
            short.append(f"{devices} of {asked}")
    return tuple(short)


def note(job: Job, nodes: Sequence[Node], short: Sequence[str]) -> str:
    """Tell a person that the run is a rehearsal, and of what."""
    named = [core for node in nodes for core in node.capacity.cores]
    tasks = Counter(seat.node for seat in job.seats)
    crowded = len(named) > len(set(named)) or any(
        node.capacity.cpus < tasks[index] for index, node in enumerate(nodes)
    )
    return (
        f"Rehearsal: for {_asked(job)} this machine has {_listed(short)}. Roles, flags and "
        f"variables are the real ones; shares are scaled down{', tasks share cores' * crowded}, "
        "memory is not enforced."
    )


def refusal(job: Job, short: Sequence[str]) -> str:
    """Say why `--strict` does not start it."""
    return (
        f"--strict: for {_asked(job)} this machine has only {_listed(short)}; "
        "leave --strict out to rehearse, or ask for less with --nodes and --flavor"
    )


def gigabytes(mib: int) -> str:
    """Write memory for a person: `512 GB`, `11.7 GB`, `800 MB`."""
    if mib < 1024:  # noqa: PLR2004 - MiB in a GiB
        return f"{mib} MB"
    return f"{mib / 1024:.1f}".removesuffix(".0") + " GB"


def _asked(job: Job) -> str:
    return f"{job.nodes} node{'s' if job.nodes > 1 else ''} of {job.flavor.name}"


def _listed(parts: Sequence[str]) -> str:
    *front, last = parts
    return f"{', '.join(front)} and {last}" if front else last
