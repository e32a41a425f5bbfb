"""What several test files share: where runs are kept, tiny jobs, a real Jupyter server."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import settings

from tfjob_magic.client import server as client_server
from tfjob_magic.service import Batch, Jobs, Run, Submission
from tfjob_magic.service.inprocess import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from email.message import Message

T = TypeVar("T")

# New examples are for a person at work; what CI says of a change depends on the change alone.
settings.register_profile("ci", derandomize=True, database=None)
if "CI" in os.environ:
    settings.load_profile("ci")

DEADLINE = 30.0  # seconds; far beyond what anything here takes


def until(look: Callable[[], T], what: str = "it is true", *, deadline: float = DEADLINE) -> T:
    """Look until there is something true, and return it; `what` is waited for."""
    end = time.monotonic() + deadline
    while not (seen := look()):
        assert time.monotonic() < end, f"until {what}: still {seen!r} after {deadline:g} s"
        time.sleep(0.02)
    return seen


def over(jobs: Jobs, run: str) -> Run:
    """Wait for a run's end."""
    end = time.monotonic() + DEADLINE
    while not (seen := jobs.poll(run, {}, 1.0).run).over:
        assert time.monotonic() < end, f"{run} is still {seen.phase}"
    return seen


def whole_logs(jobs: Jobs, run: str) -> dict[str, bytes]:
    """Read what every task has printed so far, a batch at a time."""
    logs: dict[str, bytes] = {}
    batch: Batch
    while (batch := jobs.poll(run, {task: len(data) for task, data in logs.items()})).chunks:
        for chunk in batch.chunks:
            assert chunk.offset == len(logs.get(chunk.task, b""))
            logs[chunk.task] = logs.get(chunk.task, b"") + chunk.data
    return logs


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def home(tmp_path, monkeypatch) -> Iterator[Path]:
    """Where the runs of this test are kept; what is still running at its end is killed."""
    place = tmp_path / "runs"
    monkeypatch.setenv("TFJOB_HOME", str(place))
    monkeypatch.delenv("TFJOB_SOCKET", raising=False)
    monkeypatch.setattr(client_server, "HANDSHAKE", DEADLINE)  # no test is about a busy machine
    yield place
    end_runs(place)


def end_runs(home: Path) -> None:
    """Kill every run that is kept there."""
    service = Service(home)
    for run in service.runs():
        if not run.over:
            service.stop(run.id, 0.0)
            over(service, run.id)


@pytest.fixture
def modes_count() -> Iterator[None]:
    """Let the modes of files count for root as they do for everybody else.

    Takes two capabilities from the thread's effective set, and gives them back.
    """
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this thread
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: low words, then high
    assert libc.capget(header, sets) == 0
    before = sets[0]
    sets[0] = before & ~(1 << 1 | 1 << 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    assert libc.capset(header, sets) == 0
    yield
    sets[0] = before
    assert libc.capset(header, sets) == 0


@pytest.fixture
def job(tmp_path) -> Callable[..., Submission]:
    """Make a submission of a tiny program; further arguments are fields of the job."""

    def make(program: str = "print('done')", **fields) -> Submission:
        raw = {
            "job_dir": str(tmp_path / "user-job-dir"),
            "code_dir": "train",
            "flavor": "cpu-4c8g",
            "python": sys.executable,
            "grace": 2,
            **fields,
        }
        return Submission(
            job=raw,
            source=f"# %%tfjob\n{program}\n",
            environment={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")},
        )

    return make


@dataclass(frozen=True)
class Reply:
    """What a server answered."""

    status: int
    headers: Message
    body: bytes

    @property
    def json(self):
        """The body as JSON."""
        return json.loads(self.body)


@dataclass
class Server:
    """A Jupyter server in a process of its own, reached through its port."""

    process: subprocess.Popen[bytes]
    url: str
    token: str
    home: Path
    runtime: Path
    log: Path
    environment: dict[str, str] = field(repr=False)

    @property
    def socket(self) -> Path:
        """The kernels' door."""
        (path,) = (self.runtime / "tfjob").glob("*.sock")
        return path

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
        *,
        raw: bytes | None = None,
    ) -> Reply:
        """Send a request, with the token where no headers are given."""
        if headers is None:
            headers = {"Authorization": f"token {self.token}"}
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - the server's own URL
            f"{self.url}{path}", data=data, headers=headers, method=method
        )
        opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=DEADLINE) as reply:
                return Reply(reply.status, reply.headers, reply.read())
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, error.headers, error.read())

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it as ^C and y would."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                self.kill()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args, **_kwargs):
        return None


def start_server(place: Path, runtime: Path, *options: str, home: Path | None = None) -> Server:
    """Start a Jupyter server that knows nothing of its user's configuration."""
    place.mkdir(exist_ok=True)
    (place / "notebooks").mkdir(exist_ok=True)
    kept = home or place / "runs"
    environment = {
        **{
            name: os.environ[name]
            for name in ("PATH", "HOME", "LANG", "PYTHONPATH")
            if name in os.environ
        },
        "JUPYTER_CONFIG_DIR": str(place / "config"),
        "JUPYTER_DATA_DIR": str(place / "data"),
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "XDG_RUNTIME_DIR": str(runtime),
        "TFJOB_HOME": str(kept),
    }
    log = place / "server.log"
    command = [
        *(sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"),
        *("--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", "--IdentityProvider.token=secret"),
        *(f"--ServerApp.root_dir={place / 'notebooks'}", *options),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=place, stdout=output, stderr=subprocess.STDOUT
        )
    told = runtime / f"jpserver-{process.pid}.json"

    def url() -> str | None:
        assert process.poll() is None, log.read_text()
        try:
            known = json.loads(told.read_text())
            socket.create_connection((known["hostname"], known["port"])).close()
        except (FileNotFoundError, ValueError, ConnectionRefusedError):
            return None
        return str(known["url"])

    return Server(process, until(url).rstrip("/"), "secret", kept, runtime, log, environment)


@pytest.fixture(scope="session")
def servers(tmp_path_factory) -> Iterator[Callable[..., Server]]:
    """Start Jupyter servers; they are stopped, and their runs ended, with the session."""
    started: list[Server] = []
    runtimes: list[Path] = []

    def start(*options: str, home: Path | None = None, runtime: Path | None = None) -> Server:
        if runtime is None:  # short: a socket's path has 100 bytes
            runtime = Path(tempfile.mkdtemp(prefix="tfjob-test-"))
            runtimes.append(runtime)
        place = tmp_path_factory.mktemp("server")
        started.append(start_server(place, runtime, *options, home=home))
        return started[-1]

    yield start
    for server in started:
        server.stop()
        end_runs(server.home)
    for runtime in runtimes:
        shutil.rmtree(runtime)


@pytest.fixture(scope="session")
def server(servers) -> Server:
    """Share one Jupyter server among the tests of the session."""
    return servers()
