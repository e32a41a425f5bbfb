"""Nodes: hosts' capacities as values, and how one machine is carved into several of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Nic:
    """A fast network card, as read from the machine: bandwidth in Gbit/s."""

    type: Literal["roce", "infiniband"]
    device: str
    gbps: int | None


@dataclass(frozen=True)
class Share:
    """Resources of a node or a task; memory in MiB.

    `cores` and `devices` are the ids that were granted; they are empty in what is asked.
    """

    cpus: int
    memory_mib: int
    accelerators: int
    accelerator: str | None
    cores: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()


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
