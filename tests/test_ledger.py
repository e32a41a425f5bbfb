import os
import stat
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from tfjob_magic.core.node import Device, Machine
from tfjob_magic.errors import UnavailableError
from tfjob_magic.store import ledger
from tfjob_magic.store.ledger import Ledger

MACHINE = Machine(
    cores=(0, 1, 2, 3),
    memory_mib=1024,
    devices=(Device("0", "V100", 1), Device("MIG-ab/1", "V100", 1), Device("2", "V100", 1)),
    nics=(),
)


@pytest.fixture
def place(tmp_path):
    return tmp_path / "ledger"


def choose(place, cores=(), devices=()):
    """One run that has chosen; it keeps what it took until it is closed."""
    chosen = Ledger(place)
    chosen.take(cores, devices)
    chosen.end_turn()
    return chosen


def seen(place):
    """What the next run may have."""
    with Ledger(place) as asking:
        machine = asking.order(MACHINE)
    return machine.cores, [device.id for device in machine.devices]


def test_an_unused_machine_is_as_it_is(place):
    assert seen(place) == ((0, 1, 2, 3), ["0", "MIG-ab/1", "2"])


def test_a_device_of_another_run_is_left_out(place):
    with choose(place, devices=["MIG-ab/1"]):
        assert seen(place)[1] == ["0", "2"]
    assert seen(place)[1] == ["0", "MIG-ab/1", "2"]


def test_free_cores_come_first_and_used_ones_are_still_there(place):
    with choose(place, cores=[0, 2]):
        assert seen(place)[0] == (1, 3, 0, 2)


def test_a_core_stays_used_until_the_last_of_its_runs_ends(place):
    first = choose(place, cores=[0])
    second = choose(place, cores=[0])
    first.close()
    assert seen(place)[0] == (1, 2, 3, 0)
    second.close()
    assert seen(place)[0] == (0, 1, 2, 3)


def test_what_was_taken_is_kept_by_the_process_that_it_is_handed_to(place):
    chosen = choose(place, cores=[1], devices=["0"])
    keeper = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(chosen.fd,)
    )
    chosen.close()
    assert seen(place) == ((0, 2, 3, 1), ["MIG-ab/1", "2"])
    keeper.kill()
    keeper.communicate()
    assert seen(place) == (MACHINE.cores, ["0", "MIG-ab/1", "2"])


def test_runs_that_choose_at_once_never_share_a_device(place):
    taken = []
    barrier = threading.Barrier(3)
    with ExitStack() as stack:

        def submit():
            barrier.wait()
            chosen = stack.enter_context(Ledger(place))
            device = chosen.order(MACHINE).devices[0].id
            chosen.take((), [device])
            taken.append(device)
            chosen.end_turn()

        threads = [threading.Thread(target=submit) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(taken) == ["0", "2", "MIG-ab/1"]


def test_a_submission_that_never_ends_its_turn_is_named(place, monkeypatch):
    monkeypatch.setattr(ledger, "PATIENCE", 0.05)
    with Ledger(place), pytest.raises(UnavailableError, match="another submission has held"):
        Ledger(place)


def test_a_refused_turn_leaves_no_descriptor_open(place, monkeypatch):
    monkeypatch.setattr(ledger, "PATIENCE", 0.0)
    with Ledger(place):
        before = sorted(Path("/dev/fd").iterdir())
        with pytest.raises(UnavailableError):
            Ledger(place)
        assert sorted(Path("/dev/fd").iterdir()) == before


def test_only_the_user_can_look_into_it(place):
    place.mkdir(mode=0o755)
    Ledger(place).close()
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE((place / "ledger").stat().st_mode) & 0o777 == 0o600


@pytest.mark.skipif(sys.platform != "linux", reason="the sticky bit of a file is Linux's")
def test_cleaners_of_temporary_directories_leave_it_alone(place):
    Ledger(place).close()
    assert (place / "ledger").stat().st_mode & stat.S_ISVTX


def test_a_link_that_somebody_put_there_is_not_followed(place, tmp_path):
    (tmp_path / "theirs").mkdir()
    place.symlink_to(tmp_path / "theirs")
    with pytest.raises(UnavailableError, match=r"cannot be opened: .*Not a directory"):
        Ledger(place)
    assert list((tmp_path / "theirs").iterdir()) == []


def test_a_link_in_place_of_the_file_is_not_followed(place, tmp_path):
    place.mkdir()
    (place / "ledger").symlink_to(tmp_path / "target")
    with pytest.raises(UnavailableError, match="cannot be opened"):
        Ledger(place)
    assert not (tmp_path / "target").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's directory")
def test_a_directory_of_another_user_is_refused(place):
    place.mkdir()
    os.chown(place, 12345, 12345)
    with pytest.raises(UnavailableError, match="Another user's"):
        Ledger(place)


def test_every_face_looks_in_the_same_place_first(monkeypatch):
    here = ledger.places()[0]
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HOME", "TFJOB_HOME"):
        monkeypatch.setenv(name, "/somewhere/else")
    assert ledger.places()[0] == here


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return ledger.places()[1]


def test_the_second_place_is_beside_the_runs_and_of_this_host(state, tmp_path):
    assert state == tmp_path / "state" / "tfjob" / f"ledger-{os.uname().nodename}"


@pytest.mark.parametrize("in_the_way", ["a link", "a file", "nowhere to make it", "a bad ledger"])
def test_where_the_first_place_cannot_be_used_all_find_the_second(
    state, tmp_path, monkeypatch, in_the_way
):
    first = tmp_path / "first"
    if in_the_way == "a link":
        first.symlink_to(tmp_path)
    elif in_the_way == "a file":
        first.touch()
    elif in_the_way == "a bad ledger":
        (first / "ledger").mkdir(parents=True)
    else:
        (tmp_path / "file").touch()
        first = tmp_path / "file" / "first"
    monkeypatch.setattr(ledger, "places", lambda: [first, state])
    with choose(None, devices=["0"]):
        assert (state / "ledger").is_file()
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        assert seen(None)[1] == ["MIG-ab/1", "2"]


def test_where_no_place_can_be_used_both_are_named(state, tmp_path, monkeypatch):
    first = tmp_path / "first"
    first.touch()
    state.parent.mkdir(parents=True)
    state.touch()
    monkeypatch.setattr(ledger, "places", lambda: [first, state])
    with pytest.raises(UnavailableError) as refusal:
        Ledger()
    assert str(first) in str(refusal.value)
    assert str(state) in str(refusal.value)


def test_a_user_without_a_home_has_one_place(monkeypatch):
    def homeless():
        raise RuntimeError

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert len(ledger.places()) == 1
