"""A Plan: a Job resolved on Nodes. Printable, no side effects."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tfjob_magic.core import flags as cluster_flags
from tfjob_magic.core import network as networks
from tfjob_magic.core import rehearsal, sizes
from tfjob_magic.core.flavor import Flavor
from tfjob_magic.core.job import Job
from tfjob_magic.core.network import Network
from tfjob_magic.core.node import Nic, Node
from tfjob_magic.core.shares import Role, Seat, Share, split
from tfjob_magic.core.variables import WORKERS_ALONE, variables
from tfjob_magic.core.variables import cluster as describe
from tfjob_magic.errors import InvalidJobError, Problem, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfjob_magic.core.flags import Flags
    from tfjob_magic.core.variables import Cluster

MASK = "***"
_BESIDE_A_LIST = 100  # bytes: the variable's name, and the task in TF_CONFIG


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


def count_tasks(job: Job) -> int:
    """How many tasks the job has; each needs a port where there are more than one."""
    return len(job.seats)


def plan(
    job: Job,
    nodes: Sequence[Node],
    ports: Sequence[int],
    run_id: str,
    *,
    log_dir: str,
    nics: Sequence[Nic] = (),
    flags: Flags = cluster_flags.ALL,
) -> Plan:
    """Resolve a job on nodes.

    `ports` are given to the tasks in their order (one for each of `count_tasks`, none needed for a
    single task), `log_dir` becomes MA_LOG_DIR, `flags` are the cluster flags that the boot file
    takes. Raises UnavailableError for a rehearsal that `--strict` forbids (contract R8), and
    InvalidJobError where the host lists are longer than a variable can be.
    """
    lacking = rehearsal.lacking(job, nodes)
    if lacking and job.strict:
        raise UnavailableError(rehearsal.refusal(job, lacking))
    seats = job.seats
    network = networks.choose(job, nics)
    asked_of_node = Share(
        cpus=job.flavor.cpus,
        memory_mib=job.flavor.memory_mib,
        accelerators=job.flavor.accelerators,
        accelerator=job.flavor.accelerator,
    )
    addresses: dict[Seat, str] = {}
    if len(seats) > 1:
        for seat, port in zip(seats, ports[: len(seats)], strict=True):
            addresses[seat] = f"{nodes[seat.node].address}:{port}"
    by_role: dict[Role, list[str]] = {}
    for seat, address in addresses.items():
        by_role.setdefault(seat.role, []).append(address)
    cluster = describe(by_role)
    _check_length(cluster, len(seats))
    asked = _by_seat(seats, [asked_of_node] * job.nodes)
    granted = _by_seat(seats, [node.capacity for node in nodes])
    tasks = []
    for seat in seats:
        env = variables(
            seat.role,
            seat.index,
            granted[seat],
            cluster,
            run_id=run_id,
            nodes=job.nodes,
            address=nodes[seat.node].address,
            job_dir=job.job_dir,
            log_dir=log_dir,
        )
        given = _cluster_arguments(flags, env) if by_role else ()
        tasks.append(
            Task(
                role=seat.role,
                index=seat.index,
                node=seat.node,
                asked=asked[seat],
                granted=granted[seat],
                address=addresses.get(seat),
                cwd=job.cwd,
                argv=(job.python, job.boot_file, *given, *job.parameters),
                env=env,
                log=f"{seat.role}-{seat.index}.log",
            )
        )
    return Plan(
        run=run_id,
        job=job,
        network=network,
        rehearsal=bool(lacking),
        nodes=tuple(
            PlannedNode(index, node.address, asked_of_node, node.capacity)
            for index, node in enumerate(nodes)
        ),
        tasks=tuple(tasks),
        notes=(*_notes(job, nodes, network, lacking), *(flags.notes if by_role else ())),
    )


def to_json(plan: Plan, *, masked: bool = True) -> dict[str, Any]:
    """Make the plan's JSON; the values of the user's own variables are masked unless asked not to.

    What is asked has no `cores` and `devices`: nobody asks for particular ones.
    """
    job = asdict(plan.job)
    job["parameters"] = list(plan.job.parameters)
    if masked:
        job["env"] = dict.fromkeys(plan.job.env, MASK)
    return {
        "run": plan.run,
        "network": asdict(plan.network),
        "rehearsal": plan.rehearsal,
        "nodes": [
            {
                "index": node.index,
                "address": node.address,
                "asked": _asked(node.asked),
                "granted": _granted(node.granted),
            }
            for node in plan.nodes
        ],
        "tasks": [
            {
                "name": task.name,
                "role": task.role,
                "index": task.index,
                "node": task.node,
                "asked": _asked(task.asked),
                "granted": _granted(task.granted),
                "address": task.address,
                "cwd": task.cwd,
                "argv": list(task.argv),
                "env": dict(task.env),
                "log": task.log,
            }
            for task in plan.tasks
        ],
        "notes": list(plan.notes),
        "job": job,
    }


def from_json(raw: Mapping[str, Any]) -> Plan:
    """Read what `to_json` made; masked values stay masked."""
    nic = raw["network"]["nic"]
    return Plan(
        run=raw["run"],
        job=_job(raw["job"]),
        network=Network(
            raw["network"]["mode"], raw["network"]["reason"], Nic(**nic) if nic else None
        ),
        rehearsal=raw["rehearsal"],
        nodes=tuple(
            PlannedNode(
                node["index"], node["address"], _share(node["asked"]), _share(node["granted"])
            )
            for node in raw["nodes"]
        ),
        tasks=tuple(
            Task(
                role=task["role"],
                index=task["index"],
                node=task["node"],
                asked=_share(task["asked"]),
                granted=_share(task["granted"]),
                address=task["address"],
                cwd=task["cwd"],
                argv=tuple(task["argv"]),
                env=task["env"],
                log=task["log"],
            )
            for task in raw["tasks"]
        ),
        notes=tuple(raw["notes"]),
    )


def _by_seat(seats: Sequence[Seat], capacities: Sequence[Share]) -> dict[Seat, Share]:
    """What each task gets of its node."""
    given: dict[Seat, Share] = {}
    sitting: list[list[Seat]] = [[] for _ in capacities]
    for seat in seats:
        sitting[seat.node].append(seat)
    for capacity, here in zip(capacities, sitting, strict=True):
        given.update(zip(here, split(capacity, [seat.role for seat in here]), strict=True))
    return given


def _check_length(cluster: Cluster, tasks: int) -> None:
    longest = max(map(sizes.size, (*cluster.lists.values(), cluster.config or "")))
    if longest + _BESIDE_A_LIST > sizes.LONGEST:
        message = (
            f"the addresses of {tasks} tasks take {longest} bytes, and one variable has "
            f"{sizes.LONGEST} at most; ask for fewer --nodes, --ps or --workers"
        )
        raise InvalidJobError([Problem("nodes", message)])


def _cluster_arguments(flags: Flags, env: Mapping[str, str]) -> tuple[str, ...]:
    """The flags with their values (contract C4); a list that has no host is left out."""
    sources = {
        "--task_index": "VC_TASK_INDEX",
        "--ps_hosts": "TF_PS_HOSTS",
        "--PS_hosts": "TF_PS_HOSTS",
        "--worker_hosts": "TF_WORKER_HOSTS",
        "--job_name": "MA_TASK_NAME",
        "--task_name": "MA_TASK_NAME",
    }
    return tuple(
        part for flag in flags.passed if sources[flag] in env for part in (flag, env[sources[flag]])
    )


def _notes(
    job: Job, nodes: Sequence[Node], network: Network, lacking: Sequence[str]
) -> tuple[str, ...]:
    notes = []
    if lacking:
        notes.append(rehearsal.note(job, nodes, lacking))
    if network.mode != "none" and all(node.address.startswith("127.") for node in nodes):
        if network.mode == "container" and len({node.address for node in nodes}) == len(nodes):
            notes.append(
                "On this machine the container network is one loopback address per node, "
                f"from {nodes[0].address} on."
            )
        else:
            notes.append("All nodes are this one host, 127.0.0.1; tasks differ by their ports.")
    working = {seat.node for seat in job.seats if seat.role == "worker"}
    if job.flavor.accelerators and len(working) < job.nodes:
        idle = [str(index) for index in range(job.nodes) if index not in working]
        notes.append(
            f"No worker sits on node {', '.join(idle)}: accelerators there stay idle, "
            "since only workers get them."
        )
    if WORKERS_ALONE in job.env and any(seat.role != "worker" for seat in job.seats):
        notes.append(f"--env {WORKERS_ALONE} goes to the workers only; a PS keeps -1.")
    return tuple(notes)


def _asked(share: Share) -> dict[str, Any]:
    granted = _granted(share)
    return {field: granted[field] for field in granted if field not in {"cores", "devices"}}


def _granted(share: Share) -> dict[str, Any]:
    return {**asdict(share), "cores": list(share.cores), "devices": list(share.devices)}


def _job(raw: Mapping[str, Any]) -> Job:
    made = {"flavor": Flavor(**raw["flavor"]), "parameters": tuple(raw["parameters"])}
    return Job(**{**raw, **made})


def _share(raw: Mapping[str, Any]) -> Share:
    return Share(
        cpus=raw["cpus"],
        memory_mib=raw["memory_mib"],
        accelerators=raw["accelerators"],
        accelerator=raw["accelerator"],
        cores=tuple(raw.get("cores", ())),
        devices=tuple(raw.get("devices", ())),
    )
