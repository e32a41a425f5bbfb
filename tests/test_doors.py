"""One behaviour through every door: the service in this process, and behind a Jupyter server."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import sys
import time
from pathlib import Path

import pytest
from conftest import alive, over, until, whole_logs

from tfjob_magic.client import connect
from tfjob_magic.client.server import ServerJobs
from tfjob_magic.errors import ConflictError, InUseError, InvalidJobError, NotFoundError
from tfjob_magic.service import Submission
from tfjob_magic.service.inprocess import MOST_BYTES, Service

FOREVER = "import time; print('begun', flush=True); time.sleep(600)"


@pytest.fixture(params=["in this process", "through the server"])
def jobs(request, monkeypatch, home):
    if request.param == "in this process":
        return connect({})
    server = request.getfixturevalue("server")
    monkeypatch.setenv("TFJOB_HOME", str(server.home))
    found = connect({"TFJOB_SOCKET": str(server.socket)})
    assert isinstance(found, ServerJobs)
    return found


@pytest.fixture
def running(jobs, job):
    """Start a run that goes on until it is stopped, and wait until its task has printed."""
    started = []

    def start(program: str = FOREVER, **fields):
        run = jobs.submit(job(program, **fields))
        started.append(run.id)
        until(lambda: jobs.poll(run.id, {}).chunks)
        return run

    yield start
    for run in started:
        if not jobs.run(run).over:
            jobs.stop(run, 0.0)
            over(jobs, run)


def test_a_job_runs_to_its_end_with_its_whole_log(jobs, job):
    run = jobs.submit(job("for i in range(3): print('line', i)"))
    ended = over(jobs, run.id)
    assert ended.phase == "succeeded"
    assert ended.cause is None
    assert [(task.name, task.code) for task in ended.tasks] == [("worker-0", 0)]
    assert whole_logs(jobs, run.id) == {"worker-0": b"line 0\nline 1\nline 2\n"}
    assert Path(ended.tasks[0].log).read_bytes() == b"line 0\nline 1\nline 2\n"


def test_a_ps_is_ended_with_the_workers(jobs, job):
    program = "import os, time; time.sleep(600 if os.environ['MA_TASK_NAME'] == 'ps' else 0)"
    run = over(jobs, jobs.submit(job(program, nodes=2)).id)
    assert run.phase == "succeeded"
    assert sorted(task.name for task in run.tasks) == ["ps-0", "ps-1", "worker-0", "worker-1"]


def test_the_run_says_what_it_is(jobs, job, tmp_path):
    before = time.time()
    run = over(jobs, jobs.submit(job(name="my-net", nodes=2)).id)
    assert re.fullmatch(r"my-net-[a-z2-7]{5}", run.id)
    assert (run.name, run.engine, run.nodes, run.flavor) == ("my-net", "local", 2, "cpu-4c8g")
    assert run.network == "container"
    assert run.code_dir == str(tmp_path / "user-job-dir" / "train")
    assert run.boot_file == "train.py"
    assert before <= run.created <= run.ended <= time.time()
    assert Path(run.directory).stat().st_mode & 0o777 == 0o700
    assert run.notes == jobs.plan(run.id).notes


def test_a_job_is_named_after_its_code_dir(jobs, job):
    assert over(jobs, jobs.submit(job(code_dir="My Net")).id).name == "my-net"


def test_a_preview_starts_and_writes_nothing(jobs, job, tmp_path):
    runs = jobs.runs()
    plan = jobs.preview(job(nodes=2))
    assert [task.name for task in plan.tasks] == ["ps-0", "ps-1", "worker-0", "worker-1"]
    assert plan.tasks[0].cwd == str(tmp_path / "user-job-dir" / "train")
    assert jobs.runs() == runs
    assert not (tmp_path / "user-job-dir").exists()


def test_a_preview_is_what_is_then_started(jobs, job):
    asked = job(nodes=2, parameters=["--epochs", "5"])
    previewed, started = jobs.preview(asked), jobs.plan(jobs.submit(asked).id)
    assert previewed.job == started.job
    assert previewed.network == started.network
    assert previewed.notes == started.notes
    assert [task.argv[-2:] for task in started.tasks] == [("--epochs", "5")] * 4


def test_all_that_is_wrong_is_said_at_once(jobs, job, tmp_path):
    with pytest.raises(InvalidJobError) as caught:
        jobs.submit(job(nodes=0, flavor="v100x7x", pool="swimming"))
    assert {problem.field for problem in caught.value.problems} == {"nodes", "flavor", "pool"}
    assert not (tmp_path / "user-job-dir").exists()


def test_a_cell_that_python_cannot_run_is_refused_with_its_line(jobs, job, tmp_path):
    with pytest.raises(InvalidJobError, match="line 3"):
        jobs.submit(job("x = 1\nx = = 2"))
    assert not (tmp_path / "user-job-dir").exists()


def test_a_file_of_the_user_is_never_overwritten(jobs, job, tmp_path):
    mine = tmp_path / "user-job-dir" / "train" / "train.py"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    runs = jobs.runs()
    with pytest.raises(ConflictError, match=r"train\.py.*--code-dir"):
        jobs.submit(job())
    assert mine.read_text() == "mine"
    assert jobs.runs() == runs


def test_a_boot_file_that_is_there_runs_where_it_is(jobs, job, tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "main.py").write_text("import part; print(part.name, __file__)")
    (tmp_path / "net" / "part.py").write_text("name = 'a part'")
    asked = job(job_dir=str(tmp_path), code_dir="net", boot_file="main.py")
    run = over(jobs, jobs.submit(dataclasses.replace(asked, source=None)).id)
    assert run.phase == "succeeded"
    assert whole_logs(jobs, run.id)["worker-0"].split()[:2] == [b"a", b"part"]
    assert not (tmp_path / "net" / ".tfjob.json").exists()


def test_a_boot_file_that_is_not_there_is_refused(jobs, job, tmp_path):
    asked = dataclasses.replace(job(boot_file="nothing.py"), source=None)
    for ask in (jobs.preview, jobs.submit):
        with pytest.raises(InvalidJobError, match=r"boot_file: .*nothing\.py"):
            ask(asked)
    assert not (tmp_path / "user-job-dir").exists()


def test_a_code_dir_in_use_is_refused_and_names_the_run(jobs, job, running, tmp_path):
    run = running()
    with pytest.raises(InUseError, match=rf"in use by {run.id}.*--replace") as caught:
        jobs.submit(job("print('second')"))
    assert caught.value.run == run.id
    boot_file = tmp_path / "user-job-dir" / "train" / "train.py"
    assert "second" not in boot_file.read_text()
    assert not jobs.run(run.id).over


def test_a_code_dir_is_free_again_after_a_run(jobs, job):
    for text in ("one", "two"):
        run = over(jobs, jobs.submit(job(f"print({text!r})")).id)
        assert whole_logs(jobs, run.id) == {"worker-0": f"{text}\n".encode()}


def test_runs_are_listed_newest_first(jobs, job):
    ids = [over(jobs, jobs.submit(job(code_dir=name)).id).id for name in ("a", "b", "c")]
    assert [run.id for run in jobs.runs()][:3] == ids[::-1]


def test_a_run_is_found_by_its_id_a_prefix_and_as_the_last(jobs, job):
    run = over(jobs, jobs.submit(job(name="a-rather-special-name")).id)
    assert jobs.run(run.id) == run
    assert jobs.run("a-rather-special") == run
    assert jobs.run("last") == run


def test_a_prefix_of_several_runs_names_them(jobs, job):
    ids = [over(jobs, jobs.submit(job(name="twins")).id).id for _ in range(2)]
    with pytest.raises(NotFoundError) as caught:
        jobs.run("twins")
    assert all(run in str(caught.value) for run in ids)
    for run in ids:
        jobs.remove(run)


@pytest.mark.parametrize(
    "name", ["nosuchrun", "", "..", "../..", "/etc", "a/b", "%2e%2e", "ü", "."]
)
def test_a_run_that_is_not_there_is_not_found(jobs, name):
    for ask in (jobs.run, jobs.plan, jobs.stop, jobs.remove, lambda run: jobs.poll(run, {})):
        with pytest.raises(NotFoundError):
            ask(name)


def test_a_mistyped_run_is_answered_by_the_nearest(jobs, job):
    run = over(jobs, jobs.submit(job(name="mnist")).id)
    mistyped = run.id[:-1] + ("a" if run.id[-1] != "a" else "b")
    with pytest.raises(NotFoundError, match=run.id):
        jobs.run(mistyped)


def test_stop_returns_at_once_and_the_run_ends_as_stopped(jobs, running):
    run = running()
    pid = jobs.run(run.id).tasks[0].pid
    jobs.stop(run.id)
    ended = over(jobs, run.id)
    assert ended.phase == "stopped"
    assert ended.reason == "stopped by the user"
    assert not alive(pid)


def test_stopping_a_run_that_is_over_changes_nothing(jobs, job):
    run = over(jobs, jobs.submit(job()).id)
    assert jobs.stop(run.id) == run


def test_a_grace_of_zero_kills_at_once(jobs, running):
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + FOREVER
    run = running(stubborn, grace=600)
    jobs.stop(run.id, 0.0)
    ended = over(jobs, run.id)
    assert ended.phase == "stopped"
    assert ended.tasks[0].signal == 9


def test_a_live_run_is_not_removed(jobs, running):
    run = running()
    with pytest.raises(ConflictError, match="stop it"):
        jobs.remove(run.id)
    assert Path(run.directory).is_dir()


def test_remove_deletes_the_run_directory_and_never_the_code_dir(jobs, job):
    run = over(jobs, jobs.submit(job()).id)
    jobs.remove(run.id)
    assert not Path(run.directory).exists()
    assert Path(run.code_dir, "train.py").is_file()
    with pytest.raises(NotFoundError):
        jobs.run(run.id)


def test_a_poll_reads_from_its_cursors(jobs, job):
    run = over(jobs, jobs.submit(job("print('0123456789', end='')")).id)
    (chunk,) = jobs.poll(run.id, {"worker-0": 4}).chunks
    assert (chunk.task, chunk.offset, chunk.data) == ("worker-0", 4, b"456789")
    assert jobs.poll(run.id, {"worker-0": 10}).chunks == ()
    assert jobs.poll(run.id, {"worker-0": 10_000}).chunks == ()


def test_a_poll_waits_for_news(jobs, running):
    program = """
import os, time
print('begun', flush=True)
while not os.path.exists('go'): time.sleep(0.01)
print('more', flush=True)
time.sleep(600)
"""
    run = running(program)
    cursors = {"worker-0": len("begun\n")}
    assert jobs.poll(run.id, cursors, 0.2).chunks == ()
    Path(run.code_dir, "go").touch()
    (chunk,) = jobs.poll(run.id, cursors, 10.0).chunks
    assert chunk.data == b"more\n"


def test_a_poll_that_sees_the_end_misses_no_output(jobs, job):
    run = jobs.submit(job("print('x' * 3_000_000, end='')"))
    size, batch = 0, None
    while batch is None or not batch.run.over or batch.chunks:
        batch = jobs.poll(run.id, {"worker-0": size}, 1.0)
        size += sum(len(chunk.data) for chunk in batch.chunks)
    assert size == 3_000_000


def test_a_batch_is_bounded_and_shared_fairly(jobs, job):
    program = """
import os
print('x' * (10 if os.environ['MA_TASK_NAME'] == 'ps' else 3_000_000), end='')
"""
    run = over(jobs, jobs.submit(job(program, nodes=2)).id)
    sizes = {chunk.task: len(chunk.data) for chunk in jobs.poll(run.id, {}).chunks}
    assert sizes["ps-0"] == sizes["ps-1"] == 10
    assert sum(sizes.values()) == MOST_BYTES
    assert abs(sizes["worker-0"] - sizes["worker-1"]) <= 1


def test_bytes_that_are_not_text_pass_unchanged(jobs, job):
    program = "import sys; sys.stdout.buffer.write(bytes(range(256)))"
    run = over(jobs, jobs.submit(job(program)).id)
    assert whole_logs(jobs, run.id) == {"worker-0": bytes(range(256))}


def test_the_callers_environment_reaches_the_tasks_and_no_file(jobs, job):
    program = "import os; print(len(os.environ['CALLERS']), len(os.environ['OWN']))"
    asked = job(program, env={"OWN": "own-secret"})
    asked.environment["CALLERS"] = "callers-secret"
    run = over(jobs, jobs.submit(asked).id)
    assert whole_logs(jobs, run.id) == {"worker-0": b"14 10\n"}
    files = [path for path in Path(run.directory).rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"secret" in path.read_bytes()]
    assert "secret" not in str(jobs.plan(run.id))


def test_a_failing_job_is_failed(jobs, job):
    run = over(jobs, jobs.submit(job("raise SystemExit(3)")).id)
    assert run.phase == "failed"
    assert run.tasks[0].code == 3


def test_the_cause_of_a_failure_is_told(jobs, job):
    program = """
import os, time
if os.environ['VC_TASK_INDEX'] == '1' and os.environ['MA_TASK_NAME'] == 'worker':
    raise ValueError('no such layer')
time.sleep(600)
"""
    run = over(jobs, jobs.submit(job(program, nodes=2)).id)
    assert run.phase == "failed"
    assert run.cause.task == "worker-1"
    assert "code 1" in run.cause.words
    assert run.cause.error == "ValueError: no such layer"
    assert any("no such layer" in line for line in run.cause.lines)
    assert run.cause.same == ()
    assert run.cause.log == next(task.log for task in run.tasks if task.name == "worker-1")


def test_the_same_error_of_all_tasks_is_told_once(jobs, job):
    run = over(jobs, jobs.submit(job("import nosuchmodule", nodes=2)).id)
    assert "nosuchmodule" in run.cause.error
    named = {run.cause.task, *run.cause.same}
    assert named <= {task.name for task in run.tasks}
    assert run.cause.task not in run.cause.same


@pytest.mark.parametrize(
    "name", ["a b", "it's", 'a"b', "new\nline", "grüße 火", "$HOME", "-rf", "%s"]
)
def test_awkward_names_are_only_names(jobs, job, name, tmp_path):
    program = "import os, sys; print(repr(os.getcwd()), sys.argv[1:])"
    asked = job(program, code_dir=name, job_dir=str(tmp_path / name), parameters=[name, "a b"])
    run = over(jobs, jobs.submit(asked).id)
    assert run.phase == "succeeded"
    printed = whole_logs(jobs, run.id)["worker-0"].decode()
    assert printed == f"{str(tmp_path / name / name)!r} {[name, 'a b']}\n"


def test_a_variable_that_is_not_utf8_reaches_the_tasks_and_a_parameter_is_refused(jobs, job):
    odd = "caf\udce9"  # as Python sees the byte E9
    asked = job("import os; print(os.environb[b'ODD'])")
    asked.environment["ODD"] = odd
    run = over(jobs, jobs.submit(asked).id)
    assert whole_logs(jobs, run.id) == {"worker-0": b"b'caf\\xe9'\n"}
    with pytest.raises(InvalidJobError, match=r"parameters.*valid Unicode"):
        jobs.submit(job(parameters=[odd]))


UNLIKELY_NAMES = ["", "\udcff", "\ud800", "a\0b", "x" * 5000, "-", "%", "ü" * 300, "last "]


@pytest.mark.parametrize("name", UNLIKELY_NAMES, ids=range(len(UNLIKELY_NAMES)))
@pytest.mark.parametrize("method", ["run", "plan", "stop", "remove", "poll"])
def test_a_name_that_no_run_can_have_is_not_found(jobs, method, name):
    rest = ({},) if method == "poll" else ()
    with pytest.raises(NotFoundError):
        getattr(jobs, method)(name, *rest)


@pytest.mark.parametrize("grace", [math.nan, math.inf, -math.inf, -1, -0.001, 1e300])
def test_a_grace_that_cannot_be_is_refused_and_stops_nothing(jobs, running, grace):
    run = running()
    with pytest.raises(InvalidJobError, match=r"grace: .*--grace takes seconds, 0 or more"):
        jobs.stop(run.id, grace)
    assert jobs.run(run.id).phase == "running"


@pytest.mark.parametrize(
    ("cursors", "wait", "field"),
    [
        ({"worker-0": -1}, 0.0, "cursors"),
        ({"ps-9": -(10**30)}, 0.0, "cursors"),
        ({}, math.nan, "wait"),
        ({}, -1.0, "wait"),
        ({}, -math.inf, "wait"),
    ],
)
def test_a_poll_that_cannot_be_is_refused(jobs, job, cursors, wait, field):
    run = jobs.submit(job())
    with pytest.raises(InvalidJobError, match=rf"{field}: .*0 or more"):
        jobs.poll(run.id, cursors, wait)


def test_a_cursor_beyond_all_logs_and_an_endless_wait_are_possible(jobs, job):
    run = over(jobs, jobs.submit(job()).id)
    assert jobs.poll(run.id, {"worker-0": 10**30, "nobody-9": 3}, math.inf).chunks == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("grace", math.nan),
        ("timeout", math.inf),
        ("nodes", object()),
        ("name", "\ud800"),
        ("code_dir", "a\0"),
        ("env", {"A": object()}),
        ("parameters", [math.nan, {}]),
        ("colour", "red"),
    ],
    ids=ascii,
)
@pytest.mark.parametrize("method", ["preview", "submit"])
def test_a_job_that_cannot_be_is_refused(jobs, job, method, field, value):
    with pytest.raises(InvalidJobError):
        getattr(jobs, method)(job(**{field: value}))


@pytest.mark.parametrize("source", ["a = '\0'", "a = '\udcff'", "(" * 5000], ids=range(3))
def test_a_source_that_cannot_be_is_refused(jobs, job, source):
    with pytest.raises(InvalidJobError):
        jobs.submit(dataclasses.replace(job(), source=source))


@pytest.mark.parametrize(
    "variable",
    [
        ("", "s3cr3t"),
        ("A=B", "s3cr3t"),
        ("A\0", "s3cr3t"),
        ("A", "s3cr3t\0"),
        ("A", "s3cr3t\ud800"),
        ("A", "s3cr3t" * 30_000),
    ],
    ids=range(6),
)
def test_an_environment_that_no_program_can_have_is_refused_and_not_shown(jobs, job, variable):
    asked = job()
    asked.environment.update([variable])
    with pytest.raises(InvalidJobError, match="environment: the variable") as caught:
        jobs.submit(asked)
    assert "s3cr3t" not in str(caught.value)


def test_a_boot_file_whose_path_no_system_has_is_refused(jobs, job):
    asked = dataclasses.replace(job(job_dir="/" + "a" * 3000), source=None)
    for ask in (jobs.preview, jobs.submit):
        with pytest.raises(InvalidJobError, match="boot_file"):
            ask(asked)


def test_the_flavors_are_listed(jobs):
    flavors = {flavor.name: flavor for flavor in jobs.flavors()}
    assert (flavors["v100x8"].cpus, flavors["v100x8"].memory_mib) == (72, 524288)


def test_a_job_without_an_environment_gets_the_services_own(jobs, job):
    asked = job("import os; print(bool(os.environ['PATH']))")
    run = over(jobs, jobs.submit(dataclasses.replace(asked, environment={})).id)
    assert whole_logs(jobs, run.id) == {"worker-0": b"True\n"}


def test_a_run_outlives_whoever_started_it(jobs, running):
    run = running()
    assert Service(Path(run.directory).parent).run(run.id).phase == "running"
    assert os.getsid(jobs.run(run.id).tasks[0].pid) != os.getsid(0)


def test_what_is_not_a_job_is_refused_field_by_field(jobs):
    with pytest.raises(InvalidJobError) as caught:
        jobs.submit(Submission(job={"nodes": [1], "colour": "red"}, source="x = 1"))
    fields = {problem.field for problem in caught.value.problems}
    assert {"nodes", "colour", "flavor", "job_dir", "code_dir"} <= fields


def test_a_program_that_cannot_be_started_is_failed_and_says_why(jobs, job, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    run = over(jobs, jobs.submit(job(python=str(broken))).id)
    assert run.phase == "failed"
    assert "could not be started" in (run.reason or "")
    assert sys.executable not in str(run.reason)
