"""Directories that nobody else can have put anything in."""

from __future__ import annotations

import os

import pytest

from tfjob_magic.store import private


def mode(path):
    return path.stat().st_mode & 0o777


def test_a_directory_is_made_for_its_user_alone(tmp_path):
    private.make(tmp_path / "mine")
    assert mode(tmp_path / "mine") == 0o700


@pytest.mark.parametrize("open_to", [0o777, 0o755, 0o500])
def test_ones_own_directory_is_closed_to_others_and_kept(tmp_path, open_to):
    directory = tmp_path / "mine"
    directory.mkdir()
    (directory / "file").touch()
    directory.chmod(open_to)
    private.make(directory)
    assert mode(directory) == 0o700
    assert (directory / "file").exists()


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotADirectoryError):
        private.make(tmp_path / "link")
    assert mode(tmp_path / "elsewhere") == 0o755


@pytest.mark.parametrize("made", ["file", "dangling"])
def test_what_is_not_a_directory_is_refused(tmp_path, made):
    path = tmp_path / "there"
    if made == "file":
        path.touch()
    else:
        path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError, match="there"):
        private.make(path)


def test_another_users_directory_is_refused(tmp_path, monkeypatch):
    directory = tmp_path / "theirs"
    directory.mkdir(mode=0o755)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(PermissionError, match="Another user's"):
        private.make(directory)
    assert mode(directory) == 0o755


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        private.make(tmp_path / "no" / "parent")
