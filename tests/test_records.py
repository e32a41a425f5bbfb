"""Runs as they are read: of any engine, with damaged files, many of them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import alive, over, until

from tfjob_magic.core.events import Created, Finished, encode
from tfjob_magic.engines.local import LocalEngine
from tfjob_magic.errors import ConflictError, NotFoundError, UnavailableError
from tfjob_magic.service.inprocess import Service
from tfjob_magic.service.records import Records
from tfjob_magic.store import rundir
from tfjob_magic.store.rundir import RunDir


@pytest.fixture
def service(home):
    return Service()


@pytest.fixture
def run(service, job):
    run = over(service, service.submit(job("print('hello')")).id)
    until(lambda: not RunDir(run.directory).is_held())
    return run


@contextmanager
def unfinished(run, engine="local"):
    """Make the run, for a while, one that nobody has and that has no last event."""
    path = Path(run.directory) / "events.jsonl"
    before = path.read_bytes()
    path.write_text(encode(Created(5.0, run.id, engine=engine)) + "\n")
    yield path
    path.write_bytes(before)


class Other(LocalEngine):
    """An engine of another name, which says what it was asked."""

    name = "other"

    def __init__(self):
        super().__init__()
        self.asked = []

    def settle(self, directory):
        self.asked.append(("settle", directory.id))

    def stop(self, directory, by, grace=None):
        self.asked.append(("stop", directory.id))


def test_a_run_says_the_engine_that_it_was_started_on(run):
    assert run.engine == "local"
    created = RunDir(run.directory).read_events()[0][0]
    assert isinstance(created, Created)
    assert created.engine == "local"


def test_a_run_from_before_engines_were_recorded_is_a_local_one(service, run):
    events = Path(run.directory) / "events.jsonl"
    events.write_text(events.read_text().replace(', "engine": "local"', ""))
    assert "engine" not in events.read_text()
    assert Service().run(run.id).engine == "local"


def test_a_run_of_another_engine_is_settled_and_stopped_by_that_one(run):
    with unfinished(run, "other"):
        other = Other()
        service = Service(engines={"local": LocalEngine(), "other": other})
        assert service.run(run.id).engine == "other"
        assert ("settle", run.id) in other.asked
        service.stop(run.id)
        assert ("stop", run.id) in other.asked
        assert not any(isinstance(e, Finished) for e in RunDir(run.directory).read_events()[0])


def test_a_run_of_an_engine_that_is_not_here_is_shown_and_left_alone(run):
    with unfinished(run, "slurm") as events:
        before = events.read_bytes()
        service = Service()
        (shown,) = service.runs()
        assert (shown.engine, shown.phase) == ("slurm", "pending")
        with pytest.raises(UnavailableError, match="engine 'slurm'"):
            service.stop(run.id)
        assert events.read_bytes() == before


@pytest.mark.parametrize(
    "damage", ["missing", "truncated", "[]", "null", "{}", "deep", "a directory"]
)
def test_a_run_whose_plan_cannot_be_read_is_listed_and_can_be_removed(run, damage):
    path = Path(run.directory) / "plan.json"
    text = path.read_text()
    path.unlink()
    if damage == "a directory":
        path.mkdir()
    elif damage != "missing":
        text = {"truncated": text[:40], "deep": "[" * 100_000}.get(damage, damage)
        path.write_text(text)
    service = Service()
    (listed,) = service.runs()
    assert (listed.id, listed.phase, listed.tasks) == (run.id, "succeeded", ())
    assert listed.reason.startswith("its plan cannot be read")
    assert listed.created == run.created
    with pytest.raises(UnavailableError, match=f"tfjob rm {run.id}"):
        service.plan(run.id)
    service.remove(run.id)
    assert service.runs() == []


@pytest.mark.parametrize("odd", [None, 5, 1.5, "x", [], {}, [["a"]]])
def test_whatever_a_plan_holds_in_place_of_a_value_the_run_is_listed(run, odd):
    path = Path(run.directory) / "plan.json"
    plan = json.loads(path.read_text())
    for keys in places(plan):
        path.write_text(json.dumps(changed(plan, keys, odd)))
        service = Service()
        assert [listed.id for listed in service.runs()] == [run.id], keys
        assert service.run(run.id).phase == "succeeded", keys


def places(value):
    """Find where values are in what JSON gave, as the keys that lead there."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, below in inner:
        yield (key,)
        if isinstance(below, dict | list):
            yield from ((key, *keys) for keys in places(below))


def changed(value, keys, odd):
    if not keys:
        return odd
    copy = value.copy()
    copy[keys[0]] = changed(value[keys[0]], keys[1:], odd)
    return copy


def test_a_plan_that_can_be_read_again_is_read_again(service, run):
    path = Path(run.directory) / "plan.json"
    text = path.read_text()
    path.unlink()
    service = Service()
    assert service.run(run.id).tasks == ()
    path.write_text(text)
    assert service.run(run.id).tasks


def test_a_run_without_a_readable_event_is_as_old_as_its_directory(run):
    (Path(run.directory) / "events.jsonl").write_bytes(b"\0garbage\n[]\n5\n")
    before = Path(run.directory).stat().st_mtime
    (listed,) = Service().runs()
    assert listed.phase == "lost"
    assert listed.created == pytest.approx(before, abs=60)
    assert listed.created == pytest.approx(time.time(), abs=3600)


def test_a_home_that_is_a_file_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    service = Service(tmp_path / "file")
    with pytest.raises(UnavailableError, match=r"TFJOB_HOME: .*Not a directory"):
        service.runs()
    with pytest.raises(UnavailableError, match="TFJOB_HOME"):
        service.run("train")


@pytest.mark.parametrize("error", ["Read-only file system", "Permission denied"])
def test_a_lost_run_that_cannot_be_recorded_is_lost_all_the_same(run, monkeypatch, error):
    def refuse(self, directory):
        raise OSError(30, error)

    monkeypatch.setattr(LocalEngine, "settle", refuse)
    with unfinished(run):
        (shown,) = Service().runs()
    assert shown.phase == "lost"
    assert f"TFJOB_HOME: {error}" in shown.reason


def test_of_two_removals_at_once_one_finds_nothing(service, run, monkeypatch):
    remove = RunDir.remove

    def after_another(self):
        shutil.rmtree(self.path)
        remove(self)

    monkeypatch.setattr(RunDir, "remove", after_another)
    with pytest.raises(NotFoundError, match=run.id):
        service.remove(run.id)


def test_the_lock_of_a_run_that_is_over_is_looked_at_once(home, run, monkeypatch):
    looked = []
    is_held = RunDir.is_held

    def look(directory):
        looked.append(directory.id)
        return is_held(directory)

    monkeypatch.setattr(RunDir, "is_held", look)
    records = Records(home, {"local": LocalEngine()})
    assert [records.live() for _ in range(3)] == [[], [], []]
    assert looked == [run.id]


def test_a_run_that_is_not_over_yet_is_looked_at_again(home, tmp_path):
    boot_file = tmp_path / "train.py"
    boot_file.write_text("")
    _, lock = RunDir.create(home, "r1", "{}", boot_file, now=5.0)
    records = Records(home, {"local": LocalEngine()})
    assert [r.id for _, r in records.live()] == ["r1"]
    os.close(lock)
    assert records.live() == []


@pytest.mark.usefixtures("modes_count")
@pytest.mark.parametrize("closed", ["lost+found", "a run", "a lock", "the events"])
def test_what_cannot_be_looked_into_hides_no_other_run(service, home, run, job, closed):
    other = over(service, service.submit(job("print(1)")).id)
    path = Path(other.directory)
    path = {"a lock": path / "lock", "the events": path / "events.jsonl"}.get(closed, path)
    if closed == "lost+found":
        path = home / "lost+found"
        path.mkdir()
    path.chmod(0)
    try:
        fresh = Service()
        assert run.id in [found.id for found in fresh.runs()]
        assert fresh.live() == []
        assert fresh.run(run.id).id == run.id
    finally:
        path.chmod(0o700)


@pytest.fixture
def sleeper(service, job):
    run = service.submit(job("import time\nprint('up', flush=True)\ntime.sleep(600)"))
    until(lambda: service.poll(run.id, {}).chunks)
    yield service.run(run.id)
    service.stop(run.id, 0.0)
    over(service, run.id)


@pytest.mark.skipif(sys.platform != "linux", reason="supervisors are found in /proc")
def test_a_run_that_lost_its_lock_goes_on(service, sleeper):
    (Path(sleeper.directory) / "lock").unlink()
    (seen,) = Service().runs()
    assert seen.phase == "running"
    with pytest.raises(ConflictError, match="is still running"):
        RunDir(sleeper.directory).remove()
    assert not (Path(sleeper.directory) / "lock").exists()
    assert alive(sleeper.tasks[0].pid)
    Service().stop(sleeper.id, 0.0)
    assert over(service, sleeper.id).phase == "stopped"
    events, _ = RunDir(sleeper.directory).read_events()
    assert sum(isinstance(event, Finished) for event in events) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="supervisors are found in /proc")
def test_a_run_can_be_stopped_when_the_disk_is_full(sleeper, monkeypatch):
    def full(_path, _data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(rundir, "_write", full)
        Service().stop(sleeper.id)
        ended = over(Service(), sleeper.id)
    assert (ended.phase, ended.reason) == ("stopped", "stopped by SIGTERM to its supervisor")


@pytest.mark.skipif(sys.platform != "linux", reason="supervisors are found in /proc")
def test_a_run_whose_nudge_was_deleted_can_be_stopped(service, sleeper):
    (Path(sleeper.directory) / "nudge").unlink()
    service.stop(sleeper.id)
    ended = over(service, sleeper.id)
    assert (ended.phase, ended.reason) == ("stopped", "stopped by the user")


@pytest.mark.skipif(sys.platform != "linux", reason="the task asks /dev/fd where its log is")
@pytest.mark.parametrize("put", ["a FIFO", "a directory"])
def test_a_task_that_replaces_its_log_stops_no_reader(service, job, put):
    make = "os.mkfifo" if put == "a FIFO" else "os.mkdir"
    code = f"""
import os
log = os.readlink("/dev/fd/1")
os.unlink(log)
{make}(log)
raise SystemExit(3)
"""
    run = over(service, service.submit(job(code)).id)
    assert run.phase == "failed"
    assert service.poll(run.id, {}).chunks == ()
