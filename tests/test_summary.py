# ruff: noqa: RUF001 - a times sign is meant
from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_magic import summary
from tfjob_magic.errors import InvalidJobError, Problem
from tfjob_magic.service import Cause, Run

if TYPE_CHECKING:
    from pathlib import Path

CAUSE = Cause(
    task="worker-1",
    words="exited with code 1",
    error="ValueError: shapes (3,) and (4,) do not fit",
    lines=('  File "train.py", line 7, in <module>', "", "ValueError: shapes (3,) and (4,)"),
    hint="look at the shapes",
    same=("worker-0",),
    log="/runs/quick-abcde/logs/worker-1.log",
)
RUN = Run(
    id="quick-abcde", name="quick", engine="local", phase="succeeded", reason=None, created=100.0,
    ended=112.3, nodes=2, flavor="v100x8", network="container", rehearsal=True,
    directory="/runs/quick-abcde", code_dir="/user-job-dir/quick", boot_file="train.py", tasks=(),
    notes=(), cause=None,
)  # fmt: skip
FAILED = replace(RUN, phase="failed", cause=CAUSE)


def test_the_heading_says_what_and_where() -> None:
    assert summary.heading(RUN) == (
        "quick-abcde · 2 nodes × v100x8 (rehearsal) · container network · "
        "/user-job-dir/quick/train.py"
    )


def test_one_node_has_no_network_to_speak_of() -> None:
    run = replace(RUN, nodes=1, network="none", rehearsal=False)
    assert summary.heading(run) == "quick-abcde · 1 node × v100x8 · /user-job-dir/quick/train.py"


def test_a_line_that_is_too_long_is_broken_between_its_parts_and_paths_stay_whole() -> None:
    assert summary.heading(RUN, 70) == (
        "quick-abcde · 2 nodes × v100x8 (rehearsal) · container network\n"
        "  /user-job-dir/quick/train.py"
    )
    long = replace(RUN, directory="/runs/" + "long/" * 30, reason="because " * 20, phase="stopped")
    *lines, logs, last = summary.ending(long, 70).splitlines()
    assert max(map(len, lines)) <= 70
    assert (logs, last) == ("  logs:", f"  {long.directory}/logs")


@given(st.integers(30, 200))
def test_no_sentence_of_ours_is_wider_than_the_reader_s_place(width: int) -> None:
    cause = replace(CAUSE, error="word " * 50, hint="try this " * 30, same=("worker-0",) * 60)
    told = summary.failure(replace(FAILED, cause=cause), width)
    ours = [line for line in told.splitlines() if not line.startswith(("  │", "Whole log:"))]
    assert max(map(len, ours)) <= width
    refused = InvalidJobError([Problem("flavor", "it is so " * 40), Problem("ps", "nor so " * 40)])
    assert max(map(len, f"tfjob: {summary.mistakes(refused, width)}".splitlines())) <= width


def test_a_path_is_shown_from_the_working_directory_or_from_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home" / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "home" / "work")
    assert summary.path(str(tmp_path / "home/work/code/train.py")) == "code/train.py"
    assert summary.path(str(tmp_path / "home/state/logs")) == "~/state/logs"
    assert summary.path("/elsewhere/logs") == "/elsewhere/logs"
    (tmp_path / "home" / "work").rmdir()
    assert summary.path(str(tmp_path / "home/state/logs")) == "~/state/logs"


def test_a_flavor_that_is_a_console_s_text_has_a_short_form() -> None:
    text = "GPU: 8*NVIDIA-V100 | CPU: 72 cores | Memory: 512 GB"
    assert summary.size(replace(RUN, flavor=text)) == "2 nodes × 8 V100 (rehearsal)"
    cpu = "CPU: 8 cores | Memory: 32 GB"
    assert summary.size(replace(RUN, flavor=cpu, rehearsal=False)) == "2 nodes × 8 cores"
    assert "odd | one" in summary.size(replace(RUN, flavor="odd | one"))


def test_a_success_is_one_line() -> None:
    assert summary.ending(RUN) == (
        "✓ quick-abcde succeeded in 12.3 s · 2 nodes × v100x8 (rehearsal) · "
        "logs: /runs/quick-abcde/logs"
    )


def test_the_line_of_a_failure_names_the_task_that_failed_first() -> None:
    line = summary.ending(FAILED)
    assert line.startswith("✗ quick-abcde failed after 12.3 s · worker-1 exited with code 1 · ")


@pytest.mark.parametrize("phase", ["stopped", "lost", "failed"])
def test_the_line_of_any_other_end_gives_its_reason(phase: str) -> None:
    run = replace(RUN, phase=phase, reason="because of this")
    assert f"{phase} after 12.3 s · because of this · " in summary.ending(run)
    assert summary.headline(run) == f"quick-abcde {phase}: because of this"
    assert "because of this" in summary.failure(run)
    assert "/runs/quick-abcde/logs" in summary.failure(run)


def test_a_failure_is_told_from_its_cause_to_the_log() -> None:
    assert summary.failure(FAILED) == (
        """\
✗ quick-abcde failed after 12.3 s: worker-1 exited with code 1

  ValueError: shapes (3,) and (4,) do not fit

From the log of worker-1:
  │   File "train.py", line 7, in <module>
  │
  │ ValueError: shapes (3,) and (4,)

Hint: look at the shapes

The same error: worker-0
Whole log: /runs/quick-abcde/logs/worker-1.log"""
    )


def test_a_failure_without_words_of_its_own_still_says_what_is_known() -> None:
    cause = replace(CAUSE, error=None, lines=(), hint=None, same=(), words="was killed by SIGKILL")
    assert summary.failure(replace(FAILED, cause=cause)) == (
        "✗ quick-abcde failed after 12.3 s: worker-1 was killed by SIGKILL\n\n"
        "Whole log: /runs/quick-abcde/logs/worker-1.log"
    )


def test_an_exceptions_message_is_one_line() -> None:
    assert summary.headline(FAILED) == (
        "quick-abcde failed: worker-1 exited with code 1: "
        "ValueError: shapes (3,) and (4,) do not fit"
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.04, "0.0 s"), (12.34, "12.3 s"), (59.94, "59.9 s"), (59.96, "1 min 0 s"),
        (185, "3 min 5 s"), (3599.6, "1 h 0 min"), (7800, "2 h 10 min"), (86400, "1 d 0 h"),
        (273600, "3 d 4 h"), (-1, "0.0 s"),
    ],
)  # fmt: skip
def test_a_time_is_said_as_people_do(seconds: float, said: str) -> None:
    assert summary.duration(seconds) == said


@given(st.floats(0, 1e9))
def test_no_time_has_sixty_of_anything(seconds: float) -> None:
    said = summary.duration(seconds)
    assert re.search(r"\b60(\.0)? (s|min)", said) is None
