"""The control group of a run, where one can be made, and what is understood where none can."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfjob_magic.store import cgroups

PATIENCE = 30.0  # seconds; an end to waiting, no verdict on speed


@pytest.fixture
def group(tmp_path):
    made = cgroups.make(tmp_path / "run")
    if made is None:
        pytest.skip("no cgroup v2 can be made here")
    yield made
    end(made)


def end(group: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while group.exists() and time.monotonic() < deadline:
        cgroups.kill(group)
        cgroups.remove(group)
        time.sleep(0.01)
    assert not group.exists()


def sleeper(group: Path) -> subprocess.Popen[bytes]:
    program = f"""
import os, pathlib, sys
from tfjob_magic.store import cgroups
cgroups.enter(pathlib.Path({str(group)!r}))
print("in", flush=True)
os.execv("/bin/sleep", ["sleep", "600"])
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"in\n"
    return process


def gone(process: subprocess.Popen[bytes]) -> int:
    with process:
        return process.wait(PATIENCE)


def test_a_process_that_enters_is_a_member_and_is_killed_with_the_group(group):
    assert cgroups.members(group) == []
    process = sleeper(group)
    assert cgroups.members(group) == [process.pid]
    cgroups.remove(group)
    assert group.exists()
    cgroups.kill(group)
    assert gone(process) == -9
    assert cgroups.members(group) == []
    cgroups.remove(group)
    assert not group.exists()


def test_groups_that_tasks_made_below_belong_to_it(group):
    below = group / "a" / "b"
    below.mkdir(parents=True)
    process = sleeper(below)
    assert cgroups.members(group) == [process.pid]
    cgroups.kill(group)
    assert gone(process) == -9
    cgroups.remove(group)
    assert not group.exists()


def test_before_linux_5_14_each_member_is_killed(group, monkeypatch):
    process = sleeper(group)
    write = Path.write_text

    def without_kill(path, text):
        if path.name == "cgroup.kill":
            raise FileNotFoundError(path)
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", without_kill)
    cgroups.kill(group)
    assert gone(process) == -9


def test_a_group_is_found_for_its_own_run_only(group, tmp_path):
    assert cgroups.found(str(group), tmp_path / "run") == group
    assert cgroups.found(str(group), tmp_path / "other" / "run") is None
    assert cgroups.found(str(group.parent), tmp_path / "run") is None
    assert cgroups.found(None, tmp_path / "run") is None


def test_a_group_is_not_made_twice(group, tmp_path):
    assert cgroups.make(tmp_path / "run") is None


@pytest.mark.parametrize("name", ["a b", "line\nbreak", "日本語", "x" * 250, "..", "$(x)"])
def test_awkward_names_are_only_names(tmp_path, name):
    made = cgroups._name(tmp_path / name)
    assert made.isascii()
    assert len(made) < 150
    assert "/" not in made


def pretend(tmp_path: Path, monkeypatch, cgroup: str, *mounts: str) -> None:
    """Have this process be in a cgroup, as /proc would tell."""
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(cgroup)
    (proc / "mountinfo").write_text("".join(f"{mount}\n" for mount in mounts))
    monkeypatch.setattr(cgroups, "PROC", proc)


V1 = "30 29 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"


def v2(root: str, at: object) -> str:
    return f"41 31 0:38 {root} {at} rw,relatime shared:4 - cgroup2 cgroup2 rw"


@pytest.mark.parametrize(
    ("own", "root", "below"),
    [
        ("/", "/", "."),
        ("/user.slice/a", "/", "user.slice/a"),
        ("/docker/abc", "/docker/abc", "."),
        ("/docker/abc/d", "/docker/abc", "d"),
    ],
)
def test_the_own_group_is_found_below_where_it_is_mounted(tmp_path, monkeypatch, own, root, below):
    at = tmp_path / "a b"
    (at / below).mkdir(parents=True)
    pretend(
        tmp_path, monkeypatch, f"1:cpu:/x\n0::{own}\n", V1, v2(root, str(at).replace(" ", "\\040"))
    )
    assert cgroups._own() == at / below


@pytest.mark.parametrize(
    ("cgroup", "mounts"),
    [
        ("1:cpu:/x\n", [V1]),
        ("0::/\n", [V1]),
        ("0::/../other\n", [v2("/", "/sys")]),
        ("0::/docker/abcd\n", [v2("/docker/abc", "/sys")]),
        ("0::/nowhere\n", [v2("/", "/proc/nothing")]),
        ("", []),
    ],
)
def test_where_no_group_can_be_made_there_is_none(tmp_path, monkeypatch, cgroup, mounts):
    pretend(tmp_path, monkeypatch, cgroup, *mounts)
    assert cgroups.make(tmp_path / "run") is None


def test_what_is_not_a_control_group_is_not_taken_for_one(tmp_path, monkeypatch):
    at = tmp_path / "mount"
    at.mkdir()
    pretend(tmp_path, monkeypatch, "0::/\n", v2("/", at))
    assert cgroups.make(tmp_path / "run") is None
    assert list(at.iterdir()) == []


def test_without_proc_there_is_no_group(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "PROC", tmp_path / "nothing")
    assert cgroups.make(tmp_path / "run") is None
    nowhere = tmp_path / "nowhere"
    cgroups.enter(nowhere)
    cgroups.kill(nowhere)
    cgroups.remove(nowhere)
    assert cgroups.members(nowhere) == []
