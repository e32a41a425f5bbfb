"""The boot file is written into its code dir, and nothing of the user's is lost."""

from __future__ import annotations

import errno
import multiprocessing
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_magic.errors import ConflictError, InvalidJobError, UnavailableError
from tfjob_magic.store import codedir
from tfjob_magic.store.codedir import RECORD, hold


@pytest.fixture
def place(tmp_path):
    return tmp_path / "user-job-dir" / "train"


def write(place: Path, text: str, boot_file: str = "train.py") -> None:
    with hold(place, place.parents[1] / "locks") as code_dir:
        code_dir.stage(boot_file, text)
        code_dir.commit()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def everything(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else b"directory"
        for path in root.rglob("*")
        if "locks" not in path.parts
    }


def test_the_text_is_written_as_it_is(place):
    text = "print('ü')\r\n\n# no newline at the end"
    write(place, text)
    assert (place / "train.py").read_bytes() == text.encode()
    assert names(place) == [RECORD, "train.py"]


def test_what_we_wrote_is_replaced(place):
    write(place, "1")
    write(place, "2")
    write(place, "3")
    assert (place / "train.py").read_text() == "3"


def test_unchanged_text_is_not_rewritten(place):
    write(place, "1")
    before = (place / "train.py").stat()
    write(place, "1")
    assert (place / "train.py").stat() == before


def test_two_boot_files_share_a_code_dir(place):
    write(place, "1", "a.py")
    write(place, "2", "b.py")
    write(place, "3", "a.py")
    assert (place / "a.py").read_text() == "3"
    assert (place / "b.py").read_text() == "2"


def test_a_mode_that_the_user_gave_is_kept(place):
    write(place, "1")
    (place / "train.py").chmod(0o777)
    write(place, "2")
    assert (place / "train.py").stat().st_mode & 0o777 == 0o777


def test_a_file_that_was_there_before_is_refused_with_the_remedies(place):
    place.mkdir(parents=True)
    (place / "train.py").write_text("mine")
    with pytest.raises(ConflictError, match=r"train\.py.*--code-dir.*--boot-file.*move"):
        write(place, "theirs")
    assert everything(place) == {"train.py": b"mine"}


def test_a_file_that_was_edited_since_is_refused(place):
    write(place, "1")
    (place / "train.py").write_text("1 and more")
    with pytest.raises(ConflictError, match="changed since"):
        write(place, "2")
    assert (place / "train.py").read_text() == "1 and more"


def test_a_file_put_back_to_an_earlier_text_is_refused(place):
    write(place, "1")
    write(place, "2")
    (place / "train.py").write_text("1")
    with pytest.raises(ConflictError, match="changed since"):
        write(place, "3")


def test_an_edit_between_stage_and_commit_is_refused(place):
    write(place, "1")
    with hold(place, place.parents[1] / "locks") as code_dir:
        code_dir.stage("train.py", "2")
        (place / "train.py").write_text("mine")
        with pytest.raises(ConflictError):
            code_dir.commit()
    assert (place / "train.py").read_text() == "mine"
    assert names(place) == [RECORD, "train.py"]


def test_the_same_text_of_somebody_else_is_no_conflict(place):
    place.mkdir(parents=True)
    (place / "train.py").write_text("same")
    write(place, "same")
    with pytest.raises(ConflictError):
        write(place, "other")


def test_a_symbolic_link_is_not_followed(place, tmp_path):
    precious = tmp_path / "precious.py"
    precious.write_text("precious")
    place.mkdir(parents=True)
    (place / "train.py").symlink_to(precious)
    with pytest.raises(ConflictError, match="symbolic link"):
        write(place, "2")
    assert precious.read_text() == "precious"


def test_a_dangling_symbolic_link_is_not_followed(place, tmp_path):
    place.mkdir(parents=True)
    (place / "train.py").symlink_to(tmp_path / "nothing.py")
    with pytest.raises(ConflictError, match="symbolic link"):
        write(place, "2")
    assert not (tmp_path / "nothing.py").exists()


def test_a_directory_in_the_place_is_refused(place):
    (place / "train.py").mkdir(parents=True)
    with pytest.raises(ConflictError, match="not a file"):
        write(place, "2")


def test_a_file_in_the_way_of_the_code_dir_is_named(place):
    place.parent.mkdir()
    place.write_text("a file")
    with pytest.raises(InvalidJobError, match=r"job_dir: .*train.*--job-dir"):
        write(place, "1")
    assert place.read_text() == "a file"


def test_a_place_that_cannot_be_written_is_named(place):
    with (
        hold(Path("/proc/nowhere/train"), place.parents[1] / "locks") as code_dir,
        pytest.raises(InvalidJobError, match=r"job_dir: '/proc/nowhere'.*--job-dir"),
    ):
        code_dir.stage("train.py", "1")


def test_a_full_disk_leaves_the_old_file(place, monkeypatch):
    write(place, "1")

    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(codedir.os, "fsync", full)
    before = everything(place)
    with pytest.raises(InvalidJobError, match="No space left"):
        write(place, "2")
    assert everything(place) == before


def test_what_is_not_committed_is_taken_back_with_its_directories(place, tmp_path):
    before = everything(tmp_path)
    with hold(place, tmp_path / "locks") as code_dir:
        code_dir.stage("train.py", "1")
    assert everything(tmp_path) == before


def test_the_staged_text_can_be_read_before_and_after_it_is_committed(place, tmp_path):
    write(place, "1")
    with hold(place, tmp_path / "locks") as code_dir:
        code_dir.stage("train.py", "2")
        assert code_dir.staged.name == "train.py"
        assert code_dir.staged.read_text() == "2"
        assert (place / "train.py").read_text() == "1"
        code_dir.commit()
        assert code_dir.staged == place / "train.py"
    assert names(place) == [RECORD, "train.py"]


def test_taking_back_leaves_what_others_put_there(place, tmp_path):
    with hold(place, tmp_path / "locks") as code_dir:
        code_dir.stage("train.py", "1")
        (place / "data.csv").write_text("data")
    assert everything(place) == {"data.csv": b"data"}


@pytest.mark.parametrize("survived", [0, 1])
def test_a_death_between_the_writes_leaves_a_file_that_is_still_ours(place, monkeypatch, survived):
    write(place, "1")
    real = codedir.CodeDir._write_record
    calls = []

    def dying(code_dir, written):
        calls.append(written)
        if len(calls) > survived:
            raise KeyboardInterrupt
        real(code_dir, written)

    with monkeypatch.context() as patch:
        patch.setattr(codedir.CodeDir, "_write_record", dying)
        with pytest.raises(KeyboardInterrupt):
            write(place, "2")
    write(place, "3")
    assert (place / "train.py").read_text() == "3"


def test_a_record_that_is_not_ours_is_kept(place):
    place.mkdir(parents=True)
    (place / "train.py").write_text("1")
    (place / RECORD).write_text("[1, 2]")
    with pytest.raises(ConflictError, match=RECORD):
        write(place, "2")
    assert everything(place) == {"train.py": b"1", RECORD: b"[1, 2]"}


def test_an_empty_record_owns_nothing(place):
    place.mkdir(parents=True)
    (place / RECORD).write_bytes(b"")
    write(place, "1")
    write(place, "2")
    assert (place / "train.py").read_text() == "2"


def test_a_second_submit_waits_and_is_then_refused(place, tmp_path, monkeypatch):
    monkeypatch.setattr(codedir, "_PATIENCE", 0.05)
    refused = pytest.raises(ConflictError, match="another job is being started")
    with hold(place, tmp_path / "locks"), refused:
        write(place, "2")
    write(place, "3")
    assert names(tmp_path / "locks") == []


def test_another_way_to_the_same_code_dir_is_the_same_code_dir(place, tmp_path, monkeypatch):
    monkeypatch.setattr(codedir, "_PATIENCE", 0.05)
    place.mkdir(parents=True)
    (tmp_path / "link").symlink_to(place)
    with (
        hold(place, tmp_path / "locks"),
        pytest.raises(ConflictError),
        hold(tmp_path / "link", tmp_path / "locks"),
    ):
        pass


def count_up(place: str, times: int) -> None:
    counter = Path(place, "counter")
    for _ in range(times):
        with hold(Path(place), Path(place, "locks")):
            counter.write_text(str(int(counter.read_text()) + 1))


def test_no_two_processes_are_ever_in_one_code_dir(tmp_path):
    (tmp_path / "counter").write_text("0")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=count_up, args=(str(tmp_path), 50)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert (tmp_path / "counter").read_text() == "200"


AWKWARD = [
    "a b",
    "it's",
    'quo"te',
    "new\nline",
    "grüße 火",
    "$HOME",
    "-rf",
    "%s",
    ".hidden",
    "x" * 255,
]


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_names_are_only_names(tmp_path, name):
    place = tmp_path / name / name
    write(place, "1", name)
    write(place, "2", name)
    assert (place / name).read_text() == "2"


@pytest.mark.parametrize(
    "written",
    [
        *('{"written": []}', '{"written": {"train.py": 5}}', '{"written": {"train.py": [5]}}'),
        *("null", "5", '"text"', "[]", "{}", '{"written": null}', "[" * 100_000),
    ],
)
def test_a_record_of_another_shape_is_refused_and_kept(place, written):
    place.mkdir(parents=True)
    (place / "train.py").write_text("1")
    (place / RECORD).write_text(written)
    with pytest.raises(ConflictError, match=f"code_dir: .*{RECORD}"):
        write(place, "2")
    assert everything(place) == {"train.py": b"1", RECORD: written.encode()}


def the_real_one():
    return pytest.raises(KeyError, match="the real one")


def open_files() -> list[Path]:
    return sorted(Path("/dev/fd").iterdir())


def test_a_foreign_file_beside_the_staged_text_leaks_no_lock_and_hides_no_error(place, tmp_path):
    before = open_files()
    with the_real_one(), hold(place, tmp_path / "locks") as held:
        held.stage("train.py", "1")
        (held.staged.parent / "foreign").write_text("x")
        raise KeyError("the real one")
    assert open_files() == before
    assert names(tmp_path / "locks") == []
    write(place, "2")


@pytest.mark.parametrize("step", ["unlink", "rmdir"])
def test_no_step_of_taking_back_depends_on_another(place, tmp_path, monkeypatch, step):
    def refuse(*_args):
        raise OSError(errno.EIO, "Input/output error")

    before = open_files()
    with the_real_one(), hold(place, tmp_path / "locks") as held:
        held.stage("train.py", "1")
        monkeypatch.setattr(os, step, refuse)
        raise KeyError("the real one")
    monkeypatch.undo()
    assert open_files() == before
    write(place, "2")


def test_a_place_for_locks_that_cannot_be_used_is_named(place, tmp_path):
    (tmp_path / "locks").write_text("")
    with (
        pytest.raises(UnavailableError, match=r"TFJOB_HOME: .*locks"),
        hold(place, tmp_path / "locks"),
    ):
        pass


def submit_in_new_folders(root: Path, number: int, barrier) -> None:
    for turn in range(40):
        barrier.wait()
        with hold(root / str(turn) / "new" / str(number), root / "locks") as held:
            held.stage("train.py", "1")
            if number % 2:
                held.commit()


def test_notebooks_that_share_a_new_folder_do_not_disturb_each_other(tmp_path):
    (tmp_path / "locks").mkdir()
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    submits = [
        context.Process(target=submit_in_new_folders, args=(tmp_path, number, barrier))
        for number in range(3)
    ]
    for submit in submits:
        submit.start()
    for submit in submits:
        submit.join()
    assert [submit.exitcode for submit in submits] == [0, 0, 0]
    assert len(list(tmp_path.glob("*/new/1/train.py"))) == 40
    assert not list(tmp_path.glob("*/new/[02]"))


def test_a_folder_that_vanishes_while_it_is_made_is_made_again(place, monkeypatch):
    mkdir = Path.mkdir
    made = []

    def vanishing(self, *args, **options):
        made.append(self)
        if len(made) == 2:
            place.parent.rmdir()
        mkdir(self, *args, **options)

    (place.parents[1] / "locks").mkdir()
    with hold(place, place.parents[1] / "locks") as held:
        monkeypatch.setattr(Path, "mkdir", vanishing)
        held.stage("train.py", "1")
        held.commit()
    assert made.count(place.parent) == 2
    assert (place / "train.py").read_text() == "1"


# The user acts between any two system calls


def by_writing(path: Path) -> None:
    path.write_text("mine")


def by_replacing(path: Path) -> None:
    path.with_name("editor").write_text("mine")
    path.with_name("editor").replace(path)


def by_a_link(path: Path) -> None:
    path.with_name("mine.py").write_text("mine")
    path.unlink(missing_ok=True)
    path.symlink_to(path.with_name("mine.py"))


def commit_while(place: Path, act, moment: int) -> bool:
    """Commit a text; `act` just before the system call of that number. Whether there was one."""
    calls = 0

    def watch(_frame, event, function):
        nonlocal calls
        if event == "c_call" and function.__module__ in {"posix", "_io"}:
            if calls == moment:
                sys.setprofile(None)
                act(place / "train.py")
            calls += 1

    with hold(place, place.parents[1] / "locks") as code_dir:
        code_dir.stage("train.py", "2")
        sys.setprofile(watch)
        try:
            code_dir.commit()
        except ConflictError:
            pass
        finally:
            sys.setprofile(None)
    return calls > moment


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("act", [by_writing, by_replacing, by_a_link])
def test_whenever_the_user_acts_their_text_stays(tmp_path, monkeypatch, act, there, links):
    def no_links(*_args, **_options):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    moment = 0
    more = True
    while more:
        place = tmp_path / str(moment) / "train"
        place.mkdir(parents=True)
        if there:
            write(place, "1")
        with monkeypatch.context() as patch:
            if not links:
                patch.setattr(os, "link", no_links)
            more = commit_while(place, act, moment)
        if more:
            assert (place / "train.py").read_text() == "mine", moment
            with pytest.raises(ConflictError):
                write(place, "3")
            assert (place / "train.py").read_text() == "mine", moment
        moment += 1
    assert moment > 10


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from(["A", "B", "C"])),
        st.tuples(st.just("edit"), st.sampled_from(["my A", "my B"])),
        st.tuples(st.just("remove"), st.just("")),
    ),
    max_size=8,
)


@given(STEPS)
def test_in_no_history_is_a_text_of_the_user_overwritten(tmp_path_factory, steps):
    place = tmp_path_factory.mktemp("history") / "job" / "train"
    place.mkdir(parents=True)
    boot_file = place / "train.py"
    theirs = None
    for step, text in steps:
        if step == "edit":
            boot_file.write_text(text)
            theirs = text
        elif step == "remove":
            boot_file.unlink(missing_ok=True)
            theirs = None
        elif theirs is None:
            write(place, text)
            assert boot_file.read_text() == text
        else:
            with pytest.raises(ConflictError):
                write(place, text)
            assert boot_file.read_text() == theirs
