"""Finding the service: the server's socket where it fits, this process otherwise."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
from conftest import over, until, whole_logs

from tfjob_magic import __version__
from tfjob_magic.client import connect
from tfjob_magic.client import server as client_server
from tfjob_magic.client.server import ServerJobs
from tfjob_magic.errors import NotFoundError, UnavailableError
from tfjob_magic.service.inprocess import Service

FOREVER = "import time; print('begun', flush=True); time.sleep(600)"


@pytest.fixture
def place():
    """A directory whose path is short enough for a socket in it."""
    path = Path(tempfile.mkdtemp(prefix="tfjob-test-"))
    yield path
    shutil.rmtree(path)


@contextmanager
def answering(path: Path, *replies: bytes | None):
    """Listen on a socket and give each connection its reply, without reading; None: never one."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        held = []

        def serve() -> None:
            for reply in replies:
                connection, _ = listener.accept()
                if reply is None:
                    held.append(connection)
                    continue
                connection.recv(65536)
                connection.sendall(reply)
                connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        for connection in held:
            connection.close()


def http(body: object, status: str = "200 OK") -> bytes:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    return head.encode() + data


def hello(place: Path, **other: object) -> dict[str, object]:
    return {"uid": os.getuid(), "version": __version__, "home": str(place), **other}


def test_without_a_socket_the_service_is_in_this_process(home):
    assert isinstance(connect({}), Service)
    assert isinstance(connect({"TFJOB_SOCKET": ""}), Service)


def test_a_socket_that_answers_as_it_should_is_used(home, place):
    with answering(place / "s", http(hello(home))):
        assert isinstance(connect({"TFJOB_SOCKET": str(place / "s")}), ServerJobs)


def test_by_default_the_environment_of_the_process_counts(home, server, monkeypatch):
    monkeypatch.setenv("TFJOB_HOME", str(server.home))
    monkeypatch.setenv("TFJOB_SOCKET", str(server.socket))
    assert isinstance(connect(), ServerJobs)


@pytest.mark.parametrize(
    "other",
    [{"uid": 12345678}, {"version": "0.0.0"}, {"home": "/elsewhere"}, {"version": None}],
    ids=str,
)
def test_another_user_version_or_home_is_not_talked_to(home, place, other):
    with answering(place / "s", http(hello(home, **other))):
        assert isinstance(connect({"TFJOB_SOCKET": str(place / "s")}), Service)


@pytest.mark.parametrize(
    "reply", [b"", b"SSH-2.0-OpenSSH_9\r\n", http([1]), http({}, "500 Sorry"), http({}, "403 No")]
)
def test_what_is_not_a_server_of_ours_is_not_talked_to(home, place, reply):
    with answering(place / "s", reply):
        assert isinstance(connect({"TFJOB_SOCKET": str(place / "s")}), Service)


def test_a_server_that_never_answers_is_given_up(home, place, monkeypatch):
    monkeypatch.setattr(client_server, "HANDSHAKE", 0.05)
    with answering(place / "s", None):
        assert isinstance(connect({"TFJOB_SOCKET": str(place / "s")}), Service)


def test_a_stale_socket_is_given_up(home, place):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place / "s"))
    assert (place / "s").exists()
    assert isinstance(connect({"TFJOB_SOCKET": str(place / "s")}), Service)


@pytest.mark.parametrize("path", ["/no/such/socket", "/etc/passwd", "/", "x" * 300, "a\nb"])
def test_a_path_that_is_not_a_socket_is_given_up(home, path):
    assert isinstance(connect({"TFJOB_SOCKET": path}), Service)


def test_an_error_of_the_server_is_not_taken_for_its_absence(home, place):
    path = str(place / "s")
    failing = answering(place / "s", http({"message": "Unhandled error"}, "500 Sorry"))
    with failing, pytest.raises(UnavailableError, match="log says why"):
        ServerJobs(path, Service()).runs()


def test_a_server_that_dies_is_taken_over_from_in_the_middle_of_a_run(servers, home, job):
    server = servers(home=home)
    jobs = connect({"TFJOB_SOCKET": str(server.socket)})
    assert isinstance(jobs, ServerJobs)
    program = """
import os, time
print('begun', flush=True)
while not os.path.exists('go'): time.sleep(0.01)
print('done', flush=True)
"""
    run = jobs.submit(job(program))
    (chunk,) = until(lambda: jobs.poll(run.id, {}, 1.0).chunks)
    server.kill()
    cursors = {"worker-0": len(chunk.data)}
    assert jobs.poll(run.id, cursors).run.phase == "running"
    Path(run.code_dir, "go").touch()
    assert until(lambda: jobs.poll(run.id, cursors, 1.0).chunks)[0].data == b"done\n"
    assert over(jobs, run.id).phase == "succeeded"
    assert whole_logs(jobs, run.id) == {"worker-0": b"begun\ndone\n"}
    jobs.remove(run.id)


def test_a_server_that_dies_does_not_keep_anybody_from_stopping(servers, home, job):
    server = servers(home=home)
    jobs = connect({"TFJOB_SOCKET": str(server.socket)})
    run = jobs.submit(job(FOREVER))
    server.kill()
    jobs.stop(run.id, 0.0)
    assert over(jobs, run.id).phase == "stopped"


def test_after_a_server_is_gone_jobs_start_in_this_process(servers, home, job):
    server = servers(home=home)
    jobs = connect({"TFJOB_SOCKET": str(server.socket)})
    server.stop()
    assert over(jobs, jobs.submit(job()).id).phase == "succeeded"


def test_a_server_that_dies_while_it_starts_a_job_is_said_so_and_nothing_is_started_twice(
    home, place, job
):
    with answering(place / "s", b""):
        jobs = ServerJobs(str(place / "s"), Service())
        with pytest.raises(UnavailableError, match="went away"):
            jobs.submit(job())
    assert jobs.runs() == []


def test_a_job_whose_caller_dies_before_it_hears_of_it_does_not_run_on(
    servers, home, job, tmp_path
):
    server = servers(home=home)
    configuration = tmp_path / "config" / "tfjob" / "config.toml"
    configuration.parent.mkdir(parents=True)
    os.mkfifo(configuration)  # the server reads on when this test lets it
    asked = job(FOREVER)
    asked.environment["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    program = """
import json, sys
from tfjob_magic.client import connect
from tfjob_magic.service import Submission
connect().submit(Submission(**json.loads(sys.argv[1])))
"""
    caller = subprocess.Popen(
        [sys.executable, "-c", program, json.dumps(asdict(asked))],
        env={**os.environ, "TFJOB_SOCKET": str(server.socket), "TFJOB_HOME": str(home)},
    )
    with configuration.open("w"):  # opens when the server reads
        caller.send_signal(signal.SIGKILL)
        caller.wait()
        assert server.ask("GET", "/tfjob/api/hello").status == 200  # it has seen the caller go
    later = server.ask("POST", "/tfjob/api/runs", asdict(job("x = 1", code_dir="later"))).json
    over(Service(), later["id"])
    others = [run.id for run in Service().runs() if run.id != later["id"]]
    assert [over(Service(), run).phase for run in others] in ([], ["stopped"])


def test_an_interrupt_ends_the_waiting_for_a_server_at_once(home, place):
    with answering(place / "s", None):
        jobs = ServerJobs(str(place / "s"), Service())
        main = threading.main_thread().ident
        timer = threading.Timer(0.2, signal.pthread_kill, [main, signal.SIGINT])
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            jobs.runs()
        assert time.monotonic() - began < client_server.PATIENCE / 2
        timer.join()


def test_names_cannot_leave_their_place_in_a_path(server, home, monkeypatch):
    monkeypatch.setenv("TFJOB_HOME", str(server.home))
    jobs = connect({"TFJOB_SOCKET": str(server.socket)})
    for name in ("a/logs/worker-0", "../hello", "a?b", "a#b", "a b", "%2F"):
        with pytest.raises(NotFoundError):
            jobs.run(name)
