"""Who sits where, and how the tasks of a node share it (contract R1 to R6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")
Role = Literal["ps", "chief", "worker", "evaluator"]

# Who gets what does not divide evenly, and a core of one's own where there are too few.
_REMAINDER: tuple[Role, ...] = ("worker", "ps", "chief", "evaluator")


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
class Seat:
    """A task's place: its role, its index within the role, and the node it sits on."""

    role: Role
    index: int
    node: int


def counts(nodes: int, ps: int | None, workers: int | None, *, chief: bool) -> tuple[int, int]:
    """Say how many PS and workers a job has.

    One node runs one process (contract R1), more nodes run one PS and one worker each (R2); a
    chief needs a PS and a worker to coordinate on a single node too. What the user says wins.
    """
    usual_ps = nodes if nodes > 1 or chief else 0
    return (usual_ps if ps is None else ps, nodes if workers is None else workers)


def deal(nodes: int, ps: int, workers: int, *, chief: bool, evaluator: bool) -> tuple[Seat, ...]:
    """Deal the tasks to the nodes in turn; chief and evaluator sit on node 0.

    The order is the one in which tasks start: what others wait for comes first.
    """
    seats = [Seat("ps", index, index % nodes) for index in range(ps)]
    if chief:
        seats.append(Seat("chief", 0, 0))
    seats += [Seat("worker", index, index % nodes) for index in range(workers)]
    if evaluator:
        seats.append(Seat("evaluator", 0, 0))
    return tuple(seats)


def split(whole: Share, roles: Sequence[Role]) -> tuple[Share, ...]:
    """Split a node among its tasks, in their order.

    Cores and memory are halved between PS and worker (contract R3), shared equally among more;
    what does not divide goes to workers first (R6). Accelerators go to workers alone (R4). Where a
    node has fewer cores than tasks, which only a rehearsal has (R8), tasks share cores.
    """
    seats = len(roles)
    cpus = _equal(whole.cpus, roles)
    memory = _equal(whole.memory_mib, roles)
    devices = iter(_even(whole.accelerators, roles.count("worker")))
    accelerators = [next(devices) if role == "worker" else 0 for role in roles]
    if whole.cpus < seats:
        cpus = [1] * seats
        turns = {seat: turn for turn, seat in enumerate(_by_remainder(roles))}
        cores: list[tuple[int, ...]] = [
            (whole.cores[turns[seat] % len(whole.cores)],) if whole.cores else ()
            for seat in range(seats)
        ]
    else:
        cores = _slices(whole.cores, cpus)
    return tuple(
        Share(
            cpus=cpus[seat],
            memory_mib=memory[seat],
            accelerators=accelerators[seat],
            accelerator=whole.accelerator if accelerators[seat] else None,
            cores=cores[seat],
            devices=given,
        )
        for seat, given in enumerate(_slices(whole.devices, accelerators))
    )


def _equal(total: int, roles: Sequence[Role]) -> list[int]:
    """Equal parts, the remainder one by one to workers first."""
    parts = [0] * len(roles)
    for part, seat in zip(_even(total, len(roles)), _by_remainder(roles), strict=True):
        parts[seat] = part
    return parts


def _by_remainder(roles: Sequence[Role]) -> list[int]:
    """The seats in the order in which a remainder is dealt."""
    return sorted(range(len(roles)), key=lambda seat: _REMAINDER.index(roles[seat]))


def _even(total: int, parts: int) -> list[int]:
    """`total` in `parts` parts that differ by one at most, the larger ones first."""
    if not parts:
        return []
    each, rest = divmod(total, parts)
    return [each + (part < rest) for part in range(parts)]


def _slices(items: tuple[T, ...], sizes: Sequence[int]) -> list[tuple[T, ...]]:
    """Cut `items` into consecutive pieces; where nothing is named, the pieces are empty."""
    pieces = []
    start = 0
    for size in sizes:
        pieces.append(items[start : start + size])
        start += size
    return pieces
