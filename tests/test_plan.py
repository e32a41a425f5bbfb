"""A job resolved on nodes; goldens are byte-exact.

`TFJOB_WRITE_GOLDENS=1 pytest tests/test_plan.py` writes them anew: read the difference.
"""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_magic.core.flags import ALL, Flags
from tfjob_magic.core.flavor import Flavor
from tfjob_magic.core.job import parse
from tfjob_magic.core.node import Device, Machine, Nic, Node, carve
from tfjob_magic.core.plan import count_tasks, from_json, plan, to_json
from tfjob_magic.core.shares import Share
from tfjob_magic.drawing import draw
from tfjob_magic.errors import InvalidJobError, UnavailableError

GOLDENS = Path(__file__).parent / "goldens"
SMALL = Machine((0, 1), 24000, (), ())
BIG = Machine(
    tuple(range(160)),
    2 * 1024 * 1024,
    tuple(Device(f"GPU-{number:04x}", "Tesla V100-SXM2-32GB", 32768) for number in range(16)),
    (),
)


def with_nic(kind):
    return Machine(BIG.cores, BIG.memory_mib, BIG.devices, (Nic(kind, "mlx5_0", 100),))


def job(**fields):
    raw = {
        "name": "mnist",
        "job_dir": "/home/me/user-job-dir",
        "code_dir": "mnist",
        "flavor": "v100x8",
        "python": "/usr/bin/python3",
        "parameters": ["--epochs", "5"],
    }
    return parse({**raw, **fields}, {})


def planned(machine=SMALL, flags=ALL, **fields):
    asked = job(**fields)
    ports = [5000 + 7 * number for number in range(count_tasks(asked))]
    return plan(
        asked,
        carve(machine, asked),
        ports,
        "mnist-7f3k",
        log_dir="/home/me/.local/state/tfjob/runs/mnist-7f3k/logs",
        nics=machine.nics,
        flags=flags,
    )


CASES = {
    "two-nodes": (BIG, {"nodes": 2}),
    "rehearsal": (SMALL, {"nodes": 2}),
    "one-node": (BIG, {}),
    "chief": (BIG, {"nodes": 2, "chief": True, "evaluator": True}),
    "workers-only": (BIG, {"nodes": 2, "ps": 0}),
    "overrides": (BIG, {"nodes": 2, "ps": 1, "workers": 3, "env": {"TOKEN": "secret"}}),
    "dedicated-roce": (with_nic("roce"), {"nodes": 2, "pool": "dedicated"}),
    "dedicated-infiniband": (with_nic("infiniband"), {"nodes": 2, "pool": "dedicated"}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("suffix", ["json", "txt"])
def test_a_plan_and_its_drawing_are_byte_for_byte_the_golden_ones(name, suffix):
    machine, fields = CASES[name]
    made = planned(machine, **fields)
    text = (
        draw(made) if suffix == "txt" else json.dumps(to_json(made), indent=1, ensure_ascii=False)
    )
    golden = GOLDENS / f"{name}.{suffix}"
    if os.environ.get("TFJOB_WRITE_GOLDENS"):
        golden.write_text(text + "\n", encoding="utf-8")
    assert golden.read_text(encoding="utf-8") == text + "\n"


def test_the_json_has_the_promised_fields():
    made = to_json(planned(nodes=2))
    assert {"run", "network", "rehearsal", "nodes", "tasks"} <= set(made)
    assert set(made["network"]) == {"mode", "reason", "nic"}
    assert {"index", "asked", "granted"} <= set(made["nodes"][0])
    assert {
        "role",
        "index",
        "node",
        "asked",
        "granted",
        "address",
        "cwd",
        "argv",
        "env",
    } <= set(made["tasks"][0])
    assert set(made["tasks"][0]["asked"]) == {"cpus", "memory_mib", "accelerators", "accelerator"}


def test_r3_a_node_of_v100x8_asks_36_cores_and_256_gb_for_each_half():
    ps, worker = (task for task in planned(nodes=2).tasks if task.node == 0)
    assert ps.asked == Share(36, 262144, 0, None)
    assert worker.asked == Share(36, 262144, 8, "V100")


def test_r8_a_rehearsal_keeps_what_is_asked_beside_what_is_granted():
    made = planned(nodes=2)
    assert made.rehearsal
    assert [task.granted.cores for task in made.tasks] == [(0,), (1,), (0,), (1,)]
    assert {task.asked.cpus for task in made.tasks} == {36}
    assert "Rehearsal" in made.notes[0]
    assert "2 of 144 cores" in made.notes[0]


def test_r8_enough_is_not_a_rehearsal():
    assert not planned(BIG, nodes=2).rehearsal
    assert planned(BIG, nodes=2).tasks[2].granted.accelerators == 8


@pytest.mark.parametrize(
    "machine",
    [
        Machine(tuple(range(143)), BIG.memory_mib, BIG.devices, ()),
        Machine(BIG.cores, 2 * 524288 - 1, BIG.devices, ()),
        Machine(BIG.cores, BIG.memory_mib, BIG.devices[:15], ()),
    ],
    ids=["cores", "memory", "devices"],
)
def test_r8_one_thing_short_is_a_rehearsal(machine):
    assert planned(machine, nodes=2).rehearsal


def test_r8_another_kind_of_device_is_a_rehearsal():
    devices = tuple(Device(f"GPU-{number}", "NVIDIA H200", 1) for number in range(16))
    made = planned(Machine(BIG.cores, BIG.memory_mib, devices, ()), nodes=2)
    assert made.rehearsal
    assert "16 NVIDIA H200 in place of 16 V100" in made.notes[0]


def test_r8_nodes_that_share_a_core_are_a_rehearsal_even_of_one_core_each():
    assert planned(nodes=3, ps=0, flavor="cpu-1c1g").rehearsal
    assert not planned(nodes=2, ps=0, flavor="cpu-1c1g").rehearsal


def test_r8_nodes_on_other_machines_need_no_named_cores():
    asked = job(nodes=2)
    nodes = [Node(f"10.0.0.{number}", Share(72, 524288, 8, "V100")) for number in (1, 2)]
    made = plan(asked, nodes, range(5000, 5004), "mnist-1", log_dir="/logs")
    assert not made.rehearsal
    assert made.notes == ()
    assert [task.granted.cpus for task in made.tasks] == [36, 36, 36, 36]
    assert made.tasks[0].address == "10.0.0.1:5000"


def test_r8_strict_refuses_a_rehearsal_and_names_what_is_missing():
    with pytest.raises(UnavailableError) as caught:
        planned(nodes=2, strict=True)
    for words in ("--strict", "2 of 144 cores", "1024 GB memory", "0 of 16 V100"):
        assert words in str(caught.value)
    assert not planned(BIG, nodes=2, strict=True).rehearsal


def test_c2_tasks_run_in_the_code_dir_inside_the_job_dir():
    assert {task.cwd for task in planned(nodes=2).tasks} == {"/home/me/user-job-dir/mnist"}


def test_c3_one_node_runs_the_boot_file_with_the_job_parameters():
    (task,) = planned().tasks
    assert task.argv == ("/usr/bin/python3", "train.py", "--epochs", "5")
    assert (task.address, task.name, task.log) == (None, "worker-0", "worker-0.log")


def test_c4_c5_several_nodes_pass_the_flags_after_the_boot_file_and_before_the_users_own():
    task = planned(nodes=2).tasks[3]
    assert task.argv == (
        "/usr/bin/python3",
        "train.py",
        "--task_index",
        "1",
        "--ps_hosts",
        "127.0.0.2:5000,127.0.0.3:5007",
        "--worker_hosts",
        "127.0.0.2:5014,127.0.0.3:5021",
        "--job_name",
        "worker",
        "--epochs",
        "5",
    )


def test_c5_flags_are_spelt_as_the_boot_file_declares_them():
    flags = Flags(("--PS_hosts", "--task_name"), ("train.py takes --PS_hosts.",))
    made = planned(nodes=2, flags=flags)
    assert made.tasks[0].argv[2:6] == (
        "--PS_hosts",
        "127.0.0.2:5000,127.0.0.3:5007",
        "--task_name",
        "ps",
    )
    assert "train.py takes --PS_hosts." in made.notes


def test_c6_what_is_left_out_on_one_node_is_not_worth_a_note():
    made = planned(flags=Flags((), ("--ps_hosts is left out.",)))
    assert "--ps_hosts is left out." not in made.notes


def test_workers_only_get_no_empty_ps_hosts_flag():
    argv = planned(nodes=2, ps=0).tasks[0].argv
    assert "--ps_hosts" not in argv
    assert "--worker_hosts" in argv


def test_a_chief_is_told_its_role_by_the_same_flags():
    chief = next(task for task in planned(nodes=2, chief=True).tasks if task.role == "chief")
    assert chief.argv[-4:-2] == ("--job_name", "chief")


def test_tasks_start_in_the_order_in_which_they_are_waited_for():
    made = planned(nodes=2, chief=True, evaluator=True)
    assert [task.name for task in made.tasks] == [
        "ps-0",
        "ps-1",
        "chief-0",
        "worker-0",
        "worker-1",
        "evaluator-0",
    ]


def test_too_few_ports_are_a_mistake_of_the_caller():
    asked = job(nodes=2)
    with pytest.raises(ValueError, match="zip"):
        plan(asked, carve(SMALL, asked), [5000], "mnist-1", log_dir="/logs")


def test_accelerators_that_no_worker_takes_are_noted():
    made = planned(BIG, nodes=2, ps=2, workers=1)
    assert any("No worker sits on node 1" in note for note in made.notes)


def test_container_on_one_machine_means_loopback_addresses_and_the_plan_says_so():
    assert any("one loopback address per node" in note for note in planned(nodes=2).notes)


def test_host_mode_on_one_machine_says_that_all_nodes_are_one_host():
    assert any("this one host" in note for note in planned(nodes=2, network="host").notes)


def test_devices_that_the_user_names_are_said_to_be_the_workers():
    env = {"CUDA_VISIBLE_DEVICES": "3"}
    note = "--env CUDA_VISIBLE_DEVICES goes to the workers only; a PS keeps -1."
    assert note in planned(nodes=2, env=env).notes
    assert note not in planned(env=env).notes
    assert note not in planned(nodes=2, ps=0, env=env).notes


def test_host_lists_longer_than_a_variable_are_refused():
    asked = job(nodes=1000)
    names = [
        Node(f"{'host' * 20}-{number:04}", Share(72, 524288, 8, "V100")) for number in range(1000)
    ]
    with pytest.raises(InvalidJobError, match=r"nodes: the addresses of 2000 tasks.*--nodes"):
        plan(asked, names, range(5000, 7000), "mnist-1", log_dir="/logs")


def test_the_users_values_are_masked_in_json_unless_asked_for():
    made = planned(nodes=2, env={"TOKEN": "hunter2"})
    assert "hunter2" not in json.dumps(to_json(made))
    assert to_json(made)["job"]["env"] == {"TOKEN": "***"}
    assert to_json(made, masked=False)["job"]["env"] == {"TOKEN": "hunter2"}


def some_plan(*, nodes, ps, workers, chief, evaluator, cores, devices):
    machine = Machine(tuple(range(cores)), 24000, BIG.devices[:devices], ())
    flavor = Flavor("mine", "V100", 4, 64, 8192)
    return planned(
        machine,
        nodes=nodes,
        ps=ps,
        workers=workers,
        chief=chief,
        evaluator=evaluator,
        flavor=flavor,
    )


ANY = {
    "nodes": st.integers(1, 9),
    "ps": st.none() | st.integers(0, 12),
    "workers": st.none() | st.integers(0, 12),
    "chief": st.booleans(),
    "evaluator": st.booleans(),
    "cores": st.integers(1, 200),
    "devices": st.integers(0, 16),
}


@given(**ANY)
def test_hosts_agree_everywhere(**shape):
    try:
        made = some_plan(**shape)
    except InvalidJobError:
        return
    cluster = {}
    for task in made.tasks:
        if task.role != "evaluator" and task.address:
            cluster.setdefault(task.role, []).append(task.address)
    for task in made.tasks:
        if len(made.tasks) == 1:
            assert "TF_CONFIG" not in task.env
            assert made.network.mode == "none"
            continue
        assert made.network.mode != "none"
        config = json.loads(task.env["TF_CONFIG"])
        assert config == {"cluster": cluster, "task": {"type": task.role, "index": task.index}}
        passed = dict(zip(task.argv[2:-2:2], task.argv[3:-2:2], strict=True))
        assert passed["--task_index"] == task.env["VC_TASK_INDEX"] == str(task.index)
        assert passed["--job_name"] == task.env["MA_TASK_NAME"] == task.role
        for role in ("ps", "worker"):
            listed = cluster.get(role, [])
            assert passed.get(f"--{role}_hosts", "") == ",".join(listed)
            assert task.env.get(f"TF_{role.upper()}_HOSTS", "") == ",".join(listed)
            hosts = ",".join(address.rpartition(":")[0] for address in listed)
            assert task.env.get(f"VC_{role.upper()}_HOSTS", "") == hosts
            assert task.env[f"VC_{role.upper()}_NUM"] == str(len(listed))
        if task.role != "evaluator":
            assert cluster[task.role][task.index] == task.address
        assert task.env["MA_CURRENT_IP"] == task.address.rpartition(":")[0]
    addresses = [task.address for task in made.tasks if task.address]
    assert len(set(addresses)) == len(addresses)


@given(**ANY)
def test_the_tasks_of_a_node_never_exceed_it_and_its_totals_are_kept(**shape):
    try:
        made = some_plan(**shape)
    except InvalidJobError:
        return
    for node in made.nodes:
        here = [task for task in made.tasks if task.node == node.index]
        for whole, shares in (
            (node.asked, [task.asked for task in here]),
            (node.granted, [task.granted for task in here]),
        ):
            assert sum(share.memory_mib for share in shares) == whole.memory_mib
            workers = any(task.role == "worker" for task in here)
            accelerators = sum(share.accelerators for share in shares)
            assert accelerators == (whole.accelerators if workers else 0)
            if whole.cpus >= len(here):
                assert sum(share.cpus for share in shares) == whole.cpus
        assert {core for task in here for core in task.granted.cores} == set(node.granted.cores)
    devices = [device for task in made.tasks for device in task.granted.devices]
    assert len(set(devices)) == len(devices)


@given(**ANY)
def test_a_plan_comes_back_from_its_json(**shape):
    try:
        made = some_plan(**shape)
    except InvalidJobError:
        return
    assert from_json(json.loads(json.dumps(to_json(made, masked=False)))) == made
