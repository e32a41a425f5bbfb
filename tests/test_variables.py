"""A task's variables (the contract's table) and the environment its process gets."""

import json

import pytest

from tfjob_magic.core.job import parse
from tfjob_magic.core.node import Device, Machine, carve
from tfjob_magic.core.plan import count_tasks, plan
from tfjob_magic.core.sizes import LONGEST
from tfjob_magic.core.variables import CONTRACT, cluster, environment

MACHINE = Machine((0, 1), 24000, (Device("GPU-a", "NVIDIA V100", 32768),), ())


def tasks(machine=MACHINE, **fields):
    raw = {
        "name": "mnist",
        "job_dir": "/home/me/user-job-dir",
        "code_dir": "mnist",
        "flavor": "v100x8",
        "python": "/usr/bin/python3",
    }
    job = parse({**raw, **fields}, {})
    ports = range(5000, 5000 + count_tasks(job))
    made = plan(job, carve(machine, job), ports, "mnist-1", log_dir="/runs/mnist-1/logs")
    return {task.name: task for task in made.tasks}


def test_every_variable_of_the_contract_on_several_nodes():
    env = tasks(nodes=2)["worker-1"].env
    assert env["VC_TASK_INDEX"] == "1"
    assert env["TF_PS_HOSTS"] == "127.0.0.2:5000,127.0.0.3:5001"
    assert env["TF_WORKER_HOSTS"] == "127.0.0.2:5002,127.0.0.3:5003"
    assert env["MA_TASK_NAME"] == "worker"
    assert env["VC_PS_HOSTS"] == env["VC_WORKER_HOSTS"] == "127.0.0.2,127.0.0.3"
    assert env["VC_PS_NUM"] == env["VC_WORKER_NUM"] == "2"
    assert env["MA_NUM_HOSTS"] == "2"
    assert env["MA_NUM_GPUS"] == "0"
    assert env["MA_JOB_DIR"] == "/home/me/user-job-dir"
    assert env["MA_CURRENT_IP"] == "127.0.0.3"
    assert env["MA_CURRENT_INSTANCE_NAME"] == "mnist-1-worker-1"
    assert env["MA_VJ_NAME"] == "mnist-1"
    assert env["MA_LOG_DIR"] == "/runs/mnist-1/logs"
    assert env["PYTHONUNBUFFERED"] == "1"
    assert json.loads(env["TF_CONFIG"]) == {
        "cluster": {
            "ps": ["127.0.0.2:5000", "127.0.0.3:5001"],
            "worker": ["127.0.0.2:5002", "127.0.0.3:5003"],
        },
        "task": {"type": "worker", "index": 1},
    }
    assert set(CONTRACT) <= set(env)


def test_the_index_counts_within_the_role():
    assert tasks(nodes=2)["ps-0"].env["VC_TASK_INDEX"] == "0"
    assert tasks(nodes=2)["worker-0"].env["VC_TASK_INDEX"] == "0"


def test_n1_a_single_task_has_no_host_lists_and_no_tf_config():
    env = tasks()["worker-0"].env
    assert not {
        "TF_CONFIG",
        "TF_PS_HOSTS",
        "TF_WORKER_HOSTS",
        "VC_PS_HOSTS",
        "VC_WORKER_HOSTS",
    } & set(env)
    assert env["VC_TASK_INDEX"] == "0"
    assert env["MA_TASK_NAME"] == "worker"
    assert env["MA_NUM_HOSTS"] == "1"
    assert {name for name in CONTRACT if name.startswith("MA_")} <= set(env)


def test_ma_num_gpus_and_the_visible_devices_are_what_was_granted():
    made = tasks(nodes=2)
    granted = {
        name: (t.env["MA_NUM_GPUS"], t.env["CUDA_VISIBLE_DEVICES"]) for name, t in made.items()
    }
    assert granted == {
        "ps-0": ("0", "-1"),
        "ps-1": ("0", "-1"),
        "worker-0": ("1", "GPU-a"),
        "worker-1": ("0", "-1"),
    }


def threads(task):
    return task.env["TF_NUM_INTRAOP_THREADS"], task.env["TF_NUM_INTEROP_THREADS"]


def test_tensorflows_threads_match_the_granted_cores():
    assert threads(tasks(flavor="cpu-2c4g")["worker-0"]) == ("2", "2")
    assert threads(tasks(flavor="cpu-1c4g")["worker-0"]) == ("1", "1")


@pytest.mark.parametrize(
    ("asked", "number"),
    [
        ({"nodes": 2, "chief": True}, "3"),
        ({"nodes": 2, "ps": 0}, "3"),
        ({"nodes": 3, "ps": 1}, "4"),
        ({"nodes": 40}, "16"),
    ],
)
def test_a_task_that_waits_for_others_has_threads_for_that_even_on_one_core(asked, number):
    made = tasks(Machine((0,), 8192, (), ()), flavor="cpu-4c8g", **asked)
    assert {threads(task) for task in made.values()} == {("1", number)}


def test_chief_and_evaluator_are_told_as_tensorflow_expects():
    made = tasks(nodes=2, chief=True, evaluator=True)
    chief = json.loads(made["chief-0"].env["TF_CONFIG"])
    evaluator = json.loads(made["evaluator-0"].env["TF_CONFIG"])
    assert chief["task"] == {"type": "chief", "index": 0}
    assert evaluator["task"] == {"type": "evaluator", "index": 0}
    assert set(chief["cluster"]) == {"chief", "ps", "worker"}  # an evaluator is not in the cluster
    assert evaluator["cluster"] == chief["cluster"]
    assert made["chief-0"].env["MA_TASK_NAME"] == "chief"


def test_workers_only_have_no_empty_ps_list_that_reads_as_a_host():
    env = tasks(nodes=2, ps=0)["worker-0"].env
    assert "TF_PS_HOSTS" not in env
    assert "VC_PS_HOSTS" not in env
    assert env["VC_PS_NUM"] == "0"
    assert set(json.loads(env["TF_CONFIG"])["cluster"]) == {"worker"}


def test_the_longest_addresses_of_the_most_tasks_fit_in_a_variable():
    made = cluster({"ps": ["127.0.13.254:10000"] * 2500, "worker": ["127.0.13.254:10000"] * 2500})
    assert max(map(len, [*made.lists.values(), made.config])) < LONGEST - 100


BASE = {
    "PATH": "/usr/bin",
    "HOME": "/home/me",
    "JPY_PARENT_PID": "1",
    "JPY_API_TOKEN": "secret",
    "JUPYTERHUB_API_TOKEN": "secret",
    "JUPYTER_TOKEN": "secret",
    "TFJOB_SOCKET": "/run/socket",
    "TF_CONFIG": "stale",
    "TF_PS_HOSTS": "stale",
    "VC_PS_HOSTS": "stale",
    "MA_NUM_GPUS": "stale",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


def test_the_callers_environment_comes_without_jupyters_and_another_jobs_variables():
    env = environment(BASE, tasks()["worker-0"], {})
    kept = {name: env[name] for name in BASE if name in env}
    assert kept == {
        "PATH": "/usr/bin",
        "HOME": "/home/me",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "MA_NUM_GPUS": "1",
    }
    assert env["TFJOB_RUN"] == "mnist-1"


def test_another_runs_mark_does_not_reach_a_task():
    base = {"TFJOB_RUN_DIR": "/another", "VC_OTHER": "stale", "MA_OTHER": "stale"}
    assert not set(base) & set(environment(base, tasks()["worker-0"], {}))


def test_another_plotting_backend_stays():
    env = environment({"MPLBACKEND": "Agg"}, tasks()["worker-0"], {})
    assert env["MPLBACKEND"] == "Agg"


def test_the_users_own_variables_win_over_the_launchers_but_not_over_the_contracts():
    own = {"TF_NUM_INTRAOP_THREADS": "9", "PYTHONUNBUFFERED": "0", "TFJOB_RUN": "x", "HOME": "/tmp"}
    env = environment(BASE, tasks()["worker-0"], own)
    assert env["TF_NUM_INTRAOP_THREADS"] == "9"
    assert env["HOME"] == "/tmp"
    assert env["PYTHONUNBUFFERED"] == "1"
    assert env["TFJOB_RUN"] == "mnist-1"


@pytest.mark.parametrize(
    ("name", "devices"), [("worker-0", "3"), ("worker-1", "3"), ("ps-0", "-1"), ("chief-0", "-1")]
)
def test_only_workers_take_a_shared_device_that_the_user_asks_for(name, devices):
    task = tasks(nodes=2, chief=True)[name]
    assert environment(BASE, task, {"CUDA_VISIBLE_DEVICES": "3"})["CUDA_VISIBLE_DEVICES"] == devices


def test_without_a_proxy_nothing_is_said_of_proxies():
    env = environment({"no_proxy": "a"}, tasks(nodes=2)["ps-0"], {})
    assert env["no_proxy"] == "a"
    assert "no_grpc_proxy" not in env


@pytest.mark.parametrize(
    "proxy", ["http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "grpc_proxy"]
)
def test_the_runs_hosts_are_exempt_from_any_proxy(proxy):
    base = {proxy: "http://proxy:3128", "NO_PROXY": "corp.example, localhost"}
    env = environment(base, tasks(nodes=2)["ps-0"], {})
    assert env["no_proxy"] == env["NO_PROXY"] == env["no_grpc_proxy"]
    assert env["no_proxy"].split(",") == [
        "corp.example",
        "localhost",
        "127.0.0.1",
        "127.0.0.2",
        "127.0.0.3",
    ]


def test_an_exemption_of_everything_stays_alone():
    env = environment({"http_proxy": "x", "no_proxy": "*"}, tasks(nodes=2)["ps-0"], {})
    assert (env["no_proxy"], env["NO_PROXY"]) == ("*", "*")
    assert "127.0.0.3" in env["no_grpc_proxy"].split(",")


def test_a_proxy_among_the_users_own_variables_counts_too():
    env = environment({}, tasks(nodes=2)["ps-0"], {"http_proxy": "http://proxy:3128"})
    assert "127.0.0.3" in env["no_grpc_proxy"]


def test_the_caller_environment_is_not_changed():
    base = dict(BASE)
    environment(base, tasks(nodes=2)["ps-0"], {"http_proxy": "x"})
    assert base == BASE
