"""The whole way, from a notebook to trained weights, by every door; and what outlives what."""

import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from jupyter_client.blocking import BlockingKernelClient
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
BIN = Path(sys.executable).parent
PATIENCE = 60.0  # seconds; an end to waiting, no verdict on speed

WAITING_JOB = """%%tfjob --nodes 2 --flavor cpu-4c4g --name waiting --detach
import os, pathlib, time
me = f"{os.environ['MA_TASK_NAME']}-{os.environ['VC_TASK_INDEX']}"
print(me, "begins", flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.02)
print(me, "ends", flush=True)
if me.startswith("ps"):
    time.sleep(3600)
"""


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    pytest.fail(f"waited in vain until {what}")


def processes_that_mention(text: str) -> dict[int, str]:
    """Find the processes with this text in their arguments or environment."""
    found = {}
    for proc in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            arguments = (proc / "cmdline").read_bytes()
            if text.encode() in arguments + (proc / "environ").read_bytes():
                found[int(proc.name)] = arguments.replace(b"\0", b" ").decode()
    return found


class Place:
    """A folder for notebooks, with run directories and a Jupyter configuration of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs = path / "runs"
        outside = ("TFJOB_", "JUPYTER", "JPY_", "XDG_")
        self.environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith(outside)},
            "TFJOB_HOME": str(self.runs),
            "HOME": str(path / "home"),
            "IPYTHONDIR": str(path / "home" / "ipython"),
            "JUPYTER_RUNTIME_DIR": str(path / "runtime"),
        }
        (path / "home").mkdir()

    def tfjob(self, *arguments: str) -> str:
        return subprocess.run(
            [BIN / "tfjob", *arguments],
            env=self.environment,
            cwd=self.path,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def show(self, run: str) -> dict:
        return json.loads(self.tfjob("show", run, "--json"))


@pytest.fixture
def place(tmp_path):
    """Give a folder to work in; what still runs from it at the end of a test is a failure."""
    place = Place(tmp_path)
    yield place
    left = processes_that_mention(str(tmp_path))
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert left == {}


class Kernel:
    """A kernel of a Jupyter server, spoken to by its connection file."""

    def __init__(self, place: Place, name: str) -> None:
        self._client = BlockingKernelClient()
        self._client.load_connection_file(str(place.path / "runtime" / f"kernel-{name}.json"))
        self._client.start_channels()
        self._client.wait_for_ready(timeout=PATIENCE)
        wait_until(self._is_heard, "the kernel's output is heard")

    def _is_heard(self) -> bool:
        """Tell whether output arrives; a kernel may answer before that."""
        self._client.kernel_info()
        try:
            return bool(self._client.get_iopub_msg(timeout=0.5))
        except queue.Empty:
            return False

    def run(self, source: str) -> str:
        """Run a cell and return what it printed."""
        printed = []

        def keep(message):
            content = message["content"]
            if message["msg_type"] == "stream":
                printed.append(content["text"])
            elif message["msg_type"] == "error":
                printed.append("\n".join(content["traceback"]))

        reply = self._client.execute_interactive(
            source, timeout=3 * PATIENCE, allow_stdin=False, output_hook=keep
        )
        assert reply["content"]["status"] == "ok", "".join(printed)
        return "".join(printed)

    def begin(self, source: str) -> None:
        """Run a cell without waiting for its end."""
        self._client.execute(source, allow_stdin=False)

    def close(self) -> None:
        self._client.stop_channels()


class Server:
    """A real Jupyter server, with the extension as installing has enabled it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        with (place.path / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(BIN / "jupyter", "server", "--no-browser", "--allow-root"),
                    *("--ServerApp.port=0", "--IdentityProvider.token=secret"),
                    f"--ServerApp.root_dir={place.path}",
                ],
                env=place.environment,
                cwd=place.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._info = place.path / "runtime" / f"jpserver-{self.process.pid}.json"
        wait_until(self._answers, "the Jupyter server answers")

    def _answers(self) -> bool:
        """Tell whether it does; its file is there a little before it listens."""
        assert self.process.poll() is None, (self._place.path / "server.log").read_text()
        try:
            return bool(self.ask("GET", "api/status"))
        except (FileNotFoundError, ValueError, urllib.error.URLError):
            return False

    def ask(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(  # noqa: S310 - http, to our own server
            json.loads(self._info.read_text())["url"] + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": "token secret"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:  # noqa: S310
            return json.loads(reply.read() or "null")

    @contextmanager
    def kernel(self):
        """Start a kernel in the folder; gives its id and a way to speak to it."""
        name = self.ask("POST", "api/kernels", {"name": "python3"})["id"]
        kernel = Kernel(self._place, name)
        try:
            yield name, kernel
        finally:
            kernel.close()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)

    def kill(self) -> None:
        """End the server by SIGKILL, and its kernels, which would wait for it for a while."""
        kernels = [
            pid
            for pid, words in processes_that_mention(str(self._place.path)).items()
            if "ipykernel" in words
        ]
        self.process.kill()
        self.process.wait(PATIENCE)
        for pid in kernels:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: not set(kernels) & set(processes_that_mention(str(self._place.path))),
            "the kernels are gone",
        )


@pytest.fixture
def server(place):
    """Start a Jupyter server that ends with the test."""
    server = Server(place)
    yield server
    if server.process.poll() is None:
        server.stop()


# ---- the same result by every door


def by_a_jupyter_server(notebook, place):
    server = Server(place)
    try:
        with server.kernel() as (_, kernel):
            printed = "".join(kernel.run(cell.source) for cell in notebook.cells)
            # It was the server's extension that ran the job.
            socket = kernel.run("import os; print(os.environ['TFJOB_SOCKET'])").strip()
            assert Path(socket).is_socket()
        return printed
    finally:
        server.stop()


def by_plain_ipython(notebook, place):
    path = place.path / "quickstart.ipynb"
    nbformat.write(notebook, path)
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--colors=NoColor", "--no-banner", path],
        env=place.environment,
        cwd=place.path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def by_nbclient(notebook, place):
    client = NotebookClient(notebook, resources={"metadata": {"path": str(place.path)}})
    client.execute(env=place.environment)
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    return "".join(output.get("text", "") for output in outputs)


@pytest.mark.tensorflow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("door", [by_a_jupyter_server, by_plain_ipython, by_nbclient])
def test_the_quickstart_trains_the_same_by_every_door(door, place):
    notebook = nbformat.read(NOTEBOOKS / "quickstart.ipynb", as_version=4)
    notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    (cell,) = [cell.source for cell in notebook.cells if cell.source.startswith("%%tfjob")]

    printed = door(notebook, place)

    (found,) = json.loads(place.tfjob("list", "--json"))
    run = place.show(found["id"])
    assert run["phase"] == "succeeded"
    assert [task["name"] for task in run["tasks"]] == ["ps-0", "ps-1", "worker-0", "worker-1"]

    # The program is the cell, line by line; it has the cluster's flags and its own parameter.
    program = Path(run["code_dir"], "train.py").read_text().splitlines()
    assert program[1:] == cell.splitlines()[1:]
    assert Path(run["code_dir"]).parent == place.path / "user-job-dir"

    # The cell shows every line that the tasks printed, and how it ended.
    for worker in ("worker-0", "worker-1"):
        epochs = re.findall(rf"^{worker} │ epoch (\d): ", printed, re.MULTILINE)
        assert epochs == list("12345")
    for ps in ("ps-0", "ps-1"):
        assert re.search(rf"^{ps} +│ holds parameters$", printed, re.MULTILINE)
    assert f"✓ {found['id']} succeeded" in printed

    # It has really learned, and the next cell finds it.
    assert np.load(Path(run["code_dir"], "weights.npz"))["w1"].shape == (2, 32)
    assert float(re.search(r"right for (.*)% of 5000", printed)[1]) > 95


# ---- a run outlives the kernel and the server


def started(kernel, place):
    """Start the job that waits, see it run, and return its id."""
    kernel.run("%load_ext tfjob_magic")
    kernel.run(WAITING_JOB)
    (run,) = json.loads(place.tfjob("list", "--json"))
    begun = "begins"
    wait_until(
        lambda: place.tfjob("logs", run["id"]).count(begun) == 4, "all four tasks have begun"
    )
    return run["id"]


def assert_goes_on_to_its_end(place, run, logs):
    """Let a run that is under way finish: it succeeds, and `logs` tells all that was printed."""
    assert place.show(run)["phase"] == "running"
    Path(place.show(run)["code_dir"], "go").touch()
    wait_until(lambda: place.show(run)["phase"] == "succeeded", "the run has succeeded")
    whole = logs()
    for task in ("ps-0", "ps-1", "worker-0", "worker-1"):
        assert whole.count(f"{task} begins") == 1
    for worker in ("worker-0", "worker-1"):
        assert whole.count(f"{worker} ends") == 1


def test_a_run_is_found_again_after_a_kill_of_server_and_kernel(place, server):
    with server.kernel() as (_, kernel):
        run = started(kernel, place)
    server.kill()

    again = Server(place)
    try:
        assert run in json.dumps(again.ask("GET", "tfjob/api/runs"))
        with again.kernel() as (_, kernel):
            kernel.run("%load_ext tfjob_magic")
            assert run in kernel.run("%tfjob list")
            assert_goes_on_to_its_end(place, run, lambda: kernel.run(f"%tfjob logs {run}"))
    finally:
        again.stop()


def test_a_run_goes_on_when_the_server_is_shut_down(place, server):
    with server.kernel() as (_, kernel):
        run = started(kernel, place)
    server.stop()
    assert_goes_on_to_its_end(place, run, lambda: place.tfjob("logs", run))


ATTACHED_JOB = WAITING_JOB.replace(" --detach", "")


def started_in_front(kernel, place):
    """Start the job that waits in a cell that follows it, see it run, and return its id."""
    kernel.run("%load_ext tfjob_magic")
    kernel.begin(ATTACHED_JOB)
    (run,) = wait_until(lambda: json.loads(place.tfjob("list", "--json")), "there is a run")
    begun = "begins"
    wait_until(
        lambda: place.tfjob("logs", run["id"]).count(begun) == 4, "all four tasks have begun"
    )
    return run["id"]


@pytest.mark.parametrize("start", [started, started_in_front])
def test_a_run_goes_on_when_its_kernel_is_restarted(place, server, start):
    with server.kernel() as (name, kernel):
        run = start(kernel, place)
        server.ask("POST", f"api/kernels/{name}/restart")
    after = Kernel(place, name)
    after.run("%load_ext tfjob_magic")
    assert run in after.run("%tfjob list")
    assert_goes_on_to_its_end(place, run, lambda: after.run(f"%tfjob logs {run}"))
    after.close()


def test_a_run_goes_on_when_the_server_of_its_running_cell_is_shut_down(place, server):
    with server.kernel() as (_, kernel):
        run = started_in_front(kernel, place)
    server.stop()
    assert run in place.tfjob("list")
    assert_goes_on_to_its_end(place, run, lambda: place.tfjob("logs", run))


def test_a_run_that_is_stopped_leaves_no_process_behind(place, server):
    with server.kernel() as (_, kernel):
        run = started(kernel, place)
        directory = place.show(run)["directory"]
        assert processes_that_mention(directory)
        kernel.run(f"%tfjob stop {run}")
        wait_until(lambda: place.show(run)["phase"] == "stopped", "the run has stopped")
        wait_until(lambda: not processes_that_mention(directory), "its processes are gone")


def test_run_all_stops_at_a_job_that_fails(place):
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell("%load_ext tfjob_magic"),
            nbformat.v4.new_code_cell("%%tfjob --flavor cpu-1c1g\nraise SystemExit(7)"),
            nbformat.v4.new_code_cell("open('next', 'w').close()"),
        ]
    )
    path = place.path / "notebook.ipynb"
    nbformat.write(notebook, path)
    done = subprocess.run(
        [sys.executable, NOTEBOOKS / "run.py", path],
        env=place.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "exited with code 7" in done.stdout
    assert not (place.path / "next").exists()


def test_an_interrupt_of_the_quickstart_s_terminal_stops_the_job(place):
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell("%load_ext tfjob_magic"),
            nbformat.v4.new_code_cell(WAITING_JOB.replace("--detach", "")),
        ]
    )
    path = place.path / "notebook.ipynb"
    nbformat.write(notebook, path)
    with subprocess.Popen(
        [sys.executable, NOTEBOOKS / "run.py", path],
        env=place.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as terminal:
        for line in terminal.stdout:
            if "worker-0 begins" in line:
                terminal.send_signal(signal.SIGINT)
                break
        rest = terminal.stdout.read()
    assert terminal.returncode == 1
    assert "stopped" in rest
    (run,) = json.loads(place.tfjob("list", "--json"))
    assert run["phase"] == "stopped"


def test_the_notebook_s_own_folder_is_found_wherever_the_server_was_started(place, server):
    (place.path / "sub folder").mkdir()
    session = server.ask(
        "POST",
        "api/sessions",
        {
            "path": "sub folder/a.ipynb",
            "name": "a",
            "type": "notebook",
            "kernel": {"name": "python3"},
        },
    )
    kernel = Kernel(place, session["kernel"]["id"])
    kernel.run("%load_ext tfjob_magic")
    kernel.run("%%tfjob --flavor cpu-1c1g\nopen('here', 'w').close()")
    kernel.close()
    (run,) = json.loads(place.tfjob("list", "--json"))
    assert Path(place.show(run["id"])["code_dir"]).parent.parent == place.path / "sub folder"
    shutil.rmtree(place.path / "sub folder")
