from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import end_runs, until

from tfjob_magic import __version__
from tfjob_magic.service.inprocess import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 60.0
SCRIPT = """\
import os, pathlib, signal, sys, time
me = f"{os.environ['MA_TASK_NAME']}-{os.environ['VC_TASK_INDEX']}"
what = sys.argv[1] if me == "worker-0" else "wait"
print(me, "begun", flush=True)
match what:
    case "exit":
        sys.exit(int(sys.argv[2]))
    case "die":
        os.kill(os.getpid(), int(sys.argv[2]))
    case "flood":
        for i in range(int(sys.argv[2])):
            print("n", i)
    case "wait":
        time.sleep(600)
    case "until":
        while not pathlib.Path(sys.argv[2]).exists():
            time.sleep(0.02)
    case "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("deaf", flush=True)
        time.sleep(600)
"""


class Terminal:
    """A folder with a script, and the command as a process of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "project").mkdir()
        (path / "project" / "train.py").write_text(SCRIPT)
        outside = ("TFJOB", "JPY_", "NO_COLOR")
        self.environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith(outside)},
            "TFJOB_HOME": str(path / "runs"),
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        }

    def start(self, *argv: str, **options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tfjob_magic.cli", *argv],
            cwd=self.path,
            env=self.environment,
            text=True,
            **{
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                **options,
            },
        )

    def tfjob(self, *argv: str) -> subprocess.CompletedProcess[str]:
        with self.start(*argv) as process:
            out, err = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return self.tfjob("run", "project/train.py", "--flavor", "cpu-2c2g", *argv)

    def start_run(self, *argv: str, **options: object) -> subprocess.Popen[str]:
        return self.start("run", "project/train.py", "--flavor", "cpu-2c2g", *argv, **options)

    @property
    def service(self) -> Service:
        return Service(self.path / "runs")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    end_runs(tmp_path / "runs")


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    pytest.fail(f"{text} was never printed")


def test_logs_go_to_stdout_and_what_it_has_to_say_to_stderr(terminal: Terminal) -> None:
    done = terminal.run("--", "exit", "0")
    assert done.returncode == 0
    assert done.stdout == "worker-0 │ worker-0 begun\n"
    first, *_, last = done.stderr.splitlines()
    assert first.startswith("train-")
    assert last.startswith("✓ train-")


@pytest.mark.parametrize("code", [1, 3, 42, 255])
def test_the_exit_code_is_the_failing_tasks(terminal: Terminal, code: int) -> None:
    done = terminal.run("--", "exit", str(code))
    assert done.returncode == code
    assert f"worker-0 exited with code {code}" in done.stderr


def test_a_signals_exit_code_is_a_shells(terminal: Terminal) -> None:
    assert terminal.run("--", "die", str(int(signal.SIGABRT))).returncode == 128 + signal.SIGABRT


def test_the_failure_of_one_task_ends_the_others(terminal: Terminal) -> None:
    done = terminal.run("--nodes", "2", "--cluster-flags", "none", "--", "exit", "7")
    assert done.returncode == 7
    assert "worker-0 exited with code 7" in done.stderr


def test_a_timeout_is_no_success(terminal: Terminal) -> None:
    done = terminal.run("--timeout", "0.5s", "--grace", "1", "--", "wait")
    assert done.returncode not in {0, 2}
    assert "✗ train-" in done.stderr


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["run", "project/train.py", "--node", "2"], "did you mean --nodes"),
        (["run", "project/train.py", "--epochs", "5"], "`-- --epochs 5`"),
        (["run", "project/train.py"], "flavor: "),
        (["run", "nowhere.py", "--flavor", "cpu-2c2g"], "nowhere.py"),
        (["run", "project/train.py", "--flavor", "cpu-2c2g", "--python", "nowhere"], "python: "),
        (["show", "nothing"], "no run"),
        (["frobnicate"], "no such command"),
    ],
)
def test_a_mistake_is_told_on_stderr_and_exits_with_2(
    terminal: Terminal, argv: list[str], says: str
) -> None:
    done = terminal.tfjob(*argv)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("tfjob: ")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["^C", "SIGTERM"]
)
def test_a_signal_stops_the_job_first(terminal: Terminal, number: int, code: int) -> None:
    with terminal.start_run("--", "wait") as process:
        read_until(process, "begun")
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert "■ stopping train-" in err
    assert "stopped after" in err
    assert terminal.service.run("last").phase == "stopped"


def test_a_second_interrupt_kills_the_job(terminal: Terminal) -> None:
    with terminal.start_run("--grace", "500", "--", "deaf") as process:
        read_until(process, "│ deaf")
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "interrupt again" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert terminal.service.run("last").tasks[0].signal == signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_the_job_outlives_the_terminal(terminal: Terminal, number: int) -> None:
    with terminal.start_run("--", "until", "go") as process:
        read_until(process, "begun")
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    assert not terminal.service.run("last").over
    (terminal.path / "project" / "go").touch()
    until(lambda: terminal.service.run("last").over)
    assert terminal.service.run("last").phase == "succeeded"


def test_a_detached_run_returns_at_once(terminal: Terminal) -> None:
    done = terminal.run("--detach", "--", "until", "go")
    assert done.returncode == 0
    assert "--follow" in done.stderr
    (terminal.path / "project" / "go").touch()
    assert "worker-0 begun" in terminal.tfjob("logs", "last", "--follow").stdout


def test_no_line_is_lost_on_the_way_to_a_pipe(terminal: Terminal) -> None:
    done = terminal.run("--", "flood", "100000")
    lines = done.stdout.splitlines()
    assert lines[1:] == [f"worker-0 │ n {i}" for i in range(100_000)]


def test_the_job_goes_on_when_nobody_reads_its_logs_any_more(terminal: Terminal) -> None:
    with terminal.start_run("--", "flood", "50000") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "✓ train-" in err
    assert "BrokenPipe" not in err


def test_a_full_disk_under_stdout_is_told_once_and_the_exit_code_is_the_jobs(
    terminal: Terminal,
) -> None:
    for argv, code in [(("flood", "50000"), 0), (("exit", "7"), 7)]:
        with (
            Path("/dev/full").open("w") as full,
            terminal.start_run("--", *argv, stdout=full) as process,
        ):
            _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == code
        assert err.count("No space left on device; the job goes on") == 1
        assert "Traceback" not in err
        assert terminal.service.run("last").over


def test_other_commands_end_with_a_sentence_when_stdout_is_full(terminal: Terminal) -> None:
    with (
        Path("/dev/full").open("w") as full,
        terminal.start("flavors", stdout=full) as process,
    ):
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert err == "tfjob: standard output cannot be written: No space left on device\n"


def test_a_full_stderr_is_borne_in_silence(terminal: Terminal) -> None:
    with (
        Path("/dev/full").open("w") as full,
        terminal.start_run("--", "exit", "7", stderr=full) as process,
    ):
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 7
    assert "begun" in out


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_as_one_that_nobody_reads(terminal: Terminal, closed: str) -> None:
    script = (
        f'"$0" -m tfjob_magic.cli flavors {closed} || exit 70\n'
        f'"$0" -m tfjob_magic.cli run project/train.py --flavor cpu-2c2g -- exit 7 {closed}\n'
    )
    done = subprocess.run(
        ["/bin/sh", "-c", script, sys.executable],
        cwd=terminal.path,
        env=terminal.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    assert "Traceback" not in done.stderr
    run = terminal.service.run("last")
    assert Path(run.tasks[0].log).read_text() == "worker-0 begun\n"
    assert sorted(path.name for path in (terminal.path / "project").iterdir()) == ["train.py"]


def test_a_working_directory_that_is_gone_is_told_in_a_sentence(terminal: Terminal) -> None:
    gone = terminal.path / "gone"
    for argv, code in [("plan", 1), ("run train.py --flavor cpu-2c2g", 1), ("list", 0)]:
        gone.mkdir()
        done = subprocess.run(
            [
                *("/bin/sh", "-c", f'rmdir "$PWD" && exec "$0" -m tfjob_magic.cli {argv}'),
                sys.executable,
            ],
            cwd=gone,
            env=terminal.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == code
        assert "Traceback" not in done.stderr
        assert ("does not exist any more; change to another one with cd" in done.stderr) == code


def test_an_interrupt_while_another_run_is_replaced_starts_nothing(terminal: Terminal) -> None:
    with terminal.start_run("--grace", "500", "--", "deaf") as first:
        read_until(first, "│ deaf")
        with terminal.start_run("--replace", "--name", "second") as second:
            assert second.stderr is not None
            assert "which uses this code dir" in second.stderr.readline()
            second.send_signal(signal.SIGINT)
            _, err = second.communicate(timeout=PATIENCE)
        assert second.returncode == 130
        assert err == "tfjob: interrupted; nothing was started\n"
        (run,) = terminal.service.runs()
        assert run.phase == "stopping"
        terminal.service.stop(run.id, 0.0)
        first.communicate(timeout=PATIENCE)


def test_other_commands_end_quietly_when_nobody_reads(terminal: Terminal) -> None:
    terminal.run("--", "flood", "50000")
    with terminal.start("logs") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGPIPE
    assert err == ""


def test_a_locale_that_cannot_print_the_logs_does_no_harm(terminal: Terminal) -> None:
    terminal.environment |= {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    done = terminal.run("--", "exit", "0")
    assert done.returncode == 0
    assert "worker-0 ? worker-0 begun" in done.stdout


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [
        ({"TERM": "xterm"}, True),
        ({"NO_COLOR": "1", "TERM": "xterm"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_colours_are_for_terminals_that_have_them(
    terminal: Terminal, variables: dict[str, str], *, coloured: bool
) -> None:
    terminal.environment |= variables
    ours, theirs = pty.openpty()
    with terminal.start("flavors", stdout=theirs) as process:
        os.close(theirs)
        out = b""
        while True:
            try:
                data = os.read(ours, 4096)
            except OSError:  # how a pseudo-terminal says that the other side is closed
                break
            out += data
        process.communicate(timeout=PATIENCE)
    os.close(ours)
    assert (b"\x1b[" in out) == coloured


def test_the_plan_is_json_that_a_program_can_read(terminal: Terminal) -> None:
    done = terminal.tfjob(
        "plan", "project/train.py", "--nodes", "2", "--flavor", "v100x8", "--json", "--", "a b"
    )
    plan = json.loads(done.stdout)
    assert [task["role"] for task in plan["tasks"]].count("ps") == 2
    assert all(task["argv"][-1] == "a b" for task in plan["tasks"])
    assert done.stderr == ""


def test_the_interpreter_is_what_which_python_gives(terminal: Terminal) -> None:
    folder = terminal.path / "bin"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    terminal.environment["PATH"] = f"{folder}:/usr/bin:/bin"
    plan = json.loads(
        terminal.tfjob("plan", "project/train.py", "--flavor", "cpu-2c2g", "--json").stdout
    )
    assert plan["tasks"][0]["argv"][0] == str(folder / "python")


def test_awkward_paths_and_parameters_arrive_as_they_are(terminal: Terminal) -> None:
    folder = terminal.path / "a 'b' \"c\" $d\nñ"
    folder.mkdir()
    (folder / "my train.py").write_text("import os, sys\nprint([os.getcwd(), *sys.argv])\n")
    words = ["a b", "", "'", "{x}", "$HOME", "--", "ñ\n"]
    done = terminal.tfjob("run", str(folder / "my train.py"), "--flavor", "cpu-2c2g", "--", *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"worker-0 │ {[str(folder), 'my train.py', *words]}\n"


def test_the_version_is_told(terminal: Terminal) -> None:
    assert terminal.tfjob("--version").stdout == f"tfjob {__version__}\n"


@pytest.mark.parametrize("argv", [[], ["-h"], ["help"], ["run", "-h"]])
def test_help_goes_to_stdout(terminal: Terminal, argv: list[str]) -> None:
    done = terminal.tfjob(*argv)
    assert done.returncode == 0
    assert "tfjob run" in done.stdout
    assert done.stderr == ""
