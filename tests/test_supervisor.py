"""The supervisor with real processes and signals; tasks are tiny programs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import until

import tfjob_magic
from tfjob_magic.core import lifecycle
from tfjob_magic.core.events import (
    Created,
    DeadlinePassed,
    Finished,
    OrphansEnded,
    StopRequested,
    Supervised,
    TaskExited,
    TaskNotStarted,
    TaskStarted,
    TimedOut,
)
from tfjob_magic.core.launch import Launch, TaskLaunch, encode
from tfjob_magic.store import cgroups
from tfjob_magic.store.rundir import RunDir

PACKAGE = Path(tfjob_magic.__file__).parent
PATIENCE = 30.0  # seconds; an end to waiting, no verdict on speed

JOIN = "import time; print('joined', flush=True); time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + JOIN
DONE = "print('done')"

linux = pytest.mark.skipif(sys.platform != "linux", reason="it is looked at through /proc")


def is_alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(b") ")[2][:1] not in b"ZX"


class Launched:
    """A run under a supervisor that was started as the engine does it."""

    def __init__(self, where, tasks, *, grace=10.0, timeout=None, **options):
        boot_file = where / "boot.py"
        boot_file.write_text("")
        run = options.get("run", "run")
        self.directory, self.lock = RunDir.create(where / "runs", run, "{}", boot_file, time.time())
        options.get("before", lambda _: None)(self.directory)
        self.tasks = tasks
        self.launch = Launch(grace, timeout, tuple(tasks))
        program = options.get("program") or [str(PACKAGE / "supervisor" / "__main__.py")]
        self.process = subprocess.run(
            [
                *(options.get("python", sys.executable), "-I", "-S", "-X", "utf8", *program),
                *(str(self.directory.path), str(self.lock)),
            ],
            input=encode(self.launch),
            capture_output=True,
            pass_fds=(self.lock, options.get("leaked", self.lock)),
            env={},
            check=False,
            timeout=PATIENCE,
        )
        os.close(self.lock)

    @property
    def events(self):
        return self.directory.read_events()[0]

    def find(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def state(self):
        roles = {task.name: task.role for task in self.tasks}
        first = lifecycle.begin(roles, self.launch.grace, self.launch.timeout)
        return lifecycle.fold(first, self.events)

    @property
    def supervisor(self):
        (supervised,) = self.find(Supervised)
        return supervised.pid

    def log(self, task):
        path = self.directory.log_path(f"{task}.log")
        return path.read_text() if path.exists() else ""

    def pid(self, task):
        return until(lambda: self.state.tasks[task].pid, f"{task} has started")

    def joined(self, *tasks):
        for task in tasks:
            until(lambda task=task: "joined" in self.log(task), f"{task} has joined")
        return self

    def end(self):
        until(lambda: not self.directory.is_held(), "the run is over")
        return self.state

    def kill(self):
        with suppress(IndexError, ValueError):
            self.directory.request_stop("the test", grace=0.0)
        self.end()
        for group in filter(None, (supervised.cgroup for supervised in self.find(Supervised))):
            cgroups.remove(Path(group))  # of a supervisor that was killed


@pytest.fixture
def launch(tmp_path):
    """Start a run of tiny programs, by task name; it is gone when the test is."""
    runs = []

    def start(programs, where=tmp_path, **options):
        tasks = [as_task(where, name, program) for name, program in programs.items()]
        tasks = [options.pop("change", lambda task: task)(task) for task in tasks]
        runs.append(Launched(where, tasks, **options))
        return runs[-1]

    yield start
    for run in runs:
        run.kill()


def as_task(where, name, program, **changed):
    """A task from the text of a Python program, or from an argument list."""
    argv = (sys.executable, "-c", program) if isinstance(program, str) else tuple(program)
    fields = {
        "name": name,
        "role": name.rpartition("-")[0],
        "argv": argv,
        "cwd": str(where),
        "log": f"{name}.log",
        "cores": (),
        "environment": {"GREETING": "hello", "PATH": os.environ["PATH"]},
    }
    return TaskLaunch(**{**fields, **changed})


# How a run ends


def test_workers_end_with_0_and_the_ps_that_joined_are_ended(launch):
    run = launch({"ps-0": JOIN, "ps-1": JOIN, "worker-0": DONE, "worker-1": DONE})
    state = run.end()
    assert state.phase == "succeeded"
    assert state.failures == ()
    assert [state.tasks[name].code for name in ("worker-0", "worker-1")] == [0, 0]
    assert all(state.tasks[name].ended_by_us for name in ("ps-0", "ps-1"))
    assert run.log("worker-0") == "done\n"


def test_the_first_event_is_created_and_the_last_is_finished(launch):
    run = launch({"worker-0": DONE})
    run.end()
    kinds = [type(event) for event in run.events]
    assert kinds == [Created, Supervised, TaskStarted, TaskExited, Finished]
    times = [event.time for event in run.events]
    assert times == sorted(times)


def test_a_supervisor_that_has_nothing_to_say_leaves_an_empty_log(launch):
    run = launch({"worker-0": "import sys; sys.exit(1)"})
    run.end()
    assert run.directory.supervisor_log_path.read_text() == ""


def test_a_failing_worker_ends_the_others_and_is_the_cause(launch):
    fails = "import pathlib, sys, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\n"
    run = launch({"ps-0": JOIN, "worker-0": JOIN, "worker-1": fails + "sys.exit(3)"})
    run.joined("ps-0", "worker-0")
    Path(run.tasks[0].cwd, "go").write_text("")
    state = run.end()
    assert (state.phase, state.cause) == ("failed", "worker-1")
    assert state.reason == "worker-1 exited with code 3"
    assert state.tasks["worker-0"].signal == state.tasks["ps-0"].signal == signal.SIGTERM
    assert state.tasks["worker-0"].ended < state.tasks["ps-0"].ended


@pytest.mark.parametrize("victim", ["ps-0", "worker-0"])
def test_a_task_that_is_killed_is_the_cause(launch, victim):
    run = launch({"ps-0": JOIN, "worker-0": JOIN}).joined("ps-0", "worker-0")
    os.kill(run.pid(victim), signal.SIGKILL)
    state = run.end()
    assert (state.phase, state.cause) == ("failed", victim)
    assert state.reason == f"{victim} was killed by SIGKILL"


def test_a_ps_that_exits_0_is_no_alarm(launch):
    waits = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\n"
    run = launch({"ps-0": DONE, "worker-0": waits})
    until(lambda: run.find(TaskExited), "the PS is gone")
    assert run.state.phase == "running"
    Path(run.tasks[0].cwd, "go").write_text("")
    assert run.end().phase == "succeeded"


def test_a_ps_that_ignores_sigterm_is_killed_when_the_grace_is_over(launch):
    run = launch({"ps-0": DEAF, "worker-0": JOIN}, grace=0.3).joined("ps-0", "worker-0")
    run.directory.request_stop("the test")
    state = run.end()
    assert state.phase == "stopped"
    assert state.tasks["worker-0"].signal == signal.SIGTERM
    assert state.tasks["ps-0"].signal == signal.SIGKILL


def test_a_stop_ends_as_stopped_and_says_who_asked(launch):
    run = launch({"ps-0": JOIN, "worker-0": JOIN}).joined("ps-0", "worker-0")
    run.directory.request_stop("the test")
    state = run.end()
    assert state.phase == "stopped"
    assert state.reason == "stopped by the test"
    assert run.find(StopRequested)[0].by == "the test"


def test_a_second_stop_without_grace_kills_at_once(launch):
    run = launch({"ps-0": DEAF, "worker-0": DEAF}, grace=600.0).joined("ps-0", "worker-0")
    run.directory.request_stop("the test")
    until(lambda: run.state.phase == "stopping", "the first request is heard")
    run.directory.request_stop("the test", grace=0.0)
    state = run.end()
    assert state.phase == "stopped"
    assert {task.signal for task in state.tasks.values()} == {signal.SIGKILL}


def test_a_stop_request_that_was_there_before_the_supervisor_is_heard(launch):
    run = launch({"worker-0": JOIN}, before=lambda directory: directory.request_stop("the test"))
    assert run.end().reason == "stopped by the test"


def test_a_request_that_cannot_be_read_ends_no_run(launch):
    run = launch({"worker-0": JOIN}).joined("worker-0")
    (run.directory.path / "requests" / "stop.json").write_text("{")
    os.kill(run.supervisor, signal.SIGCHLD)
    until((run.directory.path / "requests" / ".taken").exists, "it is taken")
    run.directory.request_stop("the test")
    assert run.end().reason == "stopped by the test"


@pytest.mark.parametrize("grace", ["NaN", "-1", "Infinity", "1e400", "1" + "0" * 400])
def test_a_grace_that_is_no_span_is_not_heard_and_a_later_stop_ends_the_run(launch, grace):
    run = launch({"worker-0": DEAF}).joined("worker-0")
    request = run.directory.path / "requests" / "stop.json"
    request.with_name("new").write_text(f'{{"by": "x", "grace": {grace}}}')
    request.with_name("new").rename(request)
    os.kill(run.supervisor, signal.SIGCHLD)
    until(lambda: run.state.phase == "stopping", "it is asked to stop")
    run.directory.request_stop("the test", grace=0.0)
    assert run.end().phase == "stopped"
    events = run.directory.read_events()[0]
    assert sum(isinstance(event, DeadlinePassed) for event in events) <= 1


def test_sigterm_to_the_supervisor_is_a_stop_request(launch):
    run = launch({"worker-0": JOIN}).joined("worker-0")
    os.kill(run.supervisor, signal.SIGTERM)
    state = run.end()
    assert state.phase == "stopped"
    assert state.reason == "stopped by SIGTERM to its supervisor"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGPIPE])
def test_an_interrupt_or_a_closed_terminal_is_nothing_to_the_supervisor(launch, number):
    run = launch({"worker-0": JOIN}).joined("worker-0")
    os.kill(run.supervisor, number)
    run.directory.request_stop("the test")
    assert run.end().reason == "stopped by the test"


def test_a_task_that_ignores_interrupts_is_ended_all_the_same(launch):
    immune = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN);" + JOIN
    run = launch({"worker-0": immune}).joined("worker-0")
    run.directory.request_stop("the test")
    assert run.end().tasks["worker-0"].signal == signal.SIGTERM


@linux
def test_a_task_that_is_stopped_hears_sigterm(launch):
    run = launch({"worker-0": JOIN}, grace=600.0).joined("worker-0")
    os.kill(run.pid("worker-0"), signal.SIGSTOP)
    run.directory.request_stop("the test")
    assert run.end().tasks["worker-0"].signal == signal.SIGTERM


def test_the_timeout_fails_the_job(launch):
    run = launch({"ps-0": JOIN, "worker-0": JOIN}, timeout=0.5)
    state = run.end()
    assert state.phase == "failed"
    assert state.cause is None
    assert state.reason == "the job's timeout of 0.5 s passed"
    assert len(run.find(TimedOut)) == 1


def test_a_worker_that_is_gone_at_once_is_not_missed(launch):
    run = launch({f"worker-{index}": ["/bin/true"] for index in range(20)})
    assert run.end().phase == "succeeded"


def test_64_tasks(launch):
    programs = {f"ps-{index}": ["/bin/sleep", "600"] for index in range(32)}
    programs |= {f"worker-{index}": ["/bin/echo", str(index)] for index in range(32)}
    run = launch(programs)
    state = run.end()
    assert state.phase == "succeeded"
    assert [run.log(f"worker-{index}") for index in range(32)] == [f"{i}\n" for i in range(32)]
    assert {state.tasks[f"ps-{index}"].signal for index in range(32)} == {signal.SIGTERM}


# What cannot be started


def test_an_interpreter_that_is_not_there_is_the_cause_in_the_systems_words(launch):
    run = launch({"ps-0": JOIN, "worker-0": ["/no/such/python", "train.py"]})
    state = run.end()
    assert (state.phase, state.cause) == ("failed", "worker-0")
    assert state.reason == (
        "worker-0 could not be started: /no/such/python: No such file or directory"
    )
    assert len(run.find(TaskNotStarted)) == 1
    assert state.tasks["ps-0"].signal == signal.SIGTERM


def test_a_working_directory_that_is_not_there_is_named(launch, tmp_path):
    gone = str(tmp_path / "gone")
    run = launch({"worker-0": DONE}, change=lambda task: as_task(gone, task.name, DONE))
    assert run.end().reason == f"worker-0 could not be started: {gone}: No such file or directory"


def test_a_program_that_is_no_program_is_named(launch, tmp_path):
    (tmp_path / "text").write_text("hello")
    (tmp_path / "text").chmod(0o700)
    run = launch({"worker-0": [str(tmp_path / "text")]})
    assert run.end().reason == (
        f"worker-0 could not be started: {tmp_path / 'text'}: Exec format error"
    )


def test_a_log_that_cannot_be_opened_is_named(launch, tmp_path):
    run = launch(
        {"worker-0": DONE}, change=lambda task: as_task(tmp_path, task.name, DONE, log="no/x.log")
    )
    assert "No such file or directory" in run.end().reason
    assert "no/x.log" in run.state.reason


def test_a_supervisor_that_cannot_write_events_says_so_and_is_not_there(tmp_path):
    program = textwrap.dedent("""
        import runpy, sys
        sys.path.append(sys.argv.pop(1))
        from pathlib import Path
        events = Path(sys.argv[1], "events.jsonl")
        events.unlink()
        events.mkdir()
        runpy.run_path(sys.argv.pop(), run_name="__main__")
    """)
    wrapped = Wrapped(tmp_path, program)
    assert wrapped.process.returncode == 1
    assert "Is a directory" in wrapped.process.stderr.decode()
    assert not wrapped.directory.is_held()


class Wrapped(Launched):
    """A run whose supervisor is started by a program of the test's."""

    def __init__(self, where, program, tasks=None):
        script = where / "wrapper.py"
        main = PACKAGE / "supervisor" / "__main__.py"
        arguments = f"sys.argv[1:1] = [{str(PACKAGE.parent)!r}]; sys.argv.append({str(main)!r})"
        script.write_text(f"import sys; {arguments}\n{program}")
        super().__init__(where, tasks or [as_task(where, "worker-0", DONE)], program=[str(script)])


def test_a_supervisor_that_breaks_says_why_and_takes_its_tasks_with_it(tmp_path):
    program = textwrap.dedent("""
        import runpy, sys
        sys.path.append(sys.argv.pop(1))
        from tfjob_magic.core import lifecycle
        advance = lifecycle.advance
        def broken(state, event):
            if event.kind == "task_exited":
                raise RuntimeError("it broke")
            return advance(state, event)
        lifecycle.advance = broken
        runpy.run_path(sys.argv.pop(), run_name="__main__")
    """)
    tasks = [as_task(tmp_path, "ps-0", DEAF), as_task(tmp_path, "worker-0", DONE)]
    run = Wrapped(tmp_path, program, tasks)
    state = run.end()
    assert run.process.returncode == 0
    assert not state.over
    assert "RuntimeError: it broke" in run.directory.supervisor_log_path.read_text()
    until(lambda: not is_alive(run.pid("ps-0")), "the PS is gone")
    run.kill()


def test_a_fork_may_become_its_task_without_exec(tmp_path):
    """The seam for processes that have imported TensorFlow already."""
    program = textwrap.dedent("""
        import os, sys
        sys.path.append(sys.argv.pop(1))
        from tfjob_magic.core.launch import decode
        from tfjob_magic.supervisor.detach import detached
        from tfjob_magic.supervisor.loop import supervise
        from tfjob_magic.supervisor.tasks import STARTED
        directory, held = sys.argv[1:3]
        launch = decode(sys.stdin.buffer.read())
        def become(task):
            os.close(STARTED)
            os.write(1, f"{task.name} {task.environment['GREETING']} {os.getcwd()}".encode())
            os._exit(0)
        sys.exit(detached(directory, lambda ready: supervise(
            directory, launch, (int(held),), become, ready)))
    """)
    run = Wrapped(tmp_path, program)
    assert run.process.returncode == 0, run.process.stderr
    assert run.end().phase == "succeeded"
    assert run.log("worker-0") == f"worker-0 hello {tmp_path}"


# What a task is given


def test_stdin_is_empty_and_stderr_goes_to_the_log(launch):
    program = "import sys; print(repr(sys.stdin.read())); print('oh', file=sys.stderr)"
    run = launch({"worker-0": program})
    run.end()
    assert sorted(run.log("worker-0").split()) == ["''", "oh"]


@linux
def test_a_task_inherits_no_descriptor_but_the_three(launch, tmp_path):
    with (tmp_path / "of the caller").open("w") as leaked:
        run = launch({"worker-0": ["/bin/ls", "/proc/self/fd"]}, leaked=leaked.fileno())
    run.end()
    assert run.log("worker-0").split() == ["0", "1", "2", "3"]  # 3 is the listing's own


def test_a_task_gets_its_environment_and_the_runs_mark_and_nothing_else(launch):
    run = launch({"worker-0": ["/usr/bin/env", "-0"]})
    run.end()
    assert dict(item.split("=", 1) for item in run.log("worker-0").split("\0")[:-1]) == {
        "GREETING": "hello",
        "PATH": os.environ["PATH"],
        "TFJOB_RUN_DIR": str(run.directory.path),
    }


@linux
def test_a_task_has_default_signals_a_session_of_its_own_and_its_cores(launch):
    core = min(os.sched_getaffinity(0))
    run = launch(
        {"worker-0": ["/bin/cat", "/proc/self/status", "/proc/self/stat"]},
        change=lambda task: as_task(task.cwd, task.name, task.argv, cores=(core,)),
    )
    run.end()
    status = dict(
        line.split(":\t", 1) for line in run.log("worker-0").splitlines() if ":\t" in line
    )
    assert {status[name] for name in ("SigBlk", "SigIgn", "SigCgt")} == {"0" * 16}
    assert status["Cpus_allowed_list"] == str(core)
    stat = run.log("worker-0").rpartition(") ")[2].split()
    assert stat[2] == stat[3] == status["Pid"]  # its process group and its session


@linux
def test_cores_that_cannot_be_had_are_a_note_and_no_failure(launch):
    run = launch(
        {"worker-0": DONE},
        change=lambda task: as_task(task.cwd, task.name, DONE, cores=(1023,)),
    )
    state = run.end()
    assert state.phase == "succeeded"
    assert state.notes == ("worker-0 could not be kept to cores 1023 (Invalid argument)",)


def test_a_log_holds_all_that_was_written_before_a_kill(launch):
    program = "import os\nfor n in range(20000): os.write(1, b'%d\\n' % n)\n" + JOIN
    run = launch({"worker-0": program}).joined("worker-0")
    os.kill(run.pid("worker-0"), signal.SIGKILL)
    run.end()
    assert run.log("worker-0").split() == [*map(str, range(20000)), "joined"]


def test_only_its_owner_can_read_a_log(launch):
    run = launch({"worker-0": DONE})
    run.end()
    assert run.directory.log_path("worker-0.log").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "name", ["a b", 'it\'s "so"', "line\nbreak", "日本語 ü", "$(x) `y`", "-rf"]
)
def test_awkward_paths_and_arguments_are_only_names(launch, tmp_path, name):
    where = tmp_path / name
    where.mkdir()
    program = "import os, sys; print(ascii([os.path.basename(os.getcwd()), *sys.argv[1:]]))"
    run = launch(
        {"worker-0": [sys.executable, "-c", program, name, "", "-"]}, where=where, run=name
    )
    assert run.end().phase == "succeeded"
    assert run.log("worker-0") == f"{[name, name, '', '-']!a}\n"


def test_a_name_that_is_no_utf_8_is_only_a_name(launch):
    odd = os.fsdecode(b"caf\xe9")
    program = "import os, sys; print(os.fsencode(sys.argv[1]), os.fsencode(os.environ['ODD']))"
    run = launch(
        {"worker-0": DONE},
        change=lambda task: as_task(
            task.cwd, task.name, [sys.executable, "-c", program, odd], environment={"ODD": odd}
        ),
    )
    run.end()
    assert run.log("worker-0") == "b'caf\\xe9' b'caf\\xe9'\n"


# What is left of it


def child_of(task_ends):
    """A program that leaves a child in a session of its own, and writes down its pid."""
    return textwrap.dedent(f"""
        import subprocess, sys
        child = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
        open("child", "w").write(str(child.pid))
        {task_ends}
    """)


def written_pid(run):
    path = Path(run.tasks[0].cwd, "child")
    return int(until(lambda: path.exists() and path.read_text(), "the child is there"))


@linux
@pytest.mark.parametrize("task_ends", ["sys.exit(0)", "sys.exit(1)", "child.wait()"])
def test_children_in_sessions_of_their_own_end_with_the_run(launch, task_ends):
    run = launch({"worker-0": child_of(task_ends)})
    child = written_pid(run)
    if "wait" in task_ends:
        run.directory.request_stop("the test")
    run.end()
    assert not is_alive(child)
    assert run.find(OrphansEnded) == [OrphansEnded(run.events[-2].time, pids=(child,))]


@linux
def test_a_child_that_ignores_sigterm_is_killed_when_the_grace_is_over(launch):
    deaf = "trap '' TERM; echo $$ > child; while :; do sleep 600; done"
    program = f"""
        import os, subprocess, time
        subprocess.Popen(["/bin/sh", "-c", {deaf!r}], start_new_session=True)
        while not os.path.exists("child") or not open("child").read(): time.sleep(0.01)
    """
    run = launch({"worker-0": textwrap.dedent(program)}, grace=0.3)
    state = run.end()
    assert state.phase == "succeeded"
    assert not is_alive(written_pid(run))


@linux
def test_a_stop_without_grace_does_not_wait_for_what_a_task_left_behind(launch):
    deaf = "trap '' TERM; echo $$ > child; while :; do sleep 600; done"
    program = f"""
        import os, subprocess, time
        subprocess.Popen(["/bin/sh", "-c", {deaf!r}], start_new_session=True)
        while not os.path.exists("child") or not open("child").read(): time.sleep(0.01)
    """
    run = launch({"worker-0": textwrap.dedent(program)}, grace=600.0)
    until(lambda: run.find(TaskExited), "the task is gone and its child is waited for")
    run.directory.request_stop("the test", grace=0.0)
    assert run.end().phase == "succeeded"
    assert not is_alive(written_pid(run))


SCRUBBED = """
import subprocess, time
child = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True, env={})
print("child", child.pid, flush=True)
time.sleep(600)
"""


@linux
def test_tasks_are_in_a_group_that_goes_with_the_run_where_one_can_be_made(launch):
    run = launch({"worker-0": "print(open('/proc/self/cgroup').read())"})
    run.end()
    (supervised,) = run.find(Supervised)
    if supervised.cgroup is None:
        pytest.skip("no cgroup v2 can be made here")
    assert f"/{Path(supervised.cgroup).name}\n" in run.log("worker-0")
    assert not Path(supervised.cgroup).exists()


@linux
@pytest.mark.parametrize("group", ["None", "pathlib.Path('/nowhere/tfjob')"])
def test_without_a_group_a_run_is_as_it_was(tmp_path, group):
    program = textwrap.dedent(f"""
        import pathlib, runpy, sys
        sys.path.append(sys.argv.pop(1))
        from tfjob_magic.store import cgroups
        cgroups.make = lambda directory: {group}
        runpy.run_path(sys.argv.pop(), run_name="__main__")
    """)
    run = Wrapped(tmp_path, program, [as_task(tmp_path, "worker-0", SCRUBBED)])
    until(lambda: "child" in run.log("worker-0"), "it has left a child")
    child = int(run.log("worker-0").split()[1])
    run.directory.request_stop("the test", grace=0.0)
    assert run.end().phase == "stopped"
    assert not is_alive(child)


@linux
def test_tasks_die_with_their_supervisor(launch):
    run = launch({"ps-0": DEAF, "worker-0": DEAF}).joined("ps-0", "worker-0")
    pids = [run.pid("ps-0"), run.pid("worker-0")]
    os.kill(run.supervisor, signal.SIGKILL)
    until(lambda: not any(map(is_alive, pids)), "the tasks are gone")
    until(lambda: not run.directory.is_held(), "the lock is free")
    assert not run.state.over


@linux
@pytest.mark.parametrize(("other", "said"), [(0, "before after"), (1, "before")])
def test_a_task_whose_supervisor_is_gone_before_it_could_be_bound_to_it_ends(other, said):
    program = f"""
import os
from tfjob_magic.supervisor.linux import die_with_parent
print("before", flush=True)
die_with_parent(os.getppid() + {other})
print("after", flush=True)
"""
    child = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=False)
    assert child.stdout.decode().split() == said.split()
    assert child.returncode == other


# The process itself


@linux
def test_the_supervisor_depends_on_nobody_and_holds_nothing_of_its_caller(launch):
    run = launch({"worker-0": JOIN}).joined("worker-0")
    proc = Path(f"/proc/{run.supervisor}")
    stat = (proc / "stat").read_text().rpartition(") ")[2].split()
    assert int(stat[1]) != os.getpid()
    assert int(stat[3]) == run.supervisor  # a session of its own
    assert str((proc / "cwd").readlink()) == "/"
    assert str((proc / "fd" / "0").readlink()) == "/dev/null"
    assert (proc / "fd" / "2").readlink() == run.directory.supervisor_log_path
    assert len(list((proc / "task").iterdir())) == 1  # a single thread
    assert b"hello" not in (proc / "cmdline").read_bytes() + (proc / "environ").read_bytes()


@linux
def test_a_supervisor_with_nothing_to_do_does_nothing(launch):
    run = launch({"worker-0": JOIN}).joined("worker-0")
    until(lambda: run.state.phase == "running", "all tasks have started")
    status = Path(f"/proc/{run.supervisor}/status")

    def wakeups():
        lines = status.read_text().splitlines()
        return [line for line in lines if line.startswith("voluntary_ctxt_switches")]

    def sleeps():
        before = wakeups()
        time.sleep(0.3)
        return wakeups() == before

    until(sleeps, "it sleeps without waking once")


def other_interpreters():
    """The oldest Python that a user may have, and the newest there is here."""
    found = []
    for minor in (10, 12, 13):
        name = f"python3.{minor}"
        by_pyenv = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        path = by_pyenv[-1] if by_pyenv else shutil.which(name)
        absent = pytest.mark.skipif(path is None, reason=f"there is no {name} here")
        found.append(pytest.param(path, id=name, marks=absent))
    return found


@pytest.mark.parametrize("python", other_interpreters())
def test_it_runs_in_the_interpreters_of_others(launch, python):
    run = launch(
        {"ps-0": JOIN, "worker-0": DONE, "worker-1": child_of("sys.exit(0)")}, python=python
    )
    assert run.process.returncode == 0, run.process.stderr
    state = run.end()
    assert state.phase == "succeeded"
    assert run.directory.supervisor_log_path.read_text() == ""
