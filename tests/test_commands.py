from __future__ import annotations

import json
import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import end_runs, until

from tfjob_magic import commands, grammar
from tfjob_magic.errors import (
    InUseError,
    InvalidJobError,
    NotFoundError,
    UnavailableError,
)
from tfjob_magic.follow import Face, Interrupts
from tfjob_magic.service.inprocess import Service

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfjob_magic.service import Run

SCRIPT = """\
import os, pathlib, sys, time
me = f"{os.environ['MA_TASK_NAME']}-{os.environ['VC_TASK_INDEX']}"
print(me, *sys.argv[1:])
if "wait" in sys.argv:
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
"""


class Heard:
    def __init__(self) -> None:
        self.written = ""
        self.said: list[str] = []

    def write(self, text: str) -> None:
        self.written += text


class Place:
    """A folder with a script in it, a service of its own, and what was heard of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.script = path / "project" / "train.py"
        self.script.parent.mkdir()
        self.script.write_text(SCRIPT)
        self.jobs = Service(path / "runs")

    def command(self, *argv: str) -> Heard:
        heard = Heard()
        commands.perform(grammar.arguments(argv), self.jobs, self.face(heard))
        return heard

    def run(self, *argv: str) -> tuple[Run, int | None, Heard]:
        heard = Heard()
        command = grammar.arguments(["run", str(self.script), "--flavor", "cpu-2c2g", *argv])
        asked = commands.submission(command, sys.executable, {"PATH": "/usr/bin:/bin"})
        with Interrupts() as interrupts:
            run, signal = commands.launch(command, asked, self.jobs, self.face(heard), interrupts)
        return run, signal, heard

    def preview(self, *argv: str) -> Heard:
        heard = Heard()
        command = grammar.arguments(["plan", *argv])
        asked = commands.submission(command, sys.executable, {"PATH": "/usr/bin:/bin"})
        commands.preview(command, asked, self.jobs, self.face(heard))
        return heard

    @staticmethod
    def face(heard: Heard) -> Face:
        return Face(write=heard.write, say=heard.said.append)

    def wait(self, condition: Callable[[Run], bool]) -> Run:
        def look() -> Run | None:
            run = self.jobs.run("last")
            return run if condition(run) else None

        return until(look)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TFJOB_HOME", str(tmp_path / "runs"))
    place = Place(tmp_path)
    yield place
    end_runs(tmp_path / "runs")


def test_a_file_runs_where_it_is(place: Place) -> None:
    run, interrupted, heard = place.run("--", "a b", "{x}")
    assert run.phase == "succeeded"
    assert interrupted is None
    assert run.code_dir == str(place.script.parent)
    assert heard.written == "worker-0 │ worker-0 a b {x}\n"
    assert run.id.startswith("train-")
    assert place.script.read_text() == SCRIPT


def test_what_is_said_of_a_run_begins_with_its_heading_and_its_notes(place: Place) -> None:
    run, _, heard = place.run("--nodes", "2")
    (said,) = heard.said
    assert said.startswith(f"{run.id} · 2 nodes")
    assert [f"• {note}" for note in run.notes] == said.splitlines()[1:]


def test_a_detached_run_is_left_alone_and_says_how_to_look_again(place: Place) -> None:
    run, _, heard = place.run("--detach", "--", "wait")
    assert not run.over
    assert f"`tfjob logs {run.id} --follow`" in heard.said[-1]
    (place.script.parent / "go").touch()
    assert place.wait(lambda run: run.over).phase == "succeeded"


def test_a_preview_starts_and_writes_nothing(place: Place) -> None:
    heard = place.preview(str(place.script), "--nodes", "2", "--flavor", "v100x8")
    assert "worker-1" in heard.written
    assert "--task_index 1" in heard.written
    assert "VC_TASK_INDEX=1" in heard.written
    assert place.jobs.runs() == []
    assert [path.name for path in place.script.parent.iterdir()] == ["train.py"]


def test_a_preview_hides_the_values_of_the_users_variables(place: Place) -> None:
    heard = place.preview(str(place.script), "--flavor", "v100x8", "--env", "TOKEN=secret")
    assert "TOKEN=" in heard.written
    assert "secret" not in heard.written


def test_a_plan_as_json_has_what_the_contract_says(place: Place) -> None:
    heard = place.preview(str(place.script), "--nodes", "2", "--flavor", "v100x8", "--json")
    plan = json.loads(heard.written)
    assert {"run", "network", "rehearsal", "nodes", "tasks"} <= set(plan)
    assert set(plan["network"]) == {"mode", "reason", "nic"}
    assert {"index", "asked", "granted"} <= set(plan["nodes"][0])
    task = plan["tasks"][0]
    assert {"role", "index", "node", "asked", "granted", "address", "cwd", "argv", "env"} <= set(
        task
    )
    assert set(task["asked"]) == {"cpus", "memory_mib", "accelerators", "accelerator"}


def test_a_plan_needs_no_file(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.script.parent)
    assert "worker-0" in place.preview("--flavor", "v100x8").written


def test_a_file_that_is_not_there_is_refused(place: Place) -> None:
    with pytest.raises(InvalidJobError, match=r"nowhere\.py"):
        place.preview(str(place.path / "nowhere.py"), "--flavor", "v100x8")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("/train.py", "file: `/train.py` is in the root directory"),
        ("/", "file: `/` is in the root directory"),
        ("train.txt", "is not a Python file; name a file that ends in .py"),
        (".", "is not a Python file"),
        ("-x.py", "begins with a hyphen, as an option does; rename"),
        ("a\udcff/x.py", "is not valid Unicode; rename the file or its folder"),
    ],
)
def test_a_file_that_cannot_be_a_boot_file_is_refused_without_a_word_of_options_it_has_not(
    name: str, says: str
) -> None:
    command = grammar.Command("run", file=name)
    with pytest.raises(InvalidJobError) as caught:
        commands.submission(command, sys.executable, {})
    message = str(caught.value)
    assert says in message
    assert "--" not in message
    message.encode()


def test_a_working_directory_that_is_gone_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UnavailableError, match=r"the working directory does not exist any more"):
        commands.absolute("train.py")
    assert commands.absolute("/a/../train.py") == "/train.py"


# ---- a code dir in use -----------------------------------------------------------------------


def test_a_folder_in_use_is_refused_with_what_the_command_can_do(place: Place) -> None:
    first = place.run("--detach", "--", "wait")[0]
    with pytest.raises(InUseError, match="wait for it, or stop it first with --replace") as caught:
        place.run()
    assert caught.value.run == first.id
    assert "--code-dir" not in str(caught.value)
    assert not place.jobs.run(first.id).over


def test_replace_stops_the_run_that_uses_the_code_dir_and_says_so(place: Place) -> None:
    first = place.run("--detach", "--", "wait")[0]
    second, interrupted, heard = place.run("--replace")
    assert interrupted is None
    assert second.phase == "succeeded"
    assert second.id != first.id
    assert place.jobs.run(first.id).phase == "stopped"
    assert heard.said[0] == f"stopping {first.id}, which uses this code dir"


def test_replace_has_nothing_to_say_where_the_code_dir_is_free(place: Place) -> None:
    run, _, heard = place.run("--replace")
    assert heard.said[0].startswith(f"{run.id} · ")


def test_an_interrupt_while_the_old_run_ends_abandons_the_new_job(place: Place) -> None:
    place.script.write_text(
        "import pathlib, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "pathlib.Path('deaf').touch()\n"
        "time.sleep(600)\n"
    )
    first = place.run("--detach", "--grace", "500")[0]
    until((place.script.parent / "deaf").exists)
    heard = Heard()

    def say(text: str) -> None:
        heard.said.append(text)
        os.kill(os.getpid(), signal.SIGINT)

    command = grammar.arguments(
        ["run", str(place.script), "--flavor", "cpu-2c2g", "--replace", "--name", "second"]
    )
    asked = commands.submission(command, sys.executable, {"PATH": "/usr/bin:/bin"})
    with Interrupts() as interrupts, pytest.raises(commands.AbandonedError) as caught:
        commands.launch(command, asked, place.jobs, Face(heard.write, say), interrupts)
    assert caught.value.signal == signal.SIGINT
    assert heard.said == [f"stopping {first.id}, which uses this code dir"]
    assert [run.id for run in place.jobs.runs()] == [first.id]
    place.wait(lambda run: run.phase == "stopping")


def test_a_launch_that_is_interrupted_before_it_starts_starts_nothing(place: Place) -> None:
    command = grammar.arguments(["run", str(place.script), "--flavor", "cpu-2c2g"])
    asked = commands.submission(command, sys.executable, {"PATH": "/usr/bin:/bin"})
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(commands.AbandonedError):
            commands.launch(command, asked, place.jobs, place.face(Heard()), interrupts)
    assert place.jobs.runs() == []


def test_replacing_gives_up_where_other_runs_take_the_code_dir_again_and_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = place.run()[0]
    asked: list[str] = []

    def submit(_asked: object) -> Run:
        asked.append("submit")
        raise InUseError("code_dir: in use", done.id)

    monkeypatch.setattr(place.jobs, "submit", submit)
    with pytest.raises(InUseError):
        place.run("--replace")
    assert 1 < len(asked) < 20


def test_the_run_is_handed_over_as_soon_as_it_is_known(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def follow(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "follow", follow)
    command = grammar.arguments(["run", str(place.script), "--flavor", "cpu-2c2g"])
    asked = commands.submission(command, sys.executable, {"PATH": "/usr/bin:/bin"})
    known: list[Run] = []
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        commands.launch(
            command, asked, place.jobs, place.face(Heard()), interrupts, started=known.append
        )
    assert [run.id for run in known] == [place.jobs.run("last").id]


def test_an_interpreter_is_found_as_a_shell_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin" / "python9"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(python.parent))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for text in ("python9", "bin/python9", "./bin/python9", "~/bin/python9", str(python)):
        assert commands.interpreter(text) == str(python)


def test_an_interpreter_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidJobError, match="python: `python9` is not a program"):
        commands.interpreter("python9")


def test_the_list_of_no_runs_says_how_to_start_one(place: Place) -> None:
    heard = place.command("list")
    assert heard.written == ""
    assert "no runs yet" in heard.said[0]
    assert json.loads(place.command("list", "--json").written) == []


def test_the_list_is_a_table_newest_first_that_cuts_nothing(place: Place) -> None:
    first = place.run()[0]
    second = place.run("--name", "a-name-that-goes-on-and-on-up-to-the-end")[0]
    head, *rows = place.command("list").written.splitlines()
    assert head.split() == ["RUN", "PHASE", "STARTED", "TOOK", "WHAT", "CODE"]
    assert [row.split()[0] for row in rows] == [second.id, first.id]
    assert all(str(place.script) in row and row == row.rstrip() for row in rows)


def test_a_list_in_a_notebook_has_one_line_a_run_and_shows_how_its_code_differs(
    place: Place,
) -> None:
    console = "GPU: 2*NVIDIA-A100 | CPU: 10 cores | Memory: 100 GB"
    place.run("--name", "looks")
    place.run("--flavor", console)
    heard = Heard()
    face = replace(place.face(heard), width=100)
    commands.perform(grammar.arguments(["list"]), place.jobs, face)
    head, *rows = heard.written.splitlines()
    assert len(rows) == 2
    assert max(map(len, [head, *rows])) <= 100
    assert all(re.search(r"  …?\S*project/train\.py$", row) for row in rows)
    assert "1 × 2 A100 (rehearsal)  " in rows[0]  # noqa: RUF001


def test_a_task_that_the_job_s_end_has_ended_is_no_surprise(place: Place) -> None:
    place.script.write_text(
        "import os, time\nif os.environ['MA_TASK_NAME'] == 'ps': time.sleep(600)\n"
    )
    assert place.run("--nodes", "2")[0].phase == "succeeded"
    shown = place.command("show").written
    assert shown.count("ended with the job") == 2
    assert "SIGTERM" not in shown


def test_the_list_as_json_is_the_runs(place: Place) -> None:
    run = place.run()[0]
    (listed,) = json.loads(place.command("list", "--json").written)
    assert listed["id"] == run.id
    assert listed["phase"] == "succeeded"


def test_show_tells_a_runs_tasks_and_how_they_ended(place: Place) -> None:
    run = place.run("--nodes", "2", "--ps", "0")[0]
    text = place.command("show", run.id).written
    assert f"✓ {run.id} succeeded" in text
    for task in run.tasks:
        assert f"{task.name} " in text
        assert task.log in text
    assert text.count(" finished ") == 2


def test_show_as_json_is_one_run(place: Place) -> None:
    run = place.run()[0]
    shown = json.loads(place.command("show", "--json").written)
    assert shown["id"] == run.id
    assert shown["tasks"][0]["name"] == "worker-0"


def test_show_of_a_failure_tells_its_cause(place: Place) -> None:
    place.script.write_text("raise ValueError('shapes')\n")
    place.run()
    text = place.command("show").written
    assert "worker-0 exited with code 1" in text
    assert "ValueError: shapes" in text


def test_logs_are_those_of_all_tasks_or_of_one(place: Place) -> None:
    place.run("--nodes", "2", "--ps", "0", "--cluster-flags", "none", "--", "hi")
    lines = place.command("logs").written.splitlines()
    assert sorted(lines) == ["worker-0 │ worker-0 hi", "worker-1 │ worker-1 hi"]
    assert place.command("logs", "--task", "worker-1").written == "worker-1 hi\n"


def test_logs_that_are_followed_end_with_how_the_run_ended(place: Place) -> None:
    place.run("--detach", "--", "wait")
    (place.script.parent / "go").touch()
    heard = place.command("logs", "last", "--follow")
    assert "worker-0 │ worker-0 wait" in heard.written
    assert heard.said[-1].startswith("✓ ")


def test_stop_asks_and_returns_and_a_run_that_is_over_is_only_told(place: Place) -> None:
    place.run("--detach", "--", "wait")
    heard = place.command("stop")
    assert heard.said[0].startswith("stopping ")
    assert place.wait(lambda run: run.over).phase == "stopped"
    assert place.command("stop").said[0].startswith("■ ")


def test_rm_removes_the_run_and_not_the_code(place: Place) -> None:
    run = place.run()[0]
    place.command("rm", run.id)
    assert not Path(run.directory).exists()
    assert place.script.exists()
    with pytest.raises(NotFoundError):
        place.command("show", run.id)


def test_flavors_are_listed_with_what_they_have(place: Place) -> None:
    rows = [row.split() for row in place.command("flavors").written.splitlines()]
    assert ["v100x8", "8", "V100", "72", "512", "GB"] in rows
