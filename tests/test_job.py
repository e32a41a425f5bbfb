"""What a job may be, and how it is refused."""

import math
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_magic.core.flavor import Flavor
from tfjob_magic.core.job import Job, parse, slug
from tfjob_magic.errors import InvalidJobError

RIGHT = {
    "name": "mnist",
    "job_dir": "/home/me/user-job-dir",
    "code_dir": "mnist",
    "flavor": "v100x8",
    "python": "/usr/bin/python3",
}


def job(**fields):
    return parse({**RIGHT, **fields}, {})


def problems(**fields):
    with pytest.raises(InvalidJobError) as caught:
        job(**fields)
    return {problem.field: problem.message for problem in caught.value.problems}


def test_what_is_absent_or_none_takes_its_default():
    made = job(ps=None, timeout=None)
    assert (made.nodes, made.pool, made.nic, made.network) == (1, "shared", "auto", "auto")
    assert (made.ps, made.workers, made.chief, made.evaluator) == (None, None, False, False)
    assert (made.timeout, made.grace, made.strict) == (None, 10.0, False)  # contract E5
    assert (made.boot_file, made.cluster_flags, made.parameters, made.env) == (
        "train.py",
        "auto",
        (),
        {},
    )


def test_what_must_be_given_is_named_with_its_option():
    with pytest.raises(InvalidJobError) as caught:
        parse({}, {})
    assert {problem.field for problem in caught.value.problems} == set(RIGHT)
    assert "--flavor v100x8" in str(caught.value)


def test_strings_of_a_line_and_json_values_mean_the_same():
    line = job(nodes="2", ps="1", workers="2", timeout="30", grace="0", chief="true", env=["A=b=c"])
    json = job(nodes=2, ps=1, workers=2, timeout=30, grace=0.0, chief=True, env={"A": "b=c"})
    assert line == json
    assert line.timeout == 30.0


def test_numbers_among_parameters_and_variables_are_texts():
    made = job(parameters=["--epochs", 5, 0.1], env={"N": 3})
    assert made.parameters == ("--epochs", "5", "0.1")
    assert made.env == {"N": "3"}


def test_all_problems_are_told_at_once():
    found = problems(name="A b", nodes=0, flavor="v10x8", pool="sharde", grace=-1, python="python3")
    assert set(found) == {"name", "nodes", "flavor", "pool", "grace", "python"}


@pytest.mark.parametrize(
    "nodes", [0, 1001, -1, "x", "2.5", 2.5, True, "", [], "9" * 5000, math.inf]
)
def test_nodes_are_1_to_1000(nodes):
    assert "--nodes takes 1 to 1000" in problems(nodes=nodes)["nodes"]


@pytest.mark.parametrize("nodes", [1, 1000, "1000", 3.0])
def test_1_and_1000_nodes_are_possible(nodes):
    assert job(nodes=nodes).nodes == int(nodes)


@pytest.mark.parametrize("name", ["", "A", "a b", "-a", "a-", "a" * 41, "a.b", "ä", "a\n"])
def test_a_name_is_a_dns_label(name):
    assert "--name takes" in problems(name=name)["name"]


@pytest.mark.parametrize("code_dir", ["", ".", "..", "a/b", "/a", "ü" * 128])
def test_a_code_dir_is_one_folders_name(code_dir):
    assert "--code-dir" in problems(code_dir=code_dir)["code_dir"]


@pytest.mark.parametrize("code_dir", ["a b", "it's", 'say "hi"', "new\nline", "模型", "-x"])
def test_an_awkward_code_dir_is_possible(code_dir):
    assert job(code_dir=code_dir).cwd == f"/home/me/user-job-dir/{code_dir}"


@pytest.mark.parametrize(
    "boot_file", ["", "train", ".py", "a/b.py", "../b.py", "train.ipynb", "-m.py"]
)
def test_a_boot_file_is_a_plain_python_file(boot_file):
    assert "--boot-file" in problems(boot_file=boot_file)["boot_file"]


@pytest.mark.parametrize("field", ["job_dir", "python"])
def test_paths_are_absolute(field):
    assert "begins with /" in problems(**{field: "here/there"})[field]


@pytest.mark.parametrize("field", ["name", "job_dir", "code_dir", "boot_file", "python", "flavor"])
def test_there_is_no_nul_anywhere(field):
    assert "NUL" in problems(**{field: "/a\0b.py"})[field]
    assert "NUL" in problems(parameters=["a\0"])["parameters"]
    assert "NUL" in problems(env={"A": "\0"})["env"]


def test_text_that_no_file_could_hold_is_refused():
    assert "Unicode" in problems(code_dir="\udcff")["code_dir"]


@pytest.mark.parametrize(
    "name",
    [
        "MA_X",
        "MA_NUM_GPUS",
        "VC_TASK_INDEX",
        "VC_MINE",
        "TF_CONFIG",
        "TF_PS_HOSTS",
        "TF_WORKER_HOSTS",
        "TFJOB_RUN",
        "TFJOB_RUN_DIR",
        "PYTHONUNBUFFERED",
    ],
)
def test_a_users_variables_may_not_be_the_services(name):
    message = problems(env={name: "1"})["env"]
    assert name in message
    assert "the service" in message


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "TF_NUM_INTRAOP_THREADS", "HOME", "MAX"])
def test_a_users_variables_may_be_any_others(name):
    assert job(env={name: "1"}).env == {name: "1"}


@pytest.mark.parametrize(
    "env",
    [
        ["s3cr3t"],
        ["=s3cr3t"],
        ["A-B=s3cr3t"],
        ["s3cr3t/+=="],
        ["A=s3cr3t\0"],
        ["A=s3cr3t\udcff"],
        {"A": ["s3cr3t"]},
        {"": "s3cr3t"},
        {"MA_X": "s3cr3t"},
        "s3cr3t",
        [("A", "s3cr3t", "B")],
        {"A": "s3cr3t" * 30_000},
        {f"A{number}": "s3cr3t" for number in range(101)},
    ],
    ids=range(13),
)
def test_no_message_shows_a_variables_value(env):
    assert "s3cr3t" not in problems(env=env)["env"]


def test_a_variable_that_is_wrong_is_told_by_its_number():
    assert "variable 2 has no value" in problems(env=["A=b", "LONELY"])["env"]


LONGEST = 131071  # bytes; Linux counts a NUL besides


@pytest.mark.parametrize("text", ["x" * LONGEST, "ü" * (LONGEST // 2)])
def test_a_parameter_is_as_long_as_linux_lets_it_be(text):
    assert subprocess.run(["/bin/true", text], check=False).returncode == 0
    assert job(parameters=[text]).parameters == (text,)
    assert "parameter 2 has" in problems(parameters=["a", text + "xx"])["parameters"]
    if sys.platform == "linux":
        with pytest.raises(OSError, match="too long"):
            subprocess.run(["/bin/true", text + "xx"], check=False)


def test_a_variable_is_as_long_as_linux_lets_it_be():
    text = "x" * (LONGEST - len("A="))
    assert subprocess.run(["/bin/true"], check=False, env={"A": text}).returncode == 0
    assert job(env={"A": text}).env == {"A": text}
    assert "A and its value" in problems(env={"A": text + "x"})["env"]


def test_all_parameters_and_all_variables_together_are_bounded():
    text = "x" * 100_000
    assert "in all" in problems(parameters=[text] * 6)["parameters"]
    assert "in all" in problems(parameters=["x"] * 100_000)["parameters"]
    assert "in all" in problems(env={f"V{number}": text for number in range(6)})["env"]


def test_the_most_that_is_accepted_can_be_passed_to_a_program():
    made = job(
        parameters=["x" * 100_000] * 5, env={f"V{number}": "x" * 100_000 for number in "12345"}
    )
    command = ["/bin/true", *made.parameters]
    assert subprocess.run(command, check=False, env=made.env).returncode == 0


@pytest.mark.parametrize("field", ["job_dir", "python"])
def test_a_path_longer_than_any_is_refused(field):
    assert "longer than 3500 bytes" in problems(**{field: "/" + "x" * 3500})[field]


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "Ä", "A\n"])
def test_a_variables_name_is_a_shells(name):
    assert "--env takes" in problems(env={name: "1"})["env"]


def test_a_variable_without_a_value_is_refused():
    assert "NAME=value" in problems(env=["LONELY"])["env"]


def test_at_most_100_variables_are_possible():
    assert len(job(env={f"V{number}": "" for number in range(100)}).env) == 100
    assert "101 variables" in problems(env={f"V{number}": "" for number in range(101)})["env"]


@pytest.mark.parametrize(
    "value", ["nan", "inf", math.nan, math.inf, -1, 0, "soon", True, [], 1e300]
)
def test_a_timeout_is_finite_and_positive(value):
    told = problems(timeout=value)["timeout"]
    assert "--timeout takes seconds, more than 0 and at most 1000000000" in told


@pytest.mark.parametrize("value", ["nan", math.inf, -0.1, "soon", False, {}])
def test_a_grace_is_finite_and_may_be_0(value):
    assert "--grace takes seconds, 0 or more" in problems(grace=value)["grace"]
    assert job(grace=0).grace == 0.0


@pytest.mark.parametrize(
    ("field", "choices"),
    [
        ("pool", ["shared", "dedicated"]),
        ("nic", ["auto", "none", "roce", "infiniband"]),
        ("network", ["auto", "container", "host"]),
        ("cluster_flags", ["auto", "all", "none"]),
    ],
)
def test_a_choice_is_one_of_its_names(field, choices):
    for choice in choices:
        assert getattr(job(**{field: choice}), field) == choice
    assert ", ".join(choices) in problems(**{field: choices[-1].upper()})[field]
    assert field in problems(**{field: []})


def test_a_long_wrong_value_does_not_fill_the_screen():
    found = problems(name="x" * 10**6, nodes=10**5000, flavor="y" * 10**6, parameters=[10**5000])
    assert set(found) == {"name", "nodes", "flavor", "parameters"}
    assert max(map(len, found.values())) < 300


def test_an_unknown_option_is_told_with_the_nearest():
    assert "did you mean --workers?" in problems(worker=3)["worker"]


def test_r6_a_flavor_of_one_core_cannot_hold_a_ps_and_a_worker():
    assert "1 core, too few for the 2 tasks" in problems(nodes=2, flavor="cpu-1c1g")["flavor"]
    assert job(nodes=1, flavor="cpu-1c1g").nodes == 1
    assert job(nodes=2, ps=0, flavor="cpu-1c1g").nodes == 2


def test_r6_is_judged_where_most_tasks_sit():
    found = problems(nodes=2, ps=0, workers=9, flavor="cpu-4c8g")
    assert "too few for the 5 tasks" in found["flavor"]
    assert "--flavor of 5 cores" in found["flavor"]


def test_somebody_must_decide_when_the_job_is_done():
    assert "--chief" in problems(workers=0)["workers"]
    assert "--chief" in problems(nodes=2, workers=0)["workers"]
    assert job(nodes=2, workers=0, chief=True).workers == 0


def test_a_chief_alone_is_refused():
    assert "needs workers or PS" in problems(ps=0, workers=0, chief=True)["chief"]


def test_a_node_without_a_task_is_refused():
    found = problems(nodes=3, ps=1, workers=1)
    assert "2 of 3 nodes would have no task" in found["nodes"]
    assert "--nodes 1" in found["nodes"]


@pytest.mark.parametrize("field", ["ps", "workers"])
def test_counts_are_bounded_by_the_ports(field):
    assert "takes 0 to 5000" in problems(**{field: 5001})[field]
    assert "takes 0 to 5000" in problems(**{field: -1})[field]
    assert "ports" in problems(ps=2500, workers=2501)["workers"]


def test_problems_of_counts_and_of_names_are_told_together():
    assert set(problems(nodes=2, flavor="cpu-1c1g", name="")) == {"name", "flavor"}


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)


FIELDS = [*(field.name for field in fields(Job)), "other"]


@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING))
def test_anything_is_a_job_or_problems_of_ours(raw):
    try:
        made = parse({**RIGHT, **raw}, {})
    except InvalidJobError as error:
        told = [problem.message for problem in error.problems]
    else:
        told = [made.name]
    assert told
    assert all(told)


@given(
    nodes=st.integers(1, 20),
    ps=st.none() | st.integers(0, 30),
    workers=st.none() | st.integers(0, 30),
    chief=st.booleans(),
    evaluator=st.booleans(),
    cpus=st.integers(1, 16),
)
def test_every_task_of_a_job_has_a_node_and_every_node_a_task(
    *, nodes, ps, workers, chief, evaluator, cpus
):
    flavor = Flavor("mine", "A100", 2, cpus, 4096)
    try:
        made = job(
            nodes=nodes, ps=ps, workers=workers, chief=chief, evaluator=evaluator, flavor=flavor
        )
    except InvalidJobError:
        return
    seats = made.seats
    assert {seat.node for seat in seats} == set(range(nodes))
    assert len({(seat.role, seat.index) for seat in seats}) == len(seats)
    assert any(seat.role in {"worker", "chief"} for seat in seats)
    assert all(seat.node == seat.index % nodes for seat in seats)
    for node in range(nodes):
        assert sum(seat.node == node for seat in seats) <= cpus


def test_a_job_is_immutable():
    with pytest.raises(FrozenInstanceError):
        job().nodes = 2


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("My Net.ipynb", "my-net-ipynb"),
        ("Größe", "groe"),
        ("模型", "job"),
        ("", "job"),
        ("--", "job"),
        ("a" * 99, "a" * 40),
    ],
)
def test_a_slug_is_a_name(text, name):
    assert slug(text) == name


@given(st.text())
def test_any_slug_may_name_a_job(text):
    assert job(name=slug(text)).name == slug(text)
