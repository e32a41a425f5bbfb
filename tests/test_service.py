"""The service in one process: what it leaves behind when something goes wrong."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from conftest import DEADLINE, alive, over, until, whole_logs

from tfjob_magic.core.events import StopRequested, encode
from tfjob_magic.core.node import Node
from tfjob_magic.core.shares import Share
from tfjob_magic.engines.local import LocalEngine
from tfjob_magic.errors import (
    ConflictError,
    InUseError,
    InvalidJobError,
    NotFoundError,
    UnavailableError,
)
from tfjob_magic.service.inprocess import Service
from tfjob_magic.service.records import Record
from tfjob_magic.store.codedir import CodeDir
from tfjob_magic.store.rundir import RunDir

FOREVER = "import time; print('begun', flush=True); time.sleep(600)"


@pytest.fixture
def service(home):
    return Service()


def seeded(seed: int) -> random.Random:
    return random.Random(seed)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def tree(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
    }


def begun(service: Service, run: str) -> None:
    until(lambda: service.poll(run, {}).chunks)


def test_nothing_is_started_or_written_for_a_caller_that_has_gone(service, job, tmp_path):
    with pytest.raises(UnavailableError, match="nothing was started"):
        service.submit(job(), gone=lambda: True)
    assert service.runs() == []
    assert not (tmp_path / "user-job-dir").exists()


def test_runs_are_kept_where_tfjob_home_says(service, home, job):
    run = over(service, service.submit(job()).id)
    assert Path(run.directory) == home / run.id
    assert home.stat().st_mode & 0o777 == 0o700


def test_the_id_of_a_run_is_its_name_and_five_characters_that_a_host_may_have(home, job):
    ids = {Service(rng=seeded(seed)).preview(job()).run for seed in range(50)}
    assert len(ids) == 50
    assert all(re.fullmatch(r"train-[a-z2-7]{5}", run) for run in ids)
    assert Service(rng=seeded(7)).preview(job()).run in ids


def test_an_id_that_is_taken_is_not_given_again(home, job):
    taken = over(Service(), Service(rng=seeded(1)).submit(job()).id).id
    assert Service(rng=seeded(1)).preview(job()).run != taken


def test_the_longest_name_still_makes_hosts_names(service, job):
    plan = service.preview(job(name="n" * 40, nodes=2))
    assert all(len(f"{plan.run}-{task.name}") <= 63 for task in plan.tasks)


def test_a_plan_that_is_refused_leaves_nothing(service, job, tmp_path, home):
    asked = job(strict=True, flavor="v100x8", nodes=100)
    before = tree(tmp_path)
    with pytest.raises(UnavailableError):
        service.submit(asked)
    after = {path for path in tree(tmp_path) if not path.startswith("runs")}
    assert after == set(before)
    assert [path for path in home.iterdir() if not path.name.startswith(".")] == []


def test_a_run_directory_that_cannot_be_made_leaves_the_old_boot_file(service, job, monkeypatch):
    first = over(service, service.submit(job("print('first')")).id)
    before = tree(Path(first.code_dir))

    def refuse(*_args, **_names):
        raise UnavailableError("no room")

    monkeypatch.setattr(RunDir, "create", refuse)
    with pytest.raises(UnavailableError, match="no room"):
        service.submit(job("print('second')"))
    assert tree(Path(first.code_dir)) == before


def test_a_home_that_cannot_be_written_is_named(job, tmp_path, monkeypatch, home):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match="TFJOB_HOME"):
        Service(tmp_path / "file" / "runs").submit(job())
    assert not (tmp_path / "user-job-dir").exists()


def test_a_boot_file_edited_at_the_last_moment_leaves_no_run(service, job, monkeypatch, home):
    first = over(service, service.submit(job("print('first')")).id)
    boot_file = Path(first.code_dir, "train.py")
    create = RunDir.create

    def edit_then_create(*args, **names):
        boot_file.write_text("mine")
        return create(*args, **names)

    monkeypatch.setattr(RunDir, "create", edit_then_create)
    with pytest.raises(ConflictError, match="changed since"):
        service.submit(job("print('second')"))
    assert boot_file.read_text() == "mine"
    assert [run.id for run in service.runs()] == [first.id]


def test_a_job_that_cannot_be_started_leaves_no_run(home, job, monkeypatch):
    monkeypatch.setattr("tfjob_magic.engines.local.SUPERVISOR", Path("/no/such/supervisor"))
    service = Service()
    with pytest.raises(UnavailableError, match="supervisor"):
        service.submit(job("print('new')"))
    assert service.runs() == []


def test_after_a_failed_start_the_boot_file_is_the_new_one_and_the_code_dir_is_free(
    service, job, monkeypatch
):
    boot_file = Path(over(service, service.submit(job("print(1)")).id).code_dir, "train.py")
    with monkeypatch.context() as patch:
        patch.setattr("tfjob_magic.engines.local.SUPERVISOR", Path("/no/such/supervisor"))
        with pytest.raises(UnavailableError):
            service.submit(job("print(2)"))
    assert "print(2)" in boot_file.read_text()
    assert over(service, service.submit(job("print(3)")).id).phase == "succeeded"


def test_of_several_submits_at_once_one_wins_and_the_others_are_told_so(home, job, monkeypatch):
    # However slow the winner is: no test is about the patience of the others.
    monkeypatch.setattr("tfjob_magic.store.codedir._PATIENCE", DEADLINE)
    outcomes: list[object] = []

    def submit(number: int) -> None:
        try:
            outcomes.append(Service().submit(job(f"{FOREVER} # {number}")))
        except ConflictError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [outcome for outcome in outcomes if isinstance(outcome, InUseError)]
    (run,) = Service().runs()
    assert [error.run for error in errors] == [run.id] * 3
    assert Path(run.code_dir, "train.py").read_bytes() == (
        Path(run.directory, "boot", "train.py").read_bytes()
    )


def test_jobs_in_different_code_dirs_run_side_by_side(service, job):
    runs = [service.submit(job(FOREVER, code_dir=name)).id for name in ("a", "b", "c")]
    for run in runs:
        begun(service, run)
    assert [service.run(run).phase for run in runs] == ["running"] * 3


def test_another_path_to_a_code_dir_in_use_is_refused_too(service, job, tmp_path):
    run = service.submit(job(FOREVER))
    (tmp_path / "link").symlink_to(tmp_path / "user-job-dir")
    with pytest.raises(ConflictError, match=run.id):
        service.submit(job(job_dir=str(tmp_path / "link")))


def test_a_run_whose_supervisor_was_killed_is_lost_and_its_tasks_are_gone(service, job):
    run = service.submit(job(FOREVER, nodes=2))
    begun(service, run.id)
    pids = [task.pid for task in service.run(run.id).tasks]
    lines = Path(run.directory, "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    (supervisor,) = [event["pid"] for event in events if event["kind"] == "supervised"]
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: service.run(run.id).phase == "lost")
    until(lambda: not any(alive(pid) for pid in pids))
    assert Service().run(run.id).phase == "lost"
    assert whole_logs(service, run.id)


def test_a_run_outlives_the_process_that_started_it(service, job, home):
    program = """
import json, os, signal, sys
from tfjob_magic.service import Submission
from tfjob_magic.service.inprocess import Service
Service().submit(Submission(**json.loads(sys.argv[1])))
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", program, json.dumps(asdict(job(FOREVER)))]
    died = subprocess.run(command, check=False)
    assert died.returncode == -signal.SIGKILL
    (run,) = service.runs()
    begun(service, run.id)
    assert service.run(run.id).phase == "running"
    service.stop(run.id)
    assert over(service, run.id).phase == "stopped"


def test_what_another_process_did_is_seen(service, job):
    other = Service()
    run = other.submit(job(FOREVER))
    assert service.run(run.id).id == run.id
    other.stop(run.id)
    assert over(service, run.id).phase == "stopped"
    other.remove(run.id)
    with pytest.raises(NotFoundError):
        service.run(run.id)


def test_a_run_removed_while_it_is_watched_is_not_found(service, job):
    run = service.submit(job())
    watched = Record(RunDir(run.directory), {"local": LocalEngine()})
    over(service, run.id)
    service.remove(run.id)
    with pytest.raises(NotFoundError, match="removed"):
        watched.read()


def test_a_run_whose_plan_cannot_be_read_is_listed_and_hides_no_other_run(service, job, home):
    run = over(service, service.submit(job()).id)
    broken = home / "broken-aaaaa"
    broken.mkdir()
    (broken / "events.jsonl").write_text("")
    (broken / "plan.json").write_text("{not json")
    assert {found.id for found in service.runs()} == {run.id, "broken-aaaaa"}
    assert "plan cannot be read" in service.run("broken-aaaaa").reason
    assert over(service, service.submit(job("print('next')")).id).phase == "succeeded"
    with pytest.raises(UnavailableError, match="broken-aaaaa"):
        service.plan("broken-aaaaa")


def test_events_are_read_once_and_finished_runs_not_again(service, job, monkeypatch):
    run = over(service, service.submit(job()).id)
    read: list[int] = []
    real = RunDir.read_events

    def counted(directory, offset=0):
        read.append(offset)
        return real(directory, offset)

    monkeypatch.setattr(RunDir, "read_events", counted)
    for _ in range(5):
        service.runs()
        service.run(run.id)
    assert read == []
    fresh = Service()
    for _ in range(5):
        fresh.runs()
    assert read == [0]


def test_a_live_run_is_read_on_from_where_it_was(service, job, monkeypatch):
    run = service.submit(job(FOREVER))
    begun(service, run.id)
    offsets: list[int] = []
    real = RunDir.read_events

    def counted(directory, offset=0):
        offsets.append(offset)
        return real(directory, offset)

    monkeypatch.setattr(RunDir, "read_events", counted)
    service.run(run.id)
    assert offsets
    assert all(offset > 0 for offset in offsets)


def test_a_poll_hears_of_a_change_without_output(service, job):
    run = service.submit(job(FOREVER))
    begun(service, run.id)
    cursors = {"worker-0": len("begun\n")}
    directory = RunDir(run.directory)

    def stop() -> None:
        directory.request_stop("a test", 0.0)

    timer = threading.Timer(0.2, stop)
    timer.start()
    began = time.monotonic()
    assert service.poll(run.id, cursors, 10.0).run.phase in {"stopping", "stopped"}
    assert time.monotonic() - began < 9
    timer.join()


def test_a_poll_waits_ten_seconds_at_most(service, job, monkeypatch):
    monkeypatch.setattr("tfjob_magic.service.inprocess.LONGEST_WAIT", 0.1)
    run = service.submit(job(FOREVER))
    begun(service, run.id)
    assert service.poll(run.id, {"worker-0": len("begun\n")}, 1e9).chunks == ()


def test_a_boot_file_that_cannot_be_written_refuses_before_anything_starts(service, job):
    with pytest.raises(InvalidJobError, match=r"job_dir: '/proc/nowhere'.*--job-dir"):
        service.submit(job(job_dir="/proc/nowhere"))
    assert service.runs() == []


def test_an_unknown_event_of_a_later_version_is_passed_over(service, job):
    run = over(service, service.submit(job()).id)
    events = Path(run.directory, "events.jsonl")
    lines = events.read_text().splitlines(keepends=True)
    lines.insert(1, '{"kind": "paused", "time": 1.0, "why": "tea"}\n')
    lines.append(encode(StopRequested(time.time(), by="nobody")) + "\n")
    events.write_text("".join(lines))
    assert Service().run(run.id).phase == "succeeded"


def test_nothing_is_left_in_the_code_dir_but_the_boot_file_and_its_record(service, job):
    run = over(service, service.submit(job("print(1)")).id)
    over(service, service.submit(job("print(2)")).id)
    left = {path.name for path in Path(run.code_dir).iterdir()}
    assert left == {"train.py", ".tfjob.json"}


def test_the_users_own_flavors_are_listed_and_can_be_asked_for(home, job, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "tfjob").mkdir(parents=True)
    (tmp_path / "config" / "tfjob" / "config.toml").write_text(
        '[flavors.mine]\ncpus = 6\nmemory = "12 GB"\n'
    )
    assert "mine" in {flavor.name for flavor in Service().flavors()}
    asked = job(flavor="mine")
    asked.environment["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    assert Service().preview(asked).job.flavor.cpus == 6


def test_an_interrupt_while_the_boot_file_is_put_in_place_leaves_no_run(service, job, monkeypatch):
    def interrupt(_code_dir):
        raise KeyboardInterrupt

    monkeypatch.setattr(CodeDir, "commit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        service.submit(job())
    assert service.runs() == []


class Elsewhere(LocalEngine):
    """An engine whose nodes are other hosts; it tells whom it was asked to stop."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped: list[str] = []

    @contextmanager
    def reserve(self, job):
        share = Share(job.flavor.cpus, job.flavor.memory_mib, 0, None)
        nodes = tuple(Node(f"10.0.0.{number}", share) for number in range(job.nodes))
        with super().reserve(job) as reservation:
            yield replace(reservation, nodes=nodes)

    def stop(self, directory, by, grace=None):
        self.stopped.append(directory.id)
        super().stop(directory, by, grace)


def test_a_run_is_on_the_engine_that_the_service_is_given(home, job):
    engine = Elsewhere()
    service = Service(engines={"local": engine})
    assert [node.address for node in service.preview(job(nodes=2)).nodes] == [
        "10.0.0.0",
        "10.0.0.1",
    ]
    run = service.submit(job(FOREVER))
    service.stop(run.id)
    assert engine.stopped == [run.id]
    assert over(service, run.id).phase == "stopped"


def test_a_preview_holds_nothing_afterwards(home, job):
    service = Service()
    before = open_files()
    for _ in range(3):
        service.preview(job(nodes=2))
    assert open_files() == before


def test_a_submit_holds_nothing_afterwards(service, job):
    over(service, service.submit(job()).id)
    before = open_files()
    for _ in range(3):
        over(service, service.submit(job()).id)
    assert open_files() == before
    assert sys.executable in service.plan("last").tasks[0].argv
