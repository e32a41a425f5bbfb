"""The variables of a task (the contract's table), and the environment its process gets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfjob_magic.core.plan import Task
    from tfjob_magic.core.shares import Role, Share

RUN_ID = "TFJOB_RUN"

CONTRACT = (
    "VC_TASK_INDEX",
    "TF_PS_HOSTS",
    "TF_WORKER_HOSTS",
    "MA_TASK_NAME",
    "VC_PS_HOSTS",
    "VC_WORKER_HOSTS",
    "VC_PS_NUM",
    "VC_WORKER_NUM",
    "MA_NUM_HOSTS",
    "MA_NUM_GPUS",
    "MA_JOB_DIR",
    "MA_CURRENT_IP",
    "MA_CURRENT_INSTANCE_NAME",
    "MA_VJ_NAME",
    "MA_LOG_DIR",
    "TF_CONFIG",
    "PYTHONUNBUFFERED",
)

# The names that belong to us. A user's variable of one of them is refused, the caller's is dropped.
_OURS = (*CONTRACT, RUN_ID, "TFJOB_RUN_DIR")  # the last is the supervisor's
_OUR_PREFIXES = ("MA_", "VC_")
WORKERS_ALONE = "CUDA_VISIBLE_DEVICES"  # the user's own reaches workers only (contract R4)

_MOST_WAITING = 16  # threads; a rehearsal of many workers has all of its tasks on one machine
_NOT_THE_JOBS = ("JPY_", "JUPYTER")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
_INLINE_PLOTS = ("module://matplotlib_inline", "module://ipykernel")


@dataclass(frozen=True)
class Cluster:
    """What all tasks of a run are told alike: the host lists, and `TF_CONFIG`'s cluster as JSON.

    For a run of a single task `config` is None, and there are no host lists (contract N1). A role
    without tasks has no host list either: an empty one would be read as a host.
    """

    lists: Mapping[str, str]
    config: str | None


def reason_to_refuse(name: str) -> str | None:
    """Say, after a variable's name, why it cannot be the user's own; None where it can be."""
    if name in _OURS:
        return "is set by the service for every task"
    if name.startswith(_OUR_PREFIXES):
        return f"begins with {name[:3]}, which belongs to the service"
    return None


def cluster(addresses: Mapping[Role, Sequence[str]]) -> Cluster:
    """Describe the cluster of `addresses`, `host:port` by role; none for a run of a single task.

    An evaluator is a task, but no part of TensorFlow's cluster.
    """
    if not addresses:
        return Cluster({"VC_WORKER_NUM": "1"}, None)
    lists = {}
    listed: tuple[Role, ...] = ("ps", "worker")
    for role in listed:
        here = addresses.get(role, ())
        lists[f"VC_{role.upper()}_NUM"] = str(len(here))
        if here:
            lists[f"TF_{role.upper()}_HOSTS"] = ",".join(here)
            lists[f"VC_{role.upper()}_HOSTS"] = ",".join(_host(address) for address in here)
    order: tuple[Role, ...] = ("chief", "ps", "worker")
    config = {role: list(addresses[role]) for role in order if addresses.get(role)}
    return Cluster(lists, json.dumps(config))


def variables(
    role: Role,
    index: int,
    granted: Share,
    cluster: Cluster,
    *,
    run_id: str,
    nodes: int,
    address: str,
    job_dir: str,
    log_dir: str,
) -> dict[str, str]:
    """Make a task's variables: the contract's and the launcher's. `address` is the node's.

    TensorFlow computes with as many threads as there are granted cores (intra-op). Operations
    that wait for another task hold an inter-op thread: their number is a matter of progress, not a
    share of the machine. With fewer of them than there are waits, a ParameterServerStrategy hangs
    for ever, so where there is a cluster each task has one for every worker and one more, as
    TensorFlow's tutorial asks for small machines.
    """
    env = {"VC_TASK_INDEX": str(index), "MA_TASK_NAME": role, **cluster.lists}
    if cluster.config is not None:
        task = json.dumps({"type": role, "index": index})
        env["TF_CONFIG"] = f'{{"cluster": {cluster.config}, "task": {task}}}'
    env |= {
        "MA_NUM_HOSTS": str(nodes),
        "MA_NUM_GPUS": str(granted.accelerators),
        "MA_JOB_DIR": job_dir,
        "MA_CURRENT_IP": address,
        "MA_CURRENT_INSTANCE_NAME": f"{run_id}-{role}-{index}",
        "MA_VJ_NAME": run_id,
        "MA_LOG_DIR": log_dir,
        "PYTHONUNBUFFERED": "1",
        WORKERS_ALONE: ",".join(granted.devices) or "-1",  # contract R9; '' opens one
        "TF_NUM_INTRAOP_THREADS": str(granted.cpus),
        "TF_NUM_INTEROP_THREADS": str(max(granted.cpus, _waiting_threads(cluster))),
        RUN_ID: run_id,
    }
    return env


def _waiting_threads(cluster: Cluster) -> int:
    """How many inter-op threads a task needs at least to go on while others make it wait."""
    if cluster.config is None:
        return 1
    return min(max(2, int(cluster.lists["VC_WORKER_NUM"]) + 1), _MOST_WAITING)


def environment(base: Mapping[str, str], task: Task, own: Mapping[str, str]) -> dict[str, str]:
    """Make the environment of a task's process out of the caller's (`base`) and the user's `own`.

    The caller's comes less Jupyter's variables, another job's (`TF_CONFIG` left behind in a kernel)
    and a plotting backend that only a kernel has. The user's own win over the launcher's
    (`CUDA_VISIBLE_DEVICES` for workers alone), never over the contract's. Where a proxy is set, the
    run's hosts are exempt from it: gRPC would ask the proxy even for localhost.
    """
    env = {
        name: value
        for name, value in base.items()
        if not name.startswith(_NOT_THE_JOBS)
        and reason_to_refuse(name) is None
        and name != "TFJOB_SOCKET"
        and not (name == "MPLBACKEND" and value.startswith(_INLINE_PLOTS))
    }
    env |= task.env
    env |= {
        name: value
        for name, value in own.items()
        if reason_to_refuse(name) is None and (name != WORKERS_ALONE or task.role == "worker")
    }
    if any(env.get(name) or env.get(name.upper()) for name in _PROXIES):
        env |= _exempt(env, _hosts(task))
    return env


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def _hosts(task: Task) -> list[str]:
    """The hosts of the task's run, each once."""
    cluster = json.loads(task.env.get("TF_CONFIG", '{"cluster": {}}'))["cluster"]
    return list(dict.fromkeys(_host(at) for addresses in cluster.values() for at in addresses))


def _exempt(env: Mapping[str, str], hosts: list[str]) -> dict[str, str]:
    """`no_proxy` and its kin, extended by `hosts`.

    Programs read one of the three and not the others, so that each holds what all of them held.
    A lone `*` exempts everything, and means nothing in a list: it stays alone where it is known,
    which is not in gRPC.
    """
    names = ("no_proxy", "NO_PROXY", "no_grpc_proxy")
    held = [entry.strip() for name in names for entry in env.get(name, "").split(",")]
    entries = ",".join(dict.fromkeys([*filter(None, held), "localhost", "127.0.0.1", *hosts]))
    exempt = "*" if "*" in held else entries
    return {"no_proxy": exempt, "NO_PROXY": exempt, "no_grpc_proxy": entries}
