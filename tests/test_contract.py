"""The contract with ModelArts, one test per row of docs/modelarts.md, each named by its row.

Every test acts on the real functions, and the rows about a job's end on real processes. The details
of a row (odd spellings, refusals, corner cases) are in the test file of the module that keeps it.
"""

import json
import random
import re
from pathlib import Path

import pytest
from conftest import over, whole_logs

from tfjob_magic.core import flags, flavor, lifecycle
from tfjob_magic.core.events import Supervised, TaskExited, TaskStarted
from tfjob_magic.core.job import parse
from tfjob_magic.core.node import Device, Machine, Nic, carve
from tfjob_magic.core.plan import count_tasks, plan, to_json
from tfjob_magic.core.variables import CONTRACT
from tfjob_magic.errors import InvalidJobError, UnavailableError
from tfjob_magic.machine import look
from tfjob_magic.service.inprocess import Service
from tfjob_magic.store.ledger import Ledger
from tfjob_magic.store.ports import hold

PAGE = Path(__file__).resolve().parent.parent / "docs" / "modelarts.md"
CARDS = tuple(Device(f"GPU-{number:02}", "Tesla V100", 32768) for number in range(16))
CLUSTER = Machine(tuple(range(144)), 2 * 524288, CARDS, ())  # holds two nodes of v100x8
SMALL = Machine((0, 1), 24000, CARDS[:1], ())
ROCE, INFINIBAND = Nic("roce", "mlx5_0", 25), Nic("infiniband", "mlx5_1", 100)
CLUSTER_FLAGS = ["--task_index", "--ps_hosts", "--worker_hosts", "--job_name"]


def planned(machine=CLUSTER, nics=(), chosen=flags.ALL, **fields):
    """Plan a job of `v100x8` nodes; gives what `tfjob plan --json` prints."""
    raw = {
        "name": "moons",
        "job_dir": "/home/jo/user-job-dir",
        "code_dir": "moons",
        "flavor": "v100x8",
        "python": "/opt/tf/bin/python",
        "parameters": ["--epochs", "5"],
    }
    job = parse({**raw, **fields}, {})
    ports = range(5000, 5000 + count_tasks(job))
    made = plan(
        job, carve(machine, job), ports, "moons-1", log_dir="/logs", nics=nics, flags=chosen
    )
    return to_json(made)


def tasks(**fields):
    return {task["name"]: task for task in planned(**fields)["tasks"]}


def granted(task):
    share = task["granted"]
    return share["cpus"], share["memory_mib"], share["accelerators"]


# Resources


def test_r1_one_node():
    """On one node a single process has all accelerators, cores and memory."""
    (worker,) = planned()["tasks"]
    assert worker["role"] == "worker"
    assert granted(worker) == (72, 524288, 8)


@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_r2_several_nodes(nodes):
    """On several nodes each has one PS and one worker."""
    seats = [(task["node"], task["role"]) for task in planned(nodes=nodes)["tasks"]]
    assert sorted(seats) == [(node, role) for node in range(nodes) for role in ("ps", "worker")]


def test_r3_halves():
    """The node's CPU and memory are halved: 72 cores and 512 GB give 36 and 256 GB to each."""
    two = tasks(nodes=2)
    assert granted(two["ps-1"]) == (36, 262144, 0)
    assert granted(two["worker-1"]) == (36, 262144, 8)


def test_r4_accelerators():
    """A PS never gets an accelerator, a worker all of the node's; a CPU flavor has none."""
    for task in planned(nodes=2)["tasks"]:
        assert task["granted"]["accelerators"] == (8 if task["role"] == "worker" else 0)
    for task in planned(nodes=2, flavor="cpu-8c32g")["tasks"]:
        assert granted(task) == (4, 16384, 0)


def test_r5_disk():
    """The PS and the worker of a node share its disk: they run in the same directory."""
    two = tasks(nodes=2)
    assert two["ps-0"]["cwd"] == two["worker-0"]["cwd"]
    assert two["ps-0"]["env"]["MA_JOB_DIR"] == two["worker-0"]["env"]["MA_JOB_DIR"]


def test_r6_odd_ones():
    """An odd core or MiB goes to the worker; one core cannot hold a PS and a worker."""
    two = tasks(nodes=2, flavor="CPU: 7 cores | Memory: 16383 MB")
    assert granted(two["ps-0"])[:2] == (3, 8191)
    assert granted(two["worker-0"])[:2] == (4, 8192)
    with pytest.raises(InvalidJobError, match="--flavor"):
        planned(nodes=2, flavor="cpu-1c4g")


def test_r7_flavors():
    """A flavor is a name of the table, `cpu-8c32g`, the console's text, or the user's own."""
    named = flavor.parse("v100x8", {})
    assert flavor.parse("GPU: 8*NVIDIA-V100 | CPU: 72 cores | Memory: 512 GB", {}) == named
    assert flavor.parse("GPU: 8*V100|CPU: 72 cores|Memory: 512GB", {}) == named
    assert (named.cpus, named.memory_mib, named.accelerators) == (72, 524288, 8)
    small = flavor.parse("cpu-8c32g", {})
    assert (small.cpus, small.memory_mib, small.accelerators) == (8, 32768, 0)
    assert flavor.parse("mine", {"mine": small}) is small
    with pytest.raises(InvalidJobError, match="v100x8"):
        flavor.parse("v10x8", {})


def test_r8_rehearsal():
    """A machine that has less rehearses, and shows asked beside granted; `--strict` refuses."""
    made = planned(SMALL, nodes=2)
    assert made["rehearsal"]
    assert not planned(CLUSTER, nodes=2)["rehearsal"]
    by_name = {task["name"]: task for task in made["tasks"]}
    assert {task["asked"]["cpus"] for task in made["tasks"]} == {36}
    assert {task["granted"]["cpus"] for task in made["tasks"]} == {1}
    assert by_name["worker-0"]["granted"]["devices"] == ["GPU-00"]
    assert by_name["worker-0"]["env"]["MA_NUM_GPUS"] == "1"
    assert by_name["worker-1"]["env"]["MA_NUM_GPUS"] == "0"
    with pytest.raises(UnavailableError, match="--strict"):
        planned(SMALL, nodes=2, strict=True)


def test_r9_devices(tmp_path):
    """A PS sees no device, a worker its own; another run gets neither its devices nor its cores."""
    two = tasks(nodes=2)
    assert two["ps-0"]["env"]["CUDA_VISIBLE_DEVICES"] == "-1"
    of_workers = [two[f"worker-{index}"]["env"]["CUDA_VISIBLE_DEVICES"] for index in (0, 1)]
    assert ",".join(of_workers).split(",") == [card.id for card in CARDS]
    with Ledger(tmp_path / "ledger") as first:
        first.take(cores={0, 1}, devices={"GPU-00"})
        first.end_turn()
        with Ledger(tmp_path / "ledger") as second:
            left = second.order(CLUSTER)
    assert left.devices == CARDS[1:]
    assert left.cores[-2:] == (0, 1)


# Network


def test_n1_one_node():
    """One node has no network, no host lists, no TF_CONFIG and no cluster flags."""
    made = planned(nics=[ROCE], pool="dedicated")
    (worker,) = made["tasks"]
    assert (made["network"]["mode"], made["network"]["nic"]) == ("none", None)
    assert worker["address"] is None
    assert not {name for name in worker["env"] if name.endswith("_HOSTS")} - {"MA_NUM_HOSTS"}
    assert "TF_CONFIG" not in worker["env"]
    assert not set(CLUSTER_FLAGS) & set(worker["argv"])
    stays = {"VC_TASK_INDEX": "0", "MA_TASK_NAME": "worker", "MA_NUM_HOSTS": "1"}
    assert stays.items() <= worker["env"].items()
    assert {name for name in CONTRACT if name.startswith("MA_")} <= set(worker["env"])


def test_n2_shared_pool():
    """Several nodes of a shared pool use the container network."""
    assert planned(nodes=2, nics=[ROCE])["network"]["mode"] == "container"


def test_n3_roce():
    """A dedicated pool whose nodes have RoCE NICs uses the host network."""
    assert planned(nodes=2, nics=[ROCE], pool="dedicated")["network"]["mode"] == "host"


def test_n4_infiniband():
    """A dedicated pool whose nodes have InfiniBand NICs uses the container network."""
    network = planned(nodes=2, nics=[INFINIBAND], pool="dedicated")["network"]
    assert network["mode"] == "container"
    assert "InfiniBand" in network["reason"]


def test_n5_bandwidth():
    """The plan names the NIC between the nodes and its bandwidth, or none."""
    network = planned(nodes=2, nics=[INFINIBAND], pool="dedicated")["network"]
    assert network["nic"] == {"type": "infiniband", "device": "mlx5_1", "gbps": 100}
    assert planned(nodes=2)["network"]["nic"] is None


def test_n6_neither(tmp_path):
    """A dedicated pool with neither NIC: container; NICs are read from /sys; options override."""
    assert planned(nodes=2, pool="dedicated")["network"]["mode"] == "container"
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    for name, text in {
        "link_layer": "Ethernet",
        "rate": "25 Gb/sec (1X EDR)",
        "state": "4: ACTIVE",
    }.items():
        (port / name).write_text(f"{text}\n")
    nics = look(tmp_path).nics
    assert nics == (ROCE,)
    (port / "link_layer").write_text("InfiniBand\n")
    assert look(tmp_path).nics == (Nic("infiniband", "mlx5_0", 25),)
    found = {"nodes": 2, "pool": "dedicated", "nics": nics}
    assert planned(**found)["network"]["mode"] == "host"
    assert planned(**found, nic="none")["network"]["mode"] == "container"
    assert planned(**found, network="container")["network"]["mode"] == "container"
    assert planned(nodes=2, network="host")["network"]["mode"] == "host"


# Directories and command


def test_c1_python():
    """`python` is the interpreter that the job names."""
    assert {task["argv"][0] for task in planned(nodes=2)["tasks"]} == {"/opt/tf/bin/python"}


def test_c2_directories():
    """Tasks run in `<MA_JOB_DIR>/<code dir>`."""
    for task in planned(nodes=2)["tasks"]:
        assert task["env"]["MA_JOB_DIR"] == "/home/jo/user-job-dir"
        assert task["cwd"] == "/home/jo/user-job-dir/moons"


def test_c3_command_of_one_node():
    """One node: `python <boot file> <job parameters>`."""
    (worker,) = planned()["tasks"]
    assert worker["argv"] == ["/opt/tf/bin/python", "train.py", "--epochs", "5"]


def test_c4_command_of_several_nodes():
    """Several nodes: the four cluster flags too, with the values of the variables."""
    task = tasks(nodes=2)["ps-1"]
    given = dict(zip(task["argv"][2:10:2], task["argv"][3:10:2], strict=True))
    assert given == {
        "--task_index": task["env"]["VC_TASK_INDEX"],
        "--ps_hosts": task["env"]["TF_PS_HOSTS"],
        "--worker_hosts": task["env"]["TF_WORKER_HOSTS"],
        "--job_name": task["env"]["MA_TASK_NAME"],
    }


def test_c5_order_and_spelling():
    """The flags stand between boot file and parameters, in lower case unless declared otherwise."""
    argv = tasks(nodes=2)["ps-0"]["argv"]
    assert argv[1] == "train.py"
    assert argv[2:10:2] == CLUSTER_FLAGS
    assert argv[10:] == ["--epochs", "5"]
    declared = "import argparse\np = argparse.ArgumentParser()\np.add_argument('{}')\n"
    declared += "p.parse_known_args()\n"
    spelled = flags.choose("auto", "train.py", {"train.py": declared.format("--PS_hosts")})
    assert "--PS_hosts" in spelled.passed
    assert "--ps_hosts" not in spelled.passed
    named = flags.choose("auto", "train.py", {"train.py": declared.format("--task_name")})
    assert "--task_name" in named.passed
    assert "--task_name" not in flags.ALL.passed


def test_c6_flags_that_a_parser_refuses():
    """`auto` leaves out what the parser refuses, and says so; `all` passes all, `none` none."""
    strict = {"train.py": "import argparse\np = argparse.ArgumentParser()\n"}
    strict["train.py"] += "p.add_argument('--ps_hosts')\np.parse_args()\n"
    chosen = flags.choose("auto", "train.py", strict)
    assert chosen.passed == ("--ps_hosts",)
    (note,) = planned(nodes=2, chosen=chosen)["notes"][-1:]
    assert "--task_index" in note
    assert "ModelArts" in note
    assert flags.choose("all", "train.py", strict).passed == tuple(CLUSTER_FLAGS)
    assert flags.choose("none", "train.py", strict).passed == ()
    assert flags.choose("auto", "train.py", {"train.py": "print(1)"}) == flags.ALL


# Variables

HOSTS = "127.0.0.2,127.0.0.3"
VALUES = {
    "VC_TASK_INDEX": "1",
    "TF_PS_HOSTS": "127.0.0.2:5000,127.0.0.3:5001",
    "TF_WORKER_HOSTS": "127.0.0.2:5002,127.0.0.3:5003",
    "MA_TASK_NAME": "worker",
    "VC_PS_HOSTS": HOSTS,
    "VC_WORKER_HOSTS": HOSTS,
    "VC_PS_NUM": "2",
    "VC_WORKER_NUM": "2",
    "MA_NUM_HOSTS": "2",
    "MA_NUM_GPUS": "8",
    "MA_JOB_DIR": "/home/jo/user-job-dir",
    "MA_CURRENT_IP": "127.0.0.3",
    "MA_CURRENT_INSTANCE_NAME": "moons-1-worker-1",
    "MA_VJ_NAME": "moons-1",
    "MA_LOG_DIR": "/logs",
    "TF_CONFIG": {
        "cluster": {
            "ps": ["127.0.0.2:5000", "127.0.0.3:5001"],
            "worker": ["127.0.0.2:5002", "127.0.0.3:5003"],
        },
        "task": {"type": "worker", "index": 1},
    },
    "PYTHONUNBUFFERED": "1",
}


@pytest.mark.parametrize("name", VALUES)
def test_variable(name):
    """Each variable of the table has its value, here that of worker-1 of two nodes."""
    value = tasks(nodes=2)["worker-1"]["env"][name]
    assert (json.loads(value) if name == "TF_CONFIG" else value) == VALUES[name]


def test_variable_index_counts_within_the_role():
    """`VC_TASK_INDEX` counts within the role, so ps-0 and worker-0 are both 0."""
    two = tasks(nodes=2)
    assert two["ps-0"]["env"]["VC_TASK_INDEX"] == two["worker-0"]["env"]["VC_TASK_INDEX"] == "0"


def test_variable_ports():
    """Each port is random, and lies between 5000 and 10000."""
    chosen = set()
    for seed in range(20):
        with hold(4, random.Random(seed)) as held:
            assert all(5000 <= port <= 10000 for port in held.numbers)
            chosen.add(held.numbers)
    assert len(chosen) > 1


REFUSED = ["MA_MINE", "VC_MINE", "TF_CONFIG", "TF_PS_HOSTS", "TF_WORKER_HOSTS"]
REFUSED += ["TFJOB_RUN", "TFJOB_RUN_DIR", "PYTHONUNBUFFERED"]


@pytest.mark.parametrize("name", REFUSED)
def test_variable_of_the_service_cannot_be_the_users(name):
    """A user's variables may not begin with `MA_`, nor be one that the service sets."""
    with pytest.raises(InvalidJobError, match="--env"):
        planned(env={name: "1"})
    planned(env={"MINE": "1", "CUDA_VISIBLE_DEVICES": "0"})
    assert f"`{name.removesuffix('MINE')}`" in PAGE.read_text(encoding="utf-8")


# How a job ends

WAITS_AS_PS = """
import os, sys, time
if os.environ["MA_TASK_NAME"] == "ps":
    print("joined", flush=True)
    {ps}
print("trained", flush=True)
{worker}
"""


@pytest.fixture
def run(home, job):
    """Run two nodes to their end; gives the Run, and what its tasks printed."""

    def start(ps="time.sleep(600)", worker="pass"):
        service = Service(home)
        program = WAITS_AS_PS.format(ps=ps, worker=worker)
        ended = over(service, service.submit(job(program, nodes=2)).id)
        return ended, whole_logs(service, ended.id)

    return start


def test_e1_all_workers_exit_0(run):
    """The worker is the key task: all workers exit 0, and the job has succeeded."""
    ended, logs = run()
    assert ended.phase == "succeeded"
    assert logs["worker-0"] == logs["worker-1"] == b"trained\n"


def test_e2_a_ps_is_ended_after_the_workers(run):
    """A PS that never exits is ended after the workers, and counts as finished."""
    ended, _ = run()
    ps = [task for task in ended.tasks if task.role == "ps"]
    workers = [task for task in ended.tasks if task.role == "worker"]
    assert {(task.phase, task.code) for task in workers} == {("exited", 0)}
    assert {(task.phase, task.signal) for task in ps} == {("exited", 15)}
    assert ended.cause is None


def test_e2_a_ps_that_exits_0_is_no_alarm(run):
    """A PS that exits 0 before the workers are done is no alarm."""
    ended, _ = run(ps="sys.exit(0)", worker="time.sleep(0.3)")
    assert ended.phase == "succeeded"


def test_e3_the_first_failure_is_the_cause(run):
    """A task that fails fails the job; it is named with its last lines and its code in words."""
    ended, _ = run(worker="sys.exit(3) if os.environ['VC_TASK_INDEX'] == '1' else time.sleep(600)")
    assert ended.phase == "failed"
    assert ended.cause is not None
    assert ended.cause.task == "worker-1"
    assert "3" in ended.cause.words
    assert "trained" in ended.cause.lines
    assert all(task.phase == "exited" for task in ended.tasks)


def test_e5_defaults():
    """By default: shared pool, NIC found by looking, grace 10 s, no timeout."""
    job = planned()["job"]
    assert (job["pool"], job["nic"], job["grace"], job["timeout"]) == ("shared", "auto", 10, None)


# Beyond the documentation


def ended_by(made, key):
    """Tell the lifecycle that task `key` alone has ended; gives whom it asks to end."""
    state = lifecycle.begin({task["name"]: task["role"] for task in made["tasks"]}, 10.0, None)
    state, _ = lifecycle.advance(state, Supervised(1.0, pid=1))
    for name in state.tasks:
        state, _ = lifecycle.advance(state, TaskStarted(1.0, task=name, pid=2, attempt=1))
    _, actions = lifecycle.advance(state, TaskExited(2.0, key, attempt=1, code=0, signal=None))
    return {name for action in actions for name in getattr(action, "tasks", ())}


def test_beyond_chief():
    """`--chief` adds a coordinator, which is then the key task."""
    made = planned(nodes=2, chief=True)
    assert [task["role"] for task in made["tasks"]].count("chief") == 1
    config = json.loads(made["tasks"][0]["env"]["TF_CONFIG"])
    assert len(config["cluster"]["chief"]) == 1
    assert "worker-0" in ended_by(made, "chief-0")
    assert not ended_by(made, "worker-0")


def test_beyond_ps_0():
    """`--ps 0` gives workers only, each with its whole node."""
    made = planned(nodes=2, ps=0)
    assert [task["name"] for task in made["tasks"]] == ["worker-0", "worker-1"]
    assert {granted(task) for task in made["tasks"]} == {(72, 524288, 8)}


def test_beyond_evaluator():
    """`--evaluator` adds an evaluator; it is ended with the key task."""
    made = planned(nodes=1, ps=0, evaluator=True)
    assert "evaluator-0" in [task["name"] for task in made["tasks"]]
    assert "evaluator-0" in ended_by(made, "worker-0")


def test_beyond_ps_n_and_workers_n():
    """`--ps N` and `--workers N`: dealt to the nodes in turn, sharing a node equally."""
    made = planned(nodes=2, ps=1, workers=3)
    seats = {task["name"]: task["node"] for task in made["tasks"]}
    assert seats == {"ps-0": 0, "worker-0": 0, "worker-1": 1, "worker-2": 0}
    by_name = {task["name"]: task for task in made["tasks"]}
    assert granted(by_name["worker-1"]) == (72, 524288, 8)
    assert [granted(by_name[name])[0] for name in ("ps-0", "worker-0", "worker-2")] == [24] * 3
    assert [granted(by_name[name])[2] for name in ("ps-0", "worker-0", "worker-2")] == [0, 4, 4]


# The page


def test_the_page_has_exactly_the_rows_that_are_tested():
    rows = re.findall(r"^\| ([A-Z]\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    tested = {
        found[1].upper() for name in globals() if (found := re.match(r"test_([rnce]\d)_", name))
    }
    assert len(rows) == len(set(rows))
    assert set(rows) == tested


def test_the_page_has_exactly_the_variables_that_are_tested():
    section = PAGE.read_text(encoding="utf-8").partition("## Variables")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(listed) == sorted(VALUES) == sorted(CONTRACT)


def test_the_page_has_the_options_that_go_beyond():
    section = PAGE.read_text(encoding="utf-8").partition("## Beyond the documentation")[2]
    for option in ("--chief", "--ps 0", "--evaluator", "--ps N", "--workers N"):
        assert f"`{option}`" in section
