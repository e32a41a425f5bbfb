from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import psutil
import pytest
from conftest import end_runs, until
from IPython.core.interactiveshell import InteractiveShell
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

from tfjob_magic import magic
from tfjob_magic.notebook import JobFailedError, RefusedError, location
from tfjob_magic.service.inprocess import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_client.blocking import BlockingKernelClient

    from tfjob_magic.service import Run

PATIENCE = 60.0
SMALL = "--flavor cpu-2c2g"
WAITING = """\
import time
print("begun", flush=True)
time.sleep(600)
"""


class Notebook:
    """A real shell in a folder of its own, and what its cells printed."""

    def __init__(self, path: Path, shell: InteractiveShell, read: Callable[[], str]) -> None:
        self.path = path
        self.shell = shell
        self._read = read

    def run(self, source: str) -> str:
        """Run a cell that succeeds."""
        result = self.shell.run_cell(source)
        out = self._read()
        assert result.success, out
        assert result.result is None
        return out

    def fail(self, source: str) -> tuple[BaseException, str]:
        """Run a cell that does not."""
        result = self.shell.run_cell(source)
        out = self._read()
        error = result.error_in_exec or result.error_before_exec
        assert error is not None, out
        return error, out

    @property
    def runs(self) -> list[Run]:
        return Service().runs()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TFJOB_HOME", str(tmp_path / "runs"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("TFJOB_SOCKET", "JPY_SESSION_NAME", "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    yield
    end_runs(tmp_path / "runs")


@pytest.fixture
def notebook(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Notebook]:
    hooks = sys.displayhook, sys.excepthook
    shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    shell.run_line_magic("load_ext", "tfjob_magic")
    yield Notebook(tmp_path, shell, lambda: "".join(capfd.readouterr()))
    sys.displayhook, sys.excepthook = hooks


# ---- in a shell ------------------------------------------------------------------------------


def test_a_cell_runs_as_a_job_and_ends_with_one_line(notebook: Notebook) -> None:
    out = notebook.run(f"%%tfjob --nodes 2 {SMALL} -- hello\nimport sys\nprint(sys.argv[-1])\n")
    assert "worker-0 │ hello\n" in out
    assert "worker-1 │ hello\n" in out
    (run,) = notebook.runs
    assert out.splitlines()[0].startswith(f"{run.id} · 2 nodes × cpu-2c2g")  # noqa: RUF001
    assert re.fullmatch(
        rf"✓ {run.id} succeeded in \d+\.\d s · .* · logs: runs/{run.id}/logs",
        out.splitlines()[-1],
    )


def test_the_cell_becomes_the_boot_file_and_line_numbers_are_its_own(notebook: Notebook) -> None:
    _, out = notebook.fail(f"%%tfjob {SMALL}\nprint(1)\nraise ValueError('shapes')\n")
    boot_file = notebook.path / "user-job-dir" / "job" / "train.py"
    assert boot_file.read_text() == (f"# %%tfjob {SMALL}\nprint(1)\nraise ValueError('shapes')\n")
    assert f'File "{boot_file}", line 3' in out


def test_a_failure_raises_and_shows_its_cause_and_none_of_our_frames(notebook: Notebook) -> None:
    error, out = notebook.fail(f"%%tfjob --nodes 2 {SMALL}\nraise ValueError('shapes')\n")
    assert isinstance(error, JobFailedError)
    assert error.run.phase == "failed"
    assert "ValueError: shapes" in str(error)
    assert "exited with code 1" in out
    assert f"Whole log: runs/{error.run.id}/logs/{error.run.cause.task}.log" in out
    assert "tfjob_magic" not in out.replace(str(notebook.path), "")


def test_a_job_that_somebody_stops_is_no_success(notebook: Notebook) -> None:
    error, out = notebook.fail(
        f"%%tfjob {SMALL} --grace 1\n"
        "import subprocess, sys, time\n"
        "subprocess.run([sys.executable, '-m', 'tfjob_magic.cli', 'stop'])\n"
        "time.sleep(600)\n"
    )
    assert isinstance(error, JobFailedError)
    assert error.run.phase == "stopped"
    assert "stopped after" in out


def test_out_gets_the_run_however_it_ended(notebook: Notebook) -> None:
    notebook.run(f"%%tfjob {SMALL} --out good\nprint()\n")
    notebook.fail(f"%%tfjob {SMALL} --out bad\nraise SystemExit(3)\n")
    assert notebook.shell.user_ns["good"].phase == "succeeded"
    assert notebook.shell.user_ns["bad"].phase == "failed"


def test_out_gets_the_run_even_when_a_third_interrupt_leaves_it_behind(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def follow(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tfjob_magic.commands.follow", follow)
    error, _ = notebook.fail(f"%%tfjob {SMALL} --out run\n{WAITING}")
    assert isinstance(error, KeyboardInterrupt)
    assert notebook.shell.user_ns["run"].id == Service().run("last").id


def test_a_cell_that_is_interrupted_before_its_job_starts_starts_nothing(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect() -> Service:
        os.kill(os.getpid(), signal.SIGINT)
        return Service()

    monkeypatch.setattr("tfjob_magic.notebook.connect", connect)
    error, out = notebook.fail(f"%%tfjob {SMALL}\nprint()\n")
    assert isinstance(error, KeyboardInterrupt)
    assert out.strip() == "interrupted; nothing was started"
    assert notebook.runs == []
    assert not (notebook.path / "user-job-dir").exists()


def test_replace_stops_the_run_of_the_cell_before(notebook: Notebook) -> None:
    notebook.run(f"%%tfjob {SMALL} --detach --out old\n{WAITING}")
    old = notebook.shell.user_ns["old"]
    error, out = notebook.fail(f"%%tfjob {SMALL}\nprint()\n")
    assert isinstance(error, RefusedError)
    assert "--replace" in out
    out = notebook.run(f"%%tfjob {SMALL} --replace\nprint('new')\n")
    assert out.startswith(f"stopping {old.id}, which uses this code dir\n")
    assert "worker-0 │ new\n" in out
    assert Service().run(old.id).phase == "stopped"


def test_parameters_take_expressions_of_the_notebook(notebook: Notebook) -> None:
    notebook.run("epochs, name = 4, 'a b'")
    out = notebook.run(
        f"%%tfjob {SMALL} -- {{epochs + 1}} {{name}} $name\nimport sys\nprint(sys.argv[1:])\n"
    )
    assert "['5', 'a b', '$name']" in out


def test_one_undefined_name_is_named_and_nothing_starts(notebook: Notebook) -> None:
    error, out = notebook.fail(f"%%tfjob {SMALL} -- {{epochs}}\nprint()\n")
    assert "`epochs`, which is not defined" in str(error)
    assert out.startswith("tfjob: parameters: ")
    assert len(out.splitlines()) == 1
    assert not (notebook.path / "user-job-dir").exists()
    assert notebook.runs == []


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("%%tfjob --nodes 0 --flavor v100x8\nprint()\n", "nodes: "),
        ("%%tfjob --node 2\nprint()\n", "did you mean --nodes"),
        ("%%tfjob --flavor v100x9x\nprint()\n", "flavor: "),
        ("%%tfjob\nprint()\n", "flavor: "),
        (f"%%tfjob {SMALL}\nx = 1\n%matplotlib inline\n", "line 3"),
        (f"%%tfjob {SMALL}\nx = (\n", "line 2"),
        (f"%%tfjob {SMALL}\n\n", "cell: "),
        (f"%%tfjob {SMALL} --python nowhere\nprint()\n", "python: "),
        (f"%%tfjob {SMALL} --job-dir ~nobody-here/x\nprint()\n", "`~nobody-here` is not a user's"),
        (f"%%tfjob {SMALL} -- {{__import__('sys').exit(3)}}\nprint()\n", "SystemExit: 3"),
        ("%tfjob lst", "did you mean list?"),
        ("%tfjob show nothing", "no run"),
    ],
)
def test_a_mistake_is_told_without_a_traceback_and_starts_nothing(
    notebook: Notebook, source: str, says: str
) -> None:
    error, out = notebook.fail(source)
    assert isinstance(error, RefusedError)
    assert says in out
    assert out.startswith("tfjob: ")
    assert "Traceback" not in out
    assert notebook.runs == []
    assert not (notebook.path / "user-job-dir").exists()


def test_a_dry_run_shows_everything_and_starts_and_writes_nothing(notebook: Notebook) -> None:
    out = notebook.run("%%tfjob --nodes 2 --flavor v100x8 --dry-run -- --epochs 5\nprint()\n")
    for part in ("worker-1", "container network", "--epochs 5", "TF_CONFIG", "VC_TASK_INDEX=1"):
        assert part in out
    assert sorted(path.name for path in notebook.path.iterdir()) in (["ipython"], [], ["runs"])
    assert notebook.runs == []


def test_a_detached_cell_returns_at_once_and_can_be_looked_at_and_stopped(
    notebook: Notebook,
) -> None:
    out = notebook.run(f"%%tfjob {SMALL} --detach --out run\n{WAITING}")
    run = notebook.shell.user_ns["run"]
    assert not run.over
    assert f"tfjob logs {run.id} --follow" in out
    assert run.id in notebook.run("%tfjob list")
    log = Path(run.tasks[0].log)
    until(lambda: log.exists() and "begun" in log.read_text())
    notebook.run("%tfjob stop")
    until(lambda: Service().run(run.id).over)
    assert "stopped after" in notebook.run("%tfjob show")
    assert "worker-0 │ begun" in notebook.run(f"%tfjob logs {run.id}")


def test_lines_are_continued_and_keep_their_numbers(notebook: Notebook) -> None:
    source = (
        f"%%tfjob \\\n  {SMALL} \\\n  -- 'a \\\n  b'\nimport sys\nraise ValueError(sys.argv[1:])\n"
    )
    _, out = notebook.fail(source)
    assert "ValueError: ['a    b']" in out
    assert 'train.py", line 6' in out


def test_the_environment_is_the_kernels(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_KERNEL", "yes")
    monkeypatch.setenv("TF_CONFIG", "left behind")
    out = notebook.run(
        f"%%tfjob {SMALL} --env MINE='a b'\n"
        "import os\n"
        "print([os.environ.get(name) for name in ('OF_THE_KERNEL', 'MINE', 'TF_CONFIG')])\n"
    )
    assert "['yes', 'a b', None]" in out


def test_a_secret_on_the_line_is_not_written_to_the_boot_file(notebook: Notebook) -> None:
    notebook.run(f"%%tfjob {SMALL} --env TOKEN=hidden\nprint()\n")
    boot_file = notebook.path / "user-job-dir" / "job" / "train.py"
    assert "hidden" not in boot_file.read_text()


def test_run_and_plan_of_a_file_work_from_a_line(notebook: Notebook) -> None:
    script = notebook.path / "project" / "train.py"
    script.parent.mkdir()
    script.write_text("import sys\nprint(sys.executable, sys.argv[1:])\n")
    out = notebook.run(f"%tfjob run project/train.py {SMALL} -- {{6 * 7}}")
    assert f"{sys.executable} ['42']" in out
    out = notebook.run(f"%tfjob plan project/train.py {SMALL} -- {{6 * 7}}")
    assert "train.py 42" in out


def test_the_help_explains_it_all(notebook: Notebook) -> None:
    for source in ("%tfjob", "%tfjob help", "%%tfjob --help\npass\n"):
        out = notebook.run(source)
        assert "%%tfjob --nodes 2 --flavor v100x8 -- --epochs 5" in out
        assert "--cluster-flags" in out
    assert "usage: tfjob logs" in notebook.run("%tfjob help logs")


def test_the_question_mark_explains_it_all(notebook: Notebook) -> None:
    out = notebook.run("%%tfjob?")
    for part in ("--evaluator", "--out VAR", "%tfjob stop", "(interrupt)"):
        assert part in out


@pytest.mark.parametrize(
    ("source", "loaded"),
    [
        ("# a comment\n%%tfjob --flavor cpu-1c1g\nprint()", True),
        ("%%tfjob --flavor cpu-1c1g\nprint()", False),
        ("%tfjob list", False),
    ],
)
def test_the_troubleshooting_page_has_the_message_that_ipython_shows(
    notebook: Notebook, source: str, *, loaded: bool
) -> None:
    if not loaded:
        for magics in notebook.shell.magics_manager.magics.values():
            magics.pop("tfjob", None)
    _, out = notebook.fail(source)
    (message,) = out.splitlines()
    page = Path(__file__).parent.parent / "docs" / "troubleshooting.md"
    assert f"``{message}``" in " ".join(page.read_text("utf-8").split())


def test_it_can_be_loaded_again(notebook: Notebook) -> None:
    notebook.run("%load_ext tfjob_magic")
    notebook.run("%reload_ext tfjob_magic")
    assert "no runs yet" in notebook.run("%tfjob list")


def test_a_flood_is_small_in_the_notebook_whole_on_disk_and_truly_counted(
    notebook: Notebook,
) -> None:
    out = notebook.run(f"%%tfjob {SMALL} --out run\nfor i in range(100_000):\n    print('n', i)\n")
    log = Path(notebook.shell.user_ns["run"].tasks[0].log)
    assert log.read_text().splitlines() == [f"n {i}" for i in range(100_000)]
    lines = [line for line in out.splitlines() if line.startswith("worker-0 │ ")]
    notices = [
        re.search(r"… ([\d ]+) lines? left out here; the whole log: (.*)", line) for line in lines
    ]
    counts = [int(notice[1].replace(" ", "")) for notice in notices if notice]
    assert len(lines) - len(counts) + sum(counts) == 100_000
    assert {notice[2] for notice in notices if notice} == {str(log)}
    assert lines[-1] == "worker-0 │ n 99999"
    assert len(out) < 50_000


def test_a_progress_bar_is_one_line(notebook: Notebook) -> None:
    out = notebook.run(
        f"%%tfjob {SMALL}\n"
        "for i in range(1000):\n"
        "    print(f'\\r{i + 1}/1000', end='', flush=True)\n"
        "print()\n"
    )
    assert [line for line in out.splitlines() if "/1000" in line] == ["worker-0 │ 1000/1000"]


# ---- where the notebook is -------------------------------------------------------------------


def test_the_job_dir_lies_beside_the_notebook_that_jupyter_names(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = notebook.path / "a folder"
    folder.mkdir()
    monkeypatch.setenv("JPY_SESSION_NAME", str(folder / "My Net 2.ipynb"))
    notebook.run(f"%%tfjob {SMALL}\nprint()\n")
    assert (folder / "user-job-dir" / "My Net 2" / "train.py").exists()
    assert notebook.runs[0].id.startswith("my-net-2-")


def test_the_job_dir_lies_beside_the_notebook_that_vs_code_names(notebook: Notebook) -> None:
    folder = notebook.path / "code"
    folder.mkdir()
    notebook.shell.user_ns["__vsc_ipynb_file__"] = str(folder / "net.ipynb")
    notebook.run(f"%%tfjob {SMALL}\nprint()\n")
    assert (folder / "user-job-dir" / "net" / "train.py").exists()


def test_two_notebooks_never_share_a_code_dir(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["训练", "模型", "My NB", "my-nb", "a'b", "Übung 1"]
    for name in names:
        monkeypatch.setenv("JPY_SESSION_NAME", str(notebook.path / f"{name}.ipynb"))
        notebook.run(f"%%tfjob {SMALL}\nprint({name!r})\n")
    job_dir = notebook.path / "user-job-dir"
    for name in names:
        assert repr(name) in (job_dir / name / "train.py").read_text()
    assert sorted(path.name for path in job_dir.iterdir()) == sorted(names)
    assert [run.name for run in reversed(notebook.runs)] == [
        "job", "job", "my-nb", "my-nb", "a-b", "ubung-1",
    ]  # fmt: skip


def test_a_notebook_whose_name_cannot_be_a_folders_is_told_to_choose_one(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", str(notebook.path / "...ipynb"))
    error, _ = notebook.fail(f"%%tfjob {SMALL}\nprint()\n")
    assert "--code-dir" in str(error)
    notebook.run(f"%%tfjob {SMALL} --name net\nprint()\n")
    assert (notebook.path / "user-job-dir" / "net" / "train.py").exists()


def test_a_working_directory_that_is_gone_is_told_in_a_sentence(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = notebook.path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for source in (f"%%tfjob {SMALL}\nprint()\n", "%tfjob plan", f"%tfjob run a.py {SMALL}"):
        error, out = notebook.fail(source)
        assert isinstance(error, RefusedError)
        assert out.startswith("tfjob: the working directory does not exist any more")


@pytest.mark.parametrize("name", ["net.ipynb", "/nowhere/at/all/net.ipynb", "/tmp/console-1", ""])
def test_a_notebook_that_is_not_known_is_the_working_directory(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", name)
    assert location({}) == (str(notebook.path), "job")


def test_names_and_directories_can_be_chosen(notebook: Notebook) -> None:
    notebook.run(f"%%tfjob {SMALL} --name net --boot-file main.py\nprint()\n")
    assert (notebook.path / "user-job-dir" / "net" / "main.py").exists()
    notebook.run(f"%%tfjob {SMALL} --code-dir 'My Code' --job-dir 'else where'\nprint()\n")
    assert (notebook.path / "else where" / "My Code" / "train.py").exists()
    assert notebook.runs[0].name == "my-code"


# ---- in a kernel -----------------------------------------------------------------------------


@contextmanager
def kernel(folder: Path) -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    manager = KernelManager()
    manager.start_kernel(cwd=str(folder))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


def printed_until(client: BlockingKernelClient, text: str) -> str:
    """Read what the kernel prints until a text appears in it."""
    out = ""
    while text not in out:
        message = client.get_iopub_msg(timeout=PATIENCE)
        out += message["content"].get("text", "")
        out += "\n".join(message["content"].get("traceback", ""))
    return out


def reply_to(client: BlockingKernelClient, request: str) -> dict:
    while True:
        reply = client.get_shell_msg(timeout=PATIENCE)
        if reply["parent_header"]["msg_id"] == request:
            return reply["content"]


def test_an_interrupt_stops_the_job_and_the_cells_that_wait(tmp_path: Path) -> None:
    with kernel(tmp_path) as (manager, client):
        client.execute("%load_ext tfjob_magic")
        cell = client.execute(f"%%tfjob {SMALL} --out run\n{WAITING}")
        following = client.execute("open('went on', 'w')")
        printed_until(client, "│ begun")
        manager.interrupt_kernel()
        reply = reply_to(client, cell)
        assert reply["status"] == "error"
        assert reply["ename"] == "JobInterrupted"
        assert "stopped after" in reply["evalue"]
        assert all(
            line.startswith(("■", "  logs: ")) for line in reply["traceback"][0].splitlines()
        )
        assert reply_to(client, following)["status"] == "aborted"
        assert not (tmp_path / "went on").exists()
        assert Service().run("last").phase == "stopped"
        after = client.execute("print(run.phase)")
        assert reply_to(client, after)["status"] == "ok"
        assert "stopped" in printed_until(client, "stopped\n")


@pytest.mark.parametrize("end", ["restart_kernel", "shutdown_kernel"])
@pytest.mark.parametrize("now", [False, True])
def test_a_kernel_that_goes_away_leaves_the_job_of_its_cell_alone(
    tmp_path: Path, end: str, *, now: bool
) -> None:
    with kernel(tmp_path) as (manager, client):
        client.execute("%load_ext tfjob_magic")
        client.execute(f"%%tfjob {SMALL}\n{WAITING}")
        printed_until(client, "│ begun")
        getattr(manager, end)(now=now)
        run = Service().run("last")
        assert run.phase == "running"
        assert "stop" not in Path(run.directory, "events.jsonl").read_text()


def test_a_second_interrupt_kills_a_job_that_does_not_listen(tmp_path: Path) -> None:
    deaf = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{WAITING}"
    with kernel(tmp_path) as (manager, client):
        client.execute("%load_ext tfjob_magic")
        cell = client.execute(f"%%tfjob {SMALL} --grace 500\n{deaf}")
        printed_until(client, "│ begun")
        manager.interrupt_kernel()
        printed_until(client, "interrupt again to kill it at once")
        manager.interrupt_kernel()
        assert reply_to(client, cell)["ename"] == "JobInterrupted"
        assert Service().run("last").tasks[0].signal == signal.SIGKILL


def test_a_failure_stops_the_cells_that_wait(tmp_path: Path) -> None:
    with kernel(tmp_path) as (_, client):
        client.execute("%load_ext tfjob_magic")
        cell = client.execute(f"%%tfjob {SMALL}\nraise ValueError('shapes')\n")
        following = client.execute("open('went on', 'w')")
        reply = reply_to(client, cell)
        assert reply["ename"] == "JobFailedError"
        assert "shapes" in reply["evalue"]
        assert reply_to(client, following)["status"] == "aborted"
        assert not (tmp_path / "went on").exists()


def test_a_cell_works_while_an_asyncio_task_runs(tmp_path: Path) -> None:
    with kernel(tmp_path) as (_, client):
        client.execute("import asyncio\ntask = asyncio.create_task(asyncio.sleep(600))")
        client.execute("%load_ext tfjob_magic")
        cell = client.execute(f"%%tfjob {SMALL}\nprint('fine')\n")
        assert reply_to(client, cell)["status"] == "ok"


def test_nbclient_runs_a_notebook_and_stops_at_a_failure(tmp_path: Path) -> None:
    sources = [
        "%load_ext tfjob_magic",
        f"%%tfjob {SMALL}\nprint('hello')\n",
        f"%%tfjob {SMALL}\nraise ValueError('shapes')\n",
        "print('went on')",
    ]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}})
    with pytest.raises(CellExecutionError, match="ValueError: shapes"):
        client.execute()
    assert "worker-0 │ hello\n" in "".join(output.text for output in cells[1].outputs)
    assert cells[2].outputs[-1].ename == "JobFailedError"
    assert cells[3].outputs == []


# ---- in a terminal ---------------------------------------------------------------------------


def test_plain_ipython_says_the_same(tmp_path: Path) -> None:
    script = tmp_path / "session.ipy"
    script.write_text(
        "%load_ext tfjob_magic\n"
        f"get_ipython().run_cell('%%tfjob {SMALL}\\nprint(1 + 1)\\n')\n"
        f"get_ipython().run_cell('%%tfjob {SMALL}\\nraise ValueError(7)\\n')\n"
        "get_ipython().run_cell('%%tfjob --node 2\\nprint()\\n')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", str(script)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        check=False,
    )
    assert "worker-0 │ 2\n" in done.stdout
    assert "✓ job-" in done.stdout
    assert "ValueError: 7" in done.stdout
    assert "tfjob: --node: no such option" in done.stdout
    assert "magic.py" not in done.stdout
    assert done.stderr == ""


def test_an_import_that_fails_is_shown_by_the_first_use_and_not_before(
    monkeypatch: pytest.MonkeyPatch, notebook: Notebook
) -> None:
    monkeypatch.delitem(sys.modules, "tfjob_magic.notebook")
    monkeypatch.delattr("tfjob_magic.notebook")
    monkeypatch.delattr("tfjob_magic.commands")
    monkeypatch.setitem(sys.modules, "tfjob_magic.commands", None)
    magic._import_the_rest()
    error, out = notebook.fail("%tfjob list")
    assert isinstance(error, ImportError)
    assert "tfjob_magic.commands" in out


def test_loading_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, threading\n"
        "import IPython.core.interactiveshell\n"
        "threading.Thread.start = lambda self: None\n"
        "import tfjob_magic.magic\n"
        "tfjob_magic.magic.register(IPython.core.interactiveshell.InteractiveShell())\n"
        "print([name for name in ('pydantic', 'rich', 'psutil', 'tensorflow', 'tornado')"
        " if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout == "[]\n"


def test_the_kernel_keeps_no_process_of_the_job(notebook: Notebook) -> None:
    before = psutil.Process().children()
    notebook.run(f"%%tfjob {SMALL}\nprint()\n")
    notebook.run(f"%%tfjob {SMALL} --detach --name other\nprint()\n")
    assert psutil.Process().children() == before
