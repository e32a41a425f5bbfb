"""How the tasks of a run reach each other (contract N1 to N6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_magic.core.job import Job
    from tfjob_magic.core.node import Nic

Mode = Literal["none", "container", "host"]

_KIND = {"roce": "RoCE", "infiniband": "InfiniBand"}


@dataclass(frozen=True)
class Network:
    """How the tasks of a run reach each other, and the one-sentence reason (contract N1 to N6)."""

    mode: Mode
    reason: str
    nic: Nic | None


def choose(job: Job, nics: Sequence[Nic]) -> Network:
    """Choose the network of a job whose nodes have `nics`.

    `--nic` overrides what was found (its card is named only if it was found, contract N5), and
    `--network` overrides the rule.
    """
    if len(job.seats) == 1:
        return Network("none", "The run has a single task, which needs no network.", None)
    kind = job.nic if job.nic in _KIND else None
    candidates = [nic for nic in nics if job.nic == "auto" or nic.type == kind]
    nic = max(candidates, key=lambda nic: nic.gbps or 0, default=None)
    if job.nic == "auto" and nic is not None:
        kind = nic.type
    if job.network != "auto":
        return Network(job.network, f"--network {job.network} asks for it.", nic)
    if job.pool == "shared":
        return Network("container", "Nodes of a shared pool use the container network.", nic)
    if kind is None:
        reason = "Nodes of a dedicated pool without RoCE or InfiniBand use the container network."
        return Network("container", reason, None)
    mode: Mode = "host" if kind == "roce" else "container"
    reason = f"Nodes of a dedicated pool with {_KIND[kind]} NICs use the {mode} network."
    return Network(mode, reason, nic)
