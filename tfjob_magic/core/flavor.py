"""Flavors: named resources of one node (contract R7)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Flavor:
    """The resources of one node.

    `accelerators` counts devices of the kind `accelerator` (None on a CPU flavor, where the count
    is 0); `memory_mib` is in MiB (512 GB = 524288).
    """

    name: str
    accelerator: str | None
    accelerators: int
    cpus: int
    memory_mib: int
