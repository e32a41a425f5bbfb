"""The local engine: what it reserves, starts, stops and cleans up after."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from conftest import until

from tfjob_magic.core import lifecycle
from tfjob_magic.core.events import Finished, OrphansEnded, Supervised
from tfjob_magic.core.flavor import Flavor
from tfjob_magic.core.job import Job
from tfjob_magic.core.plan import plan
from tfjob_magic.engines import local
from tfjob_magic.engines.local import LocalEngine
from tfjob_magic.errors import UnavailableError
from tfjob_magic.machine import look
from tfjob_magic.store import cgroups, ports, processes
from tfjob_magic.store.ledger import Ledger
from tfjob_magic.store.rundir import RunDir

SECRET = "a-password-that-nobody-writes-down"  # noqa: S105 - that is the test

JOIN = """
import sys, time
print("joined", flush=True)
time.sleep(600)
"""
TRAIN = """
import os, sys, time
print("task", os.environ["MA_TASK_NAME"], flush=True)
if os.environ["MA_TASK_NAME"] == "ps":
    time.sleep(600)
"""
LEAVES_A_CHILD = """
import os, subprocess, sys, time
child = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
print("child", child.pid, flush=True)
time.sleep(600)
"""

LEAVES_A_SCRUBBED_CHILD = """
import subprocess, time
child = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True, env={})
print("child", child.pid, flush=True)
time.sleep(600)
"""

linux = pytest.mark.skipif(sys.platform != "linux", reason="it is looked at through /proc")


class Place:
    """A code dir, a home for runs and an engine with a ledger of its own."""

    def __init__(self, path):
        self.path = path
        self.engine = LocalEngine(path / "ledger")
        self.plans = {}
        self.code_dir = path / "user-job-dir" / "code"
        self.code_dir.mkdir(parents=True)

    def job(self, program=TRAIN, **fields):
        (self.code_dir / "train.py").write_text(program)
        asked = {
            "name": "test",
            "job_dir": str(self.path / "user-job-dir"),
            "code_dir": "code",
            "flavor": Flavor("cpu-2c1g", None, 0, 2, 1024),
            "python": sys.executable,
            "nodes": 2,
        }
        return Job(**{**asked, **fields})

    def start(self, job, run="run", home="runs"):
        """Start a job as the service does."""
        with self.engine.reserve(job) as reservation:
            made = plan(job, reservation.nodes, reservation.ports, run, log_dir=str(self.path))
            boot_file = self.code_dir / job.boot_file
            directory, lock = RunDir.create(self.path / home, run, "{}", boot_file, time.time())
            environments = {
                task.name: {"PATH": os.environ["PATH"], "TOKEN": SECRET, **task.env}
                for task in made.tasks
            }
            self.plans[directory.path] = made
            self.engine.start(made, directory, lock, environments, reservation)
        return directory

    def state(self, directory):
        made = self.plans[directory.path]
        first = lifecycle.begin(
            {task.name: task.role for task in made.tasks}, made.job.grace, made.job.timeout
        )
        return lifecycle.fold(first, directory.read_events()[0])

    def end(self, directory):
        until(lambda: not directory.is_held(), "the run is over")
        return self.state(directory)

    def logs(self, directory):
        paths = [directory.log_path(task.log) for task in self.plans[directory.path].tasks]
        return [path.read_text() if path.exists() else "" for path in paths]

    def running(self, directory, word="joined"):
        until(lambda: all(word in log for log in self.logs(directory)), f"all have said {word}")
        return directory


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    yield place
    for path in place.plans:
        directory = RunDir(path)
        if directory.exists():
            place.engine.stop(directory, "the test", grace=0.0)
            place.end(directory)
            place.engine.settle(directory)


def supervisor(directory):
    (pid,) = [e.pid for e in directory.read_events()[0] if isinstance(e, Supervised)]
    return pid


def kill_supervisor(directory):
    os.kill(supervisor(directory), signal.SIGKILL)
    until(lambda: not directory.is_held(), "the lock is free")


def is_free(port):
    try:
        ports.hold(1, random.Random(), port, port).close()
    except UnavailableError:
        return False
    return True


def children(directory, place):
    """The children that tasks have written into their logs."""
    place.running(directory, "child")
    return [int(log.split()[1]) for log in place.logs(directory)]


def is_alive(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


# What is reserved


def test_a_port_for_every_task_inside_the_contracts_range(place):
    with place.engine.reserve(place.job()) as reservation:
        assert len(set(reservation.ports)) == 4
        assert all(5000 <= port <= 10000 for port in reservation.ports)
        assert not any(is_free(port) for port in reservation.ports)
    assert all(is_free(port) for port in reservation.ports)


def test_a_single_task_needs_no_port(place):
    with place.engine.reserve(place.job(nodes=1)) as reservation:
        assert reservation.ports == ()


def test_the_nodes_are_carved_of_this_machine(place):
    machine = look()
    with place.engine.reserve(place.job()) as reservation:
        assert len(reservation.nodes) == 2
        for node in reservation.nodes:
            assert set(node.capacity.cores) <= set(machine.cores)
        assert reservation.nics == machine.nics


def test_a_reservation_that_is_left_leaves_nothing_open(place):
    def left():
        with place.engine.reserve(place.job()):
            pass
        return sorted(Path("/dev/fd").iterdir())

    assert left() == left()


def test_a_reservation_is_given_back_when_something_goes_wrong(place):
    with pytest.raises(ZeroDivisionError), place.engine.reserve(place.job()) as reservation:
        raise ZeroDivisionError
    assert all(is_free(port) for port in reservation.ports)


def test_a_submission_waits_until_the_one_before_has_chosen(place):
    order = []

    def second():
        with place.engine.reserve(place.job()):
            order.append("second")

    with place.engine.reserve(place.job()):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


@linux
def test_a_run_prefers_cores_that_no_other_uses(place):
    cores = look().cores
    if len(cores) < 2:
        pytest.skip("one core")
    with Ledger(place.path / "ledger") as other:
        other.take(cores[:1], ())
        other.end_turn()
        one_core = place.job(nodes=1, flavor=Flavor("cpu-1c1g", None, 0, 1, 1024))
        with place.engine.reserve(one_core) as reservation:
            assert reservation.nodes[0].capacity.cores == (cores[1],)


# How a run goes


def test_a_run_from_its_plan_to_its_success(place):
    directory = place.start(place.job())
    state = place.end(directory)
    assert state.phase == "succeeded", directory.supervisor_log_path.read_text()
    assert sorted(place.logs(directory)) == ["task ps\n"] * 2 + ["task worker\n"] * 2


def test_a_started_run_has_its_supervisor(place):
    directory = place.start(place.job(JOIN))
    assert directory.is_held()
    assert is_alive(supervisor(directory))


def test_starting_leaves_this_process_without_children(place):
    before = psutil.Process().children(recursive=True)
    place.running(place.start(place.job(JOIN)))
    assert psutil.Process().children(recursive=True) == before


def test_starting_leaves_nothing_open_here(place):
    def started(run):
        place.end(place.start(place.job(), run))
        return sorted(Path("/dev/fd").iterdir())

    assert started("first") == started("second")


def test_a_run_holds_its_ports_for_its_life_and_its_tasks_can_use_them(place):
    serves = """
        import os, socket, time
        host, port = os.environ["MINE"].split(":")
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("0.0.0.0", int(port)))
            server.listen()
            print("joined", flush=True)
            time.sleep(600)
    """
    wrapper = textwrap.dedent("""
        import json, os
        task = json.loads(os.environ["TF_CONFIG"])
        os.environ["MINE"] = task["cluster"][task["task"]["type"]][task["task"]["index"]]
    """)
    directory = place.start(place.job(wrapper + textwrap.dedent(serves)))
    place.running(directory)
    addresses = [task.address for task in place.plans[directory.path].tasks]
    for address in addresses:
        host, port = address.split(":")
        socket.create_connection((host, int(port))).close()
        assert not is_free(int(port))
    place.engine.stop(directory, "the test")
    assert place.end(directory).phase == "stopped"
    assert all(is_free(int(address.split(":")[1])) for address in addresses)


def test_two_runs_at_once_have_different_ports(place):
    first = place.running(place.start(place.job(JOIN), "first"))
    second = place.running(place.start(place.job(JOIN), "second"))
    addresses = [task.address for run in (first, second) for task in place.plans[run.path].tasks]
    assert len({address.split(":")[1] for address in addresses}) == 8


@linux
def test_a_run_uses_its_cores_until_it_ends(place):
    cores = look().cores
    job = place.job(JOIN, nodes=1, flavor=Flavor("cpu-1c1g", None, 0, 1, 1024))

    def next_cores():
        with place.engine.reserve(job) as reservation:
            return reservation.nodes[0].capacity.cores

    directory = place.running(place.start(job))
    (task,) = place.plans[directory.path].tasks
    pid = until(lambda: place.state(directory).tasks[task.name].pid, "it has started")
    assert set(os.sched_getaffinity(pid)) == set(task.granted.cores) == {cores[0]}
    if len(cores) > 1:
        assert next_cores() == (cores[1],)
    place.engine.stop(directory, "the test")
    place.end(directory)
    assert next_cores() == (cores[0],)


@linux
def test_the_environment_is_in_no_file_and_no_command_line(place):
    directory = place.running(place.start(place.job(JOIN)))
    files = [path for path in directory.path.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not [path for path in files if SECRET in path.read_text()]
    proc = Path(f"/proc/{supervisor(directory)}")
    assert SECRET.encode() not in (proc / "cmdline").read_bytes() + (proc / "environ").read_bytes()


def test_stopping_a_run_that_is_over_changes_nothing(place):
    directory = place.start(place.job())
    state = place.end(directory)
    place.engine.stop(directory, "the test")
    place.engine.settle(directory)
    assert place.state(directory) == state


def test_a_run_outlives_the_process_that_started_it(place):
    script = textwrap.dedent("""
        import json, sys, time
        from pathlib import Path
        sys.path.insert(0, sys.argv[1])
        from test_local_engine import JOIN, Place
        place = Place(Path(sys.argv[2]))
        print(place.running(place.start(place.job(JOIN))).path, flush=True)
        time.sleep(600)
    """)
    inner = place.path / "inner"
    starter = subprocess.Popen(
        [sys.executable, "-c", script, str(Path(__file__).parent), str(inner)],
        stdout=subprocess.PIPE,
    )
    with starter:
        directory = RunDir(starter.stdout.readline().decode().strip())
        starter.kill()
    assert directory.is_held()
    assert is_alive(supervisor(directory))
    place.engine.stop(directory, "the test")
    until(lambda: not directory.is_held(), "the run is over")
    last = directory.read_events()[0][-1]
    assert isinstance(last, Finished)
    assert last.phase == "stopped"


# What cannot be started


def test_a_supervisor_that_cannot_be_started_leaves_no_run(place, monkeypatch, tmp_path):
    monkeypatch.setattr(local, "SUPERVISOR", tmp_path / "missing.py")
    before = sorted(Path("/dev/fd").iterdir())
    with pytest.raises(UnavailableError, match="the run's supervisor could not be started"):
        place.start(place.job())
    assert list((tmp_path / "runs").iterdir()) == []
    assert sorted(Path("/dev/fd").iterdir()) == before


def test_a_supervisor_that_says_nothing_is_given_up(place, monkeypatch, tmp_path):
    silent = tmp_path / "silent.py"
    silent.write_text("import time; time.sleep(600)")
    monkeypatch.setattr(local, "SUPERVISOR", silent)
    monkeypatch.setattr(local, "START_PATIENCE", 0.2)
    with pytest.raises(UnavailableError, match="no answer within"):
        place.start(place.job())
    assert list((tmp_path / "runs").iterdir()) == []


def test_an_interrupt_while_a_run_is_started_leaves_none_running(place, monkeypatch):
    communicate = subprocess.Popen.communicate

    def interrupted(launcher, message, **options):
        communicate(launcher, message, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        place.start(place.job(JOIN))
    monkeypatch.undo()
    (directory,) = map(RunDir, place.plans)
    state = place.end(directory)
    assert state.phase == "stopped"
    assert state.reason == "stopped by an interrupt while it was started"


@pytest.mark.parametrize("refused", ["request_stop", "remove", "is_held"])
def test_what_cannot_be_cleaned_up_after_a_failed_start_hides_nothing_and_holds_nothing(
    place, monkeypatch, tmp_path, refused
):
    def full(*_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local, "SUPERVISOR", tmp_path / "missing.py")
    monkeypatch.setattr(RunDir, refused, full)
    before = sorted(Path("/dev/fd").iterdir())
    with pytest.raises(UnavailableError, match="the run's supervisor could not be started"):
        place.start(place.job())
    assert sorted(Path("/dev/fd").iterdir()) == before
    monkeypatch.undo()
    left = list((tmp_path / "runs").iterdir())
    assert (left == []) == (refused == "request_stop")
    for directory in map(RunDir, left):  # nobody holds it, so it is not pending for ever
        place.engine.settle(directory)
        assert place.state(directory).phase == "lost"


# What is lost


@linux
def test_after_a_kill_of_the_supervisor_the_run_is_lost_and_nothing_of_it_is_left(place):
    directory = place.start(place.job(LEAVES_A_CHILD))
    left = children(directory, place)
    pids = [task.pid for task in place.state(directory).tasks.values()]
    kill_supervisor(directory)
    until(lambda: not any(map(is_alive, pids)), "the tasks are gone")
    assert all(map(is_alive, left))  # in sessions of their own, they have a parent of their own
    place.engine.settle(directory)
    state = place.state(directory)
    assert state.phase == "lost"
    assert state.reason == lifecycle.SUPERVISOR_DIED
    assert not any(map(is_alive, left))
    (orphans,) = [e for e in directory.read_events()[0] if isinstance(e, OrphansEnded)]
    assert set(left) <= set(orphans.pids)
    assert not directory.is_held()


@linux
def test_what_has_scrubbed_its_environment_is_found_by_the_runs_group(place):
    directory = place.start(place.job(LEAVES_A_SCRUBBED_CHILD))
    left = children(directory, place)
    (group,) = [e.cgroup for e in directory.read_events()[0] if isinstance(e, Supervised)]
    kill_supervisor(directory)
    try:
        if group is None:
            pytest.skip("no cgroup v2 can be made here")
        until(lambda: set(left) == set(cgroups.members(Path(group))), "the tasks are gone")
        assert processes.marked(str(directory.path)) == []
        place.engine.settle(directory)
        assert not any(map(is_alive, left))
        (orphans,) = [e for e in directory.read_events()[0] if isinstance(e, OrphansEnded)]
        assert set(orphans.pids) == set(left)
        assert not Path(group).exists()
    finally:
        for pid in filter(is_alive, left):
            os.kill(pid, signal.SIGKILL)


@linux
def test_a_run_of_the_same_name_elsewhere_is_not_touched(place):
    mine = place.start(place.job(LEAVES_A_CHILD), "run", home="mine")
    other = place.start(place.job(LEAVES_A_CHILD), "run", home="other")
    others = children(other, place)
    children(mine, place)
    kill_supervisor(mine)
    place.engine.settle(mine)
    assert place.state(mine).phase == "lost"
    assert place.state(other).phase == "running"
    assert all(map(is_alive, others))


def test_a_run_that_goes_on_is_not_settled(place):
    directory = place.running(place.start(place.job(JOIN)))
    place.engine.settle(directory)
    assert place.state(directory).phase == "running"


def test_a_run_that_never_got_a_supervisor_is_lost(place, tmp_path):
    (tmp_path / "train.py").write_text("")
    boot_file = tmp_path / "train.py"
    directory, lock = RunDir.create(tmp_path / "runs", "run", "{}", boot_file, time.time())
    place.engine.settle(directory)
    assert not any(isinstance(event, Finished) for event in directory.read_events()[0])
    os.close(lock)
    place.engine.settle(directory)
    state = lifecycle.begin({"worker-0": "worker"}, 10.0, None)
    state = lifecycle.fold(state, directory.read_events()[0])
    assert (state.phase, state.reason) == ("lost", "it was never started")


def test_whoever_notices_first_settles_and_nobody_does_it_twice(place):
    directory = place.running(place.start(place.job(JOIN)))
    kill_supervisor(directory)
    barrier = threading.Barrier(8)

    def settle():
        barrier.wait()
        place.engine.settle(directory)

    with ExitStack() as stack:
        for _ in range(8):
            thread = threading.Thread(target=settle)
            stack.callback(thread.join)
            thread.start()
    place.engine.settle(directory)
    assert [event.phase for event in directory.read_events()[0] if isinstance(event, Finished)] == [
        "lost"
    ]


def test_a_run_that_another_settles_just_before_is_left_as_it_is(place, monkeypatch):
    directory = place.running(place.start(place.job(JOIN)))
    kill_supervisor(directory)
    take_lock = RunDir.take_lock

    def too_late(self):
        monkeypatch.undo()
        place.engine.settle(directory)
        return take_lock(self)

    monkeypatch.setattr(RunDir, "take_lock", too_late)
    place.engine.settle(directory)
    assert sum(isinstance(event, Finished) for event in directory.read_events()[0]) == 1


def test_a_lost_run_whose_last_line_is_torn_is_settled(place):
    directory = place.running(place.start(place.job(JOIN)))
    kill_supervisor(directory)
    with directory.events_path.open("ab") as file:
        file.write(b'{"kind": "task_exi')
    place.engine.settle(directory)
    assert place.state(directory).phase == "lost"


def test_every_line_of_the_events_is_json_that_a_person_can_read(place):
    directory = place.start(place.job())
    place.end(directory)
    lines = directory.events_path.read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines][:2] == ["created", "supervised"]
