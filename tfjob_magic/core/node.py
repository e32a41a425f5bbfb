"""Nodes: hosts' capacities as values, and how one machine is carved into several of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tfjob_magic.core import network
from tfjob_magic.core.shares import Share

if TYPE_CHECKING:
    from tfjob_magic.core.job import Job


@dataclass(frozen=True)
class Nic:
    """A fast network card, as read from the machine: bandwidth in Gbit/s."""

    type: Literal["roce", "infiniband"]
    device: str
    gbps: int | None


@dataclass(frozen=True)
class Node:
    """One host's capacity as a value, given to `plan`; several may live on one machine.

    `address` is the host part of its tasks' addresses. `capacity` is what the node really has for
    this run: less than the flavor makes the run a rehearsal (contract R8).
    """

    address: str
    capacity: Share


@dataclass(frozen=True)
class Device:
    """One accelerator of the machine: the id that CUDA_VISIBLE_DEVICES takes, and its kind."""

    id: str
    kind: str
    memory_mib: int | None


@dataclass(frozen=True)
class Machine:
    """What this machine has for a new run, as a value.

    `cores` and `devices` come in the order in which they should be given out (free ones first,
    see the ledger); devices that another run holds are left out. Memory in MiB.
    """

    cores: tuple[int, ...]
    memory_mib: int
    devices: tuple[Device, ...]
    nics: tuple[Nic, ...]


def carve(machine: Machine, job: Job, *, one_address: bool = False) -> tuple[Node, ...]:
    """Carve one machine into the job's nodes.

    Each node gets what the flavor asks while there is enough for all; what is short is scaled down
    evenly (contract R8): cores and memory over the nodes, devices over the workers, worker-0 first.
    Where there are fewer cores than nodes, nodes share cores in turn.

    In container mode each node has a loopback address of its own, in host mode all are one host;
    `one_address` is for a system that has no loopback address but 127.0.0.1 (macOS).
    """
    apart = network.choose(job, machine.nics).mode == "container" and not one_address
    devices = _deal_devices(machine, job)
    nodes = []
    for index, cores in enumerate(_deal_cores(machine.cores, job)):
        capacity = Share(
            cpus=len(cores),
            memory_mib=min(job.flavor.memory_mib, machine.memory_mib // job.nodes),
            accelerators=len(devices[index]),
            accelerator=devices[index][0].kind if devices[index] else None,
            cores=cores,
            devices=tuple(device.id for device in devices[index]),
        )
        nodes.append(Node(loopback(index) if apart else "127.0.0.1", capacity))
    return tuple(nodes)


def loopback(node: int) -> str:
    """Give node 0, 1, 2, ... the addresses 127.0.0.2, 127.0.0.3, ..., continued in 127.0.1.1."""
    block, last = divmod(node + 1, 254)
    return f"127.0.{block}.{last + 1}"


def same_kind(asked: str, found: str) -> bool:
    """Whether a device is of the kind asked for: `V100` names a `Tesla V100-SXM2-16GB`."""
    return _words(asked) <= _words(found)


def _words(kind: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", kind.lower())) - {"nvidia", "tesla"}


def _deal_cores(cores: tuple[int, ...], job: Job) -> list[tuple[int, ...]]:
    if len(cores) < job.nodes:
        return [(cores[index % len(cores)],) for index in range(job.nodes)]
    each, rest = divmod(len(cores), job.nodes)
    dealt = []
    start = 0
    for index in range(job.nodes):
        size = min(job.flavor.cpus, each + (index < rest))
        dealt.append(cores[start : start + size])
        start += size
    return dealt


def _deal_devices(machine: Machine, job: Job) -> list[tuple[Device, ...]]:
    """Deal devices to the nodes by one to every worker in turn, the kind asked for first."""
    kind = job.flavor.accelerator
    dealt = [0] * job.nodes
    if kind is None:
        return [()] * job.nodes
    devices = sorted(machine.devices, key=lambda device: not same_kind(kind, device.kind))
    workers = [seat.node for seat in job.seats if seat.role == "worker"]
    left = len(devices)
    while left:
        takers = [node for node in workers if dealt[node] < job.flavor.accelerators]
        if not takers:
            break
        for node in takers[:left]:
            if dealt[node] < job.flavor.accelerators:
                dealt[node] += 1
                left -= 1
    slices = []
    start = 0
    for size in dealt:
        slices.append(tuple(devices[start : start + size]))
        start += size
    return slices
