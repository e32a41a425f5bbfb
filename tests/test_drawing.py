"""The drawing of a plan as text, and its commands."""

import shlex

from hypothesis import given
from hypothesis import strategies as st

from tfjob_magic.core.flavor import Flavor
from tfjob_magic.core.job import parse
from tfjob_magic.core.node import Device, Machine, Nic, carve
from tfjob_magic.core.plan import count_tasks, plan
from tfjob_magic.drawing import commands, draw
from tfjob_magic.errors import InvalidJobError

SMALL = Machine((0, 1), 24000, (Device("GPU-a", "NVIDIA H200", 140000),), ())
BIG = Machine(
    tuple(range(160)),
    2**21,
    tuple(Device(f"GPU-{number}", "Tesla V100", 32768) for number in range(16)),
    (Nic("roce", "mlx5_0", 100),),
)


def planned(machine=SMALL, **fields):
    raw = {
        "name": "mnist",
        "job_dir": "/home/me/user-job-dir",
        "code_dir": "my net",
        "flavor": "v100x8",
        "python": "/usr/bin/python3",
    }
    job = parse({**raw, **fields}, {})
    ports = range(5000, 5000 + count_tasks(job))
    nodes = carve(machine, job)
    return plan(job, nodes, ports, "mnist-1", log_dir="/runs/logs", nics=machine.nics)


def test_nodes_stand_side_by_side_halved_into_ps_and_worker():
    lines = draw(planned(BIG, nodes=2)).splitlines()
    assert "node 0 · 127.0.0.2" in lines[3]
    assert "node 1 · 127.0.0.3" in lines[3]
    assert lines[4].split("│")[1:3] == [" ps-0 :5000       ", " worker-0 :5002   "]
    assert "8 V100" in lines[7]


def test_a_rehearsal_shows_asked_and_granted_side_by_side():
    text = draw(planned(nodes=2))
    assert text.startswith("mnist-1 · rehearsal\n")
    for words in ("36 → 1 core ", "256 → 5.9 GB", "8 V100 → 1 H200", "8 V100 → none"):
        assert words in text


def test_the_network_is_under_the_nodes_with_mode_card_and_reason():
    text = " ".join(draw(planned(BIG, nodes=2, pool="dedicated")).split())
    assert "host network · RoCE mlx5_0, 100 Gbit/s · Nodes of a dedicated pool with RoCE" in text


def test_a_single_task_fills_its_node_and_has_no_network():
    text = draw(planned(BIG))
    assert "┬" not in text
    assert "━" not in text
    assert "no network: The run has a single task" in text


def test_tasks_that_are_alike_are_drawn_once():
    text = draw(planned(BIG, nodes=2, ps=0, workers=8))
    assert "4 workers, each" in text
    assert "worker-3" not in text


def test_many_nodes_are_left_out_and_counted():
    text = draw(planned(nodes=1000))
    assert "nodes 2 to 997, 996 more" in text
    assert "node 999" in text
    assert len(text.splitlines()) < 40


def test_notes_come_last():
    made = planned(nodes=2)
    assert " ".join(draw(made).split()).endswith(" ".join(f"• {note}" for note in made.notes))


@given(
    nodes=st.integers(1, 12),
    ps=st.none() | st.integers(0, 12),
    workers=st.none() | st.integers(0, 40),
    chief=st.booleans(),
    evaluator=st.booleans(),
    width=st.integers(40, 200),
    kind=st.sampled_from(["V100", "A kind with a very long name indeed"]),
)
def test_the_drawing_keeps_its_width_and_its_boxes_close(
    *, nodes, ps, workers, chief, evaluator, width, kind
):
    try:
        made = planned(
            nodes=nodes,
            ps=ps,
            workers=workers,
            chief=chief,
            evaluator=evaluator,
            flavor=Flavor("mine", kind, 8, 64, 4096),
        )
    except InvalidJobError:
        return
    lines = draw(made, width).splitlines()
    assert max(map(len, lines)) <= width
    open_boxes = []
    for line in lines:
        if line.startswith("╭"):
            open_boxes = [at for at, char in enumerate(line) if char in "╭╮"]
        elif open_boxes:
            edges = "╰╯" if line.startswith("╰") else "││"
            assert [line[at] in edges for at in open_boxes] == [True] * len(open_boxes)
            if line.startswith("╰"):
                open_boxes = []
    assert not open_boxes


def test_commands_are_what_a_shell_would_take():
    made = planned(nodes=2, parameters=["--name", "it's a\nnet"])
    listed = commands(made)
    for task in made.tasks:
        assert shlex.join(task.argv) in listed
        assert f"# {task.name}, on node {task.node}" in listed
    assert "cd '/home/me/user-job-dir/my net'" in listed
    words = shlex.split(listed, comments=True)
    assert f"TF_PS_HOSTS={made.tasks[0].env['TF_PS_HOSTS']}" in words
    for task in made.tasks:
        assert f"TF_CONFIG={task.env['TF_CONFIG']}" in words


def test_what_is_the_same_in_every_task_is_said_once():
    assert commands(planned(nodes=2)).count("export TF_PS_HOSTS=") == 1
    assert commands(planned(nodes=2)).count("export VC_TASK_INDEX=") == 4


def test_the_users_secrets_are_masked():
    listed = commands(planned(nodes=2, env={"TOKEN": "hunter2", "TF_NUM_INTRAOP_THREADS": "9"}))
    assert "hunter2" not in listed
    assert listed.count("TOKEN='***'") == 1
    assert listed.count("TF_NUM_INTRAOP_THREADS") == 1
    assert "TF_NUM_INTRAOP_THREADS='***'" in listed


def test_a_device_that_the_user_chose_shows_for_workers_alone():
    without = Machine(SMALL.cores, SMALL.memory_mib, (), ())
    for machine in (SMALL, without):
        listed = commands(planned(machine, nodes=2, env={"CUDA_VISIBLE_DEVICES": "3"}))
        assert listed.count("CUDA_VISIBLE_DEVICES='***'") == 1
        assert listed.count("CUDA_VISIBLE_DEVICES=-1") == 2  # one for each PS


def test_the_commands_of_very_many_tasks_are_counted():
    listed = commands(planned(nodes=100))
    assert listed.count("train.py") == 16
    assert "and 184 tasks more" in listed


def test_the_commands_of_a_thousand_nodes_are_a_page_and_say_where_the_whole_is():
    text = commands(planned(nodes=1000))
    assert len(text) < 30_000
    assert "TF_WORKER_HOSTS='127.0.0.2:6000,… 998 more …,127.0.3.239:6999'" in text
    assert '"worker": ["127.0.0.2:6000",… 998 more …,"127.0.3.239:6999"]' in text
    assert text.splitlines()[-1] == "# lists are shortened (…): tfjob plan --json has them whole"


def test_the_commands_of_a_few_nodes_are_whole():
    text = commands(planned(nodes=4, parameters=["--layers", "1,2,3,4,5"]))
    assert "…" not in text
    assert "--layers 1,2,3,4,5" in text
