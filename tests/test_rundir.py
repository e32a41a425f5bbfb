import errno
import os
import select
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfjob_magic.core.events import Created, Finished, Supervised
from tfjob_magic.errors import ConflictError, NotFoundError, UnavailableError
from tfjob_magic.store import rundir
from tfjob_magic.store.rundir import EventWriter, RunDir, all_runs, home

AWKWARD = ["plain", "a b", 'it\'s "quoted"', "line\nbreak", "日本語 ü", "$(x) `y` {z}", "-rf"]


@pytest.fixture
def boot_file(tmp_path):
    path = tmp_path / "train.py"
    path.write_bytes(b"print('hello')\n")
    return path


@pytest.fixture
def made(tmp_path, boot_file):
    directory, lock = RunDir.create(tmp_path / "runs", "r1", '{"a": 1}', boot_file, now=5.0)
    yield directory, lock
    os.close(lock)


def let_go(lock):
    """Give the lock up, as far as this process is concerned; the fixture closes the number."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, lock, inheritable=False)
    os.close(null)


def test_runs_are_under_tfjob_home(monkeypatch, tmp_path):
    monkeypatch.setenv("TFJOB_HOME", str(tmp_path / "x"))
    assert home() == tmp_path / "x"


def test_else_under_the_state_home(monkeypatch, tmp_path):
    monkeypatch.delenv("TFJOB_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert home() == tmp_path / "state" / "tfjob" / "runs"


@pytest.mark.parametrize("state", ["", "relative/path"])
def test_a_state_home_that_is_not_absolute_is_ignored(monkeypatch, tmp_path, state):
    monkeypatch.delenv("TFJOB_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", state)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home() == tmp_path / ".local" / "state" / "tfjob" / "runs"


def test_a_new_run_has_its_plan_its_boot_file_and_its_first_event(made, boot_file):
    directory, _ = made
    assert directory.id == "r1"
    assert directory.read_plan() == {"a": 1}
    assert (directory.path / "boot" / "train.py").read_bytes() == boot_file.read_bytes()
    assert directory.read_events()[0] == [Created(5.0, run="r1")]


def test_only_its_owner_can_read_a_run(made):
    directory, _ = made
    for path in [directory.path, *directory.path.rglob("*")]:
        assert stat.S_IMODE(path.lstat().st_mode) & 0o077 == 0, path


def test_a_new_run_appears_locked(made):
    directory, _ = made
    assert directory.is_held()
    assert directory.take_lock() is None


def test_the_lock_ends_with_the_last_process_that_has_it(made):
    directory, lock = made
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,)
    )
    let_go(lock)
    assert directory.is_held()
    sleeper.kill()
    sleeper.communicate()
    assert not directory.is_held()


def test_asking_for_the_lock_never_takes_it(made):
    directory, lock = made
    let_go(lock)
    asking = os.open(directory.lock_path, os.O_RDWR)
    try:
        assert not directory.is_held()
        taken = directory.take_lock()
        assert taken is not None
        os.close(taken)
    finally:
        os.close(asking)


def test_a_second_run_of_the_same_name_is_refused_and_the_first_is_unharmed(
    made, tmp_path, boot_file
):
    directory, _ = made
    with pytest.raises(ConflictError, match="run: there is a run named 'r1' already"):
        RunDir.create(tmp_path / "runs", "r1", "{}", boot_file, now=6.0)
    assert directory.read_plan() == {"a": 1}
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["r1"]


def test_a_home_that_cannot_be_written_is_named(tmp_path, boot_file):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match="TFJOB_HOME: the run directory cannot be made"):
        RunDir.create(tmp_path / "file" / "runs", "r1", "{}", boot_file, now=6.0)


def test_a_boot_file_that_is_not_there_leaves_no_directory(tmp_path):
    with pytest.raises(UnavailableError):
        RunDir.create(tmp_path / "runs", "r1", "{}", tmp_path / "missing.py", now=6.0)
    assert list((tmp_path / "runs").iterdir()) == []
    assert all_runs(tmp_path / "runs") == []


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_names_are_only_names(tmp_path, boot_file, name):
    where = tmp_path / name / "runs"
    directory, lock = RunDir.create(where, name, "{}", boot_file, now=1.0)
    try:
        assert [found.id for found in all_runs(where)] == [name]
        assert directory.is_held()
        directory.request_stop(by=name)
        assert directory.take_stop_request() == (name, None)
    finally:
        os.close(lock)
    directory.remove()
    assert list((where).iterdir()) == []


def test_one_run_has_one_path_whatever_links_lead_to_it(made, tmp_path):
    directory, _ = made
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    assert RunDir(tmp_path / "link" / "r1").path == directory.path


def test_no_runs_where_there_is_no_directory(tmp_path):
    assert all_runs(tmp_path / "nothing") == []


def test_events_are_read_on_from_where_one_was(made):
    directory, _ = made
    first, offset = directory.read_events()
    with EventWriter(directory.events_path) as writer:
        writer.append(Supervised(6.0, pid=9))
        writer.append(Finished(7.0, phase="failed", cause="worker-0"))
    second, end = directory.read_events(offset)
    assert first == [Created(5.0, run="r1")]
    assert second == [Supervised(6.0, pid=9), Finished(7.0, phase="failed", cause="worker-0")]
    assert directory.read_events(end) == ([], end)


def test_a_line_that_is_not_whole_yet_waits(made):
    directory, _ = made
    _, offset = directory.read_events()
    with directory.events_path.open("ab") as file:
        file.write(b'{"kind": "supervised", "ti')
        file.flush()
        assert directory.read_events(offset) == ([], offset)
        file.write(b'me": 6.0, "pid": 9}\n')
    assert directory.read_events(offset)[0] == [Supervised(6.0, pid=9)]


def test_a_line_that_never_became_whole_costs_only_itself(made):
    directory, _ = made
    with directory.events_path.open("ab") as file:
        file.write(b'{"kind": "supervised", "ti')
    with EventWriter(directory.events_path) as writer:
        writer.append(Finished(7.0, phase="lost"))
    events, _ = directory.read_events()
    assert events == [Created(5.0, run="r1"), Finished(7.0, phase="lost")]


def test_bytes_that_are_no_utf_8_cost_only_their_line(made):
    directory, _ = made
    with directory.events_path.open("ab") as file:
        file.write(b"\xff\xfe\x00\n")
    with EventWriter(directory.events_path) as writer:
        writer.append(Finished(7.0, phase="lost"))
    assert directory.read_events()[0][-1] == Finished(7.0, phase="lost")


def test_what_a_full_disk_refuses_is_written_later_and_whole(made, monkeypatch):
    directory, _ = made
    write = os.write
    room = [10]

    def small_disk(fd, data):
        if room[0] == 0:
            raise OSError(28, "No space left on device")
        written = write(fd, data[: room[0]])
        room[0] -= written
        return written

    with EventWriter(directory.events_path) as writer:
        monkeypatch.setattr(rundir.os, "write", small_disk)
        writer.append(Supervised(6.0, pid=9))
        assert directory.read_events()[0] == [Created(5.0, run="r1")]
        with pytest.raises(OSError, match="No space left"):
            writer.check()
        room[0] = 10_000
        writer.append(Finished(7.0, phase="failed"))
        writer.check()
        assert writer.flush()
    assert directory.read_events()[0][1:] == [
        Supervised(6.0, pid=9),
        Finished(7.0, phase="failed"),
    ]


def test_a_stop_request_is_taken_once_and_the_last_one_counts(made):
    directory, _ = made
    assert directory.take_stop_request() is None
    directory.request_stop(by="a cell", grace=5.0)
    directory.request_stop(by="the command line", grace=0.0)
    assert directory.take_stop_request() == ("the command line", 0.0)
    assert directory.take_stop_request() is None
    assert {path.name for path in (directory.path / "requests").iterdir()} == {".taken"}


@pytest.mark.parametrize("grace", [float("nan"), float("inf"), -1.0, "soon", [], None])
def test_a_grace_that_is_no_span_is_the_jobs_own(made, grace):
    directory, _ = made
    directory.request_stop(by="x", grace=grace)
    assert directory.take_stop_request() == ("x", None)


def test_a_request_that_cannot_be_written_is_said_and_leaves_nothing(made, monkeypatch):
    directory, _ = made

    def full(_path, _data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(rundir, "_write", full)
    with pytest.raises(UnavailableError, match=r"TFJOB_HOME: .*No space left"):
        directory.request_stop(by="x")
    assert list((directory.path / "requests").iterdir()) == []


def test_a_run_that_is_gone_can_neither_be_stopped_nor_removed(made):
    directory, _ = made
    directory.path.rename(directory.path.with_name(".away"))
    with pytest.raises(NotFoundError, match="r1 has been removed"):
        directory.request_stop(by="x")
    with pytest.raises(NotFoundError, match="r1 has been removed"):
        directory.remove()


def test_a_home_that_is_a_file_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match=r"TFJOB_HOME: .*Not a directory"):
        all_runs(tmp_path / "file")


def test_what_cannot_be_deleted_does_not_hide_why_a_run_could_not_be_made(
    tmp_path, boot_file, monkeypatch
):
    def refuse(*_args):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(rundir, "_delete", refuse)
    monkeypatch.setattr(os, "mkfifo", lambda *_args: (_ for _ in ()).throw(OSError(1, "No FIFOs")))
    with pytest.raises(UnavailableError, match="No FIFOs"):
        RunDir.create(tmp_path / "runs", "r1", "{}", boot_file, now=5.0)


def test_a_stop_request_nudges_who_reads(made):
    directory, _ = made
    reader = os.open(directory.nudge_path, os.O_RDWR | os.O_NONBLOCK)
    try:
        assert not select.select([reader], [], [], 0)[0]
        directory.request_stop(by="x")
        assert select.select([reader], [], [], 0)[0]
        for _ in range(70_000):  # more than a pipe holds: nobody waits for a reader
            fd = os.open(directory.nudge_path, os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(fd, b"!" * 4096)
            except BlockingIOError:
                break
            finally:
                os.close(fd)
        directory.request_stop(by="y")
    finally:
        os.close(reader)
    assert directory.take_stop_request() == ("y", None)


def test_a_run_that_goes_on_is_not_removed(made):
    directory, _ = made
    with pytest.raises(ConflictError, match="run: 'r1' is still running; stop it first"):
        directory.remove()
    assert directory.exists()


def test_removing_takes_the_run_directory_and_nothing_that_it_points_to(tmp_path, boot_file):
    directory, lock = RunDir.create(tmp_path / "runs", "r1", "{}", boot_file, now=1.0)
    os.close(lock)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("x")
    (directory.path / "boot" / "link").symlink_to(elsewhere)
    directory.remove()
    assert not directory.exists()
    assert list((tmp_path / "runs").iterdir()) == []
    assert Path(elsewhere / "precious").read_text() == "x"
    assert boot_file.exists()


@pytest.mark.usefixtures("modes_count")
@pytest.mark.parametrize("closed", [0o500, 0o000])
def test_a_directory_that_a_task_closed_is_removed_too(tmp_path, boot_file, closed):
    directory, lock = RunDir.create(tmp_path / "runs", "r1", "{}", boot_file, now=1.0)
    os.close(lock)
    inner = directory.logs_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    inner.chmod(closed)
    inner.parent.chmod(closed)
    directory.remove()
    assert list((tmp_path / "runs").iterdir()) == []


def test_what_is_left_of_a_run_that_could_not_be_deleted_is_named(tmp_path, boot_file, monkeypatch):
    directory, lock = RunDir.create(tmp_path / "runs", "r1", "{}", boot_file, now=1.0)
    os.close(lock)

    def refuse(self):
        raise OSError(errno.EPERM, "Operation not permitted", str(self))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(UnavailableError, match="Operation not permitted") as refusal:
        directory.remove()
    (left,) = (tmp_path / "runs").iterdir()
    assert str(left) in str(refusal.value)


@pytest.mark.parametrize(("age", "stays"), [(0.0, True), (2 * rundir.LEFT_OVER_AFTER, False)])
def test_what_was_left_half_made_or_half_deleted_is_cleared_in_time(
    tmp_path, boot_file, monkeypatch, age, stays
):
    other = tmp_path / "runs" / ".new-project-settings"
    other.mkdir(parents=True)
    left = [tmp_path / "runs" / name for name in (".new-r0-12ab34cd", ".gone-r0-12ab34cd")]
    for path in left:
        (path / "logs").mkdir(parents=True)
    now = time.time() + age
    monkeypatch.setattr(rundir.time, "time", lambda: now)
    _, lock = RunDir.create(tmp_path / "runs", "r1", "{}", boot_file, now=1.0)
    os.close(lock)
    assert [path.exists() for path in left] == [stays, stays]
    assert other.exists()
