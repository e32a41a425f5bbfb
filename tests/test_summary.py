# ruff: noqa: RUF001 - a times sign is meant
from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_magic import summary
from tfjob_magic.service import Cause, Run

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
