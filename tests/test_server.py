"""The extension in a real Jupyter server: its two doors, who may use them, what outlives it."""

from __future__ import annotations

import http.cookiejar
import json
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
from conftest import alive, over, until
from jupyter_client import BlockingKernelClient
from pydantic import TypeAdapter

from tfjob_magic import __version__
from tfjob_magic.client import connect
from tfjob_magic.client.server import ServerJobs
from tfjob_magic.core import state
from tfjob_magic.server import door, operations
from tfjob_magic.server.app import TfjobExtension
from tfjob_magic.server.handlers import LARGEST_BODY, Backend
from tfjob_magic.server.operations import OPERATIONS
from tfjob_magic.service import Run
from tfjob_magic.service.inprocess import LONGEST_WAIT, Service

API = "/tfjob/api"
BINARY = "import sys; sys.stdout.buffer.write(bytes([0xFB, 0xFF, 0xFE]))"
FOREVER = "import time; print('begun', flush=True); time.sleep(600)"

LIST_ROUTES = """
import json
from jupyter_server.serverapp import ServerApp
app = ServerApp()
app.initialize(["--no-browser", "--allow-root", "--port=0", "--ip=127.0.0.1"])
def patterns(router):
    for rule in router.rules:
        yield getattr(getattr(rule.matcher, "regex", None), "pattern", "")
        if hasattr(rule.target, "rules"):
            yield from patterns(rule.target)
found = {pattern for pattern in patterns(app.web_app.default_router) if "tfjob" in pattern}
print("ROUTES" + json.dumps(sorted(found)))
"""


@pytest.fixture(scope="module")
def paths(server, tmp_path_factory):
    """A path for every route that the extension has in the server, as tornado knows them."""
    place = tmp_path_factory.mktemp("routes")
    listed = subprocess.run(
        [sys.executable, "-c", LIST_ROUTES],
        env={**server.environment, "XDG_RUNTIME_DIR": str(place)},
        cwd=place,
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = [line for line in listed.stdout.splitlines() if line.startswith("ROUTES")]
    patterns = json.loads(line.removeprefix("ROUTES"))
    return [re.sub(r"\(.*?\)", "x", pattern).rstrip("$") for pattern in patterns]


@pytest.fixture
def started(server, job):
    """Start a job through the browser's door, and see to its end."""
    runs = []

    def start(program: str, **fields):
        reply = server.ask("POST", f"{API}/runs", asdict(job(program, **fields)))
        assert reply.status == 200, reply.body
        runs.append(reply.json["id"])
        return reply.json

    yield start
    service = Service(server.home)
    for run in runs:
        if run in {found.id for found in service.runs()} and not service.run(run).over:
            service.stop(run, 0.0)
            over(service, run)


def test_the_extension_is_enabled_by_installing_it(tmp_path):
    listed = subprocess.run(
        [sys.executable, "-m", "jupyter", "server", "extension", "list"],
        env={**os.environ, "JUPYTER_CONFIG_DIR": str(tmp_path), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    told = re.sub(r"\x1b\[[0-9;]*m", "", listed.stdout + listed.stderr)
    assert re.search(r"tfjob_magic\s+enabled", told)
    assert re.search(rf"tfjob_magic\s+{re.escape(__version__)}\s+OK", told)


def test_hello_tells_user_version_and_home(server):
    assert server.ask("GET", f"{API}/hello").json == {
        "uid": os.getuid(),
        "version": __version__,
        "home": str(server.home),
    }


# ---- who may come in -------------------------------------------------------------------------


def test_every_operation_has_a_route(paths):
    assert set(paths) == {f"{API}/{re.sub(r'[(].*?[)]', 'x', path)}" for path in OPERATIONS}


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "token wrong"}, {"Authorization": "token "}, {"Cookie": "username=x"}],
    ids=["none", "wrong token", "empty token", "forged cookie"],
)
def test_no_route_answers_a_stranger(server, paths, headers):
    for path in paths:
        for method in ("GET", "HEAD", "POST", "DELETE", "PUT", "PATCH"):
            reply = server.ask(method, path, headers=headers)
            assert reply.status in {403, 405}, (method, path, reply.status)
            assert b"uid" not in reply.body


def test_every_operation_refuses_a_stranger_before_it_looks(server):
    for path, methods in OPERATIONS.items():
        for method in methods:
            place = re.sub(r"\(.*?\)", "x", path)
            assert server.ask(method, f"{API}/{place}", headers={}).status == 403


def test_a_method_that_a_path_does_not_have_is_not_allowed(server):
    assert server.ask("POST", f"{API}/hello").status == 405
    assert server.ask("DELETE", f"{API}/runs").status == 405
    assert server.ask("PUT", f"{API}/runs/x").status == 405


@pytest.fixture
def browser(server):
    """The cookies of a browser that has seen the login page and has logged in."""
    cookies = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(
        urllib.request.HTTPCookieProcessor(cookies), urllib.request.ProxyHandler({})
    )
    for path in ("/login", f"/api/status?token={server.token}"):
        with opener.open(server.url + path) as reply:
            assert reply.status == 200
    return cookies


def test_a_browser_without_the_xsrf_token_is_refused(server, browser, job):
    cookie = "; ".join(f"{cookie.name}={cookie.value}" for cookie in browser)
    asked = asdict(job())
    refused = server.ask("POST", f"{API}/preview", asked, {"Cookie": cookie})
    assert refused.status == 403
    token = next(cookie.value for cookie in browser if cookie.name == "_xsrf")
    headers = {"Cookie": cookie, "X-XSRFToken": token}
    assert server.ask("POST", f"{API}/preview", asked, headers).status == 200


def test_another_sites_page_is_refused(server, browser):
    cookie = "; ".join(f"{cookie.name}={cookie.value}" for cookie in browser)
    headers = {"Cookie": cookie, "Origin": "http://evil.example"}
    assert server.ask("POST", f"{API}/runs", {}, headers).status in {403, 404}


def test_whom_the_servers_authorizer_refuses_is_refused(servers, tmp_path, monkeypatch):
    (tmp_path / "readonly.py").write_text(
        "from jupyter_server.auth import Authorizer\n"
        "class ReadOnly(Authorizer):\n"
        "    def is_authorized(self, handler, user, action, resource):\n"
        "        return resource != 'tfjob' or action == 'read'\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = servers("--ServerApp.authorizer_class=readonly.ReadOnly")
    assert server.ask("GET", f"{API}/runs").status == 200
    assert server.ask("POST", f"{API}/runs", {}).status == 403
    assert server.ask("POST", f"{API}/runs/x/stop").status == 403
    assert server.ask("DELETE", f"{API}/runs/x").status == 403


# ---- what it answers -------------------------------------------------------------------------


def test_a_run_from_submit_to_remove(server, started):
    run = started("print('hello from a job')", nodes=2)
    url = f"{API}/runs/{run['id']}"
    assert run["id"] in {found["id"] for found in server.ask("GET", f"{API}/runs").json}
    ended = until(
        lambda: next(
            (
                batch["run"]
                for batch in [server.ask("POST", f"{url}/poll", {"wait": 1}).json]
                if batch["run"]["phase"] == "succeeded"
            ),
            None,
        )
    )
    assert ended["id"] == run["id"]
    assert server.ask("GET", url).json == ended
    assert server.ask("GET", f"{url}/plan").json["run"] == run["id"]
    log = server.ask("GET", f"{url}/logs/worker-1")
    assert log.body == b"hello from a job\n"
    assert server.ask("POST", f"{url}/stop").json["phase"] == "succeeded"
    assert server.ask("DELETE", url).status == 200
    assert server.ask("GET", url).status == 404


def test_stop_ends_a_run(server, started):
    run = started(FOREVER)
    url = f"{API}/runs/{run['id']}"
    assert server.ask("POST", f"{url}/stop", {"grace": 0}).status == 200
    until(lambda: server.ask("GET", url).json["phase"] == "stopped")


def test_a_log_is_sent_as_plain_text_whatever_it_holds(server, started):
    evil = "<script>alert(1)</script>"
    run = started(f"print({evil!r})")
    over(Service(server.home), run["id"])
    reply = server.ask("GET", f"{API}/runs/{run['id']}/logs/worker-0")
    assert reply.body == f"{evil}\n".encode()
    assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
    assert reply.headers["Content-Disposition"] is None


def test_a_log_can_be_downloaded_under_its_runs_name(server, started):
    run = started("print('x')")
    over(Service(server.home), run["id"])
    reply = server.ask("GET", f"{API}/runs/{run['id']}/logs/worker-0?download=1")
    expected = f'attachment; filename="{run["id"]}-worker-0.log"'
    assert reply.headers["Content-Disposition"] == expected


def test_a_large_log_is_sent_whole_and_from_any_byte(server, started):
    run = started("import sys\nfor i in range(500_000): sys.stdout.write(f'{i:9}\\n')")
    ended = over(Service(server.home), run["id"])
    written = Path(ended.tasks[0].log).read_bytes()
    assert len(written) == 5_000_000
    url = f"{API}/runs/{run['id']}/logs/worker-0"
    assert server.ask("GET", url).body == written
    assert server.ask("GET", f"{url}?offset=4999990").body == written[-10:]
    assert server.ask("GET", f"{url}?offset=5000001").body == b""


@pytest.mark.parametrize("offset", ["-1", "x", "1.5", "", "%C2%B2"])
def test_an_offset_that_is_none_is_refused(server, started, offset):
    run = started("print('x')")
    reply = server.ask("GET", f"{API}/runs/{run['id']}/logs/worker-0?offset={offset}")
    assert reply.status == 400
    assert reply.json["problems"][0]["field"] == "offset"


@pytest.mark.parametrize("task", ["worker-9", "..", "..%2F..%2Fplan.json", "%2e%2e%2flock", ""])
def test_only_a_tasks_log_is_a_log(server, started, task):
    run = started("print('x')")
    assert server.ask("GET", f"{API}/runs/{run['id']}/logs/{task}").status == 404


def test_each_kind_of_error_has_its_status(server, started, job, tmp_path):
    invalid = server.ask("POST", f"{API}/runs", asdict(job(nodes=0)))
    assert (invalid.status, invalid.json["error"]) == (400, "InvalidJobError")
    assert [problem["field"] for problem in invalid.json["problems"]] == ["nodes"]
    assert "nodes" in invalid.json["message"]
    missing = server.ask("GET", f"{API}/runs/nothing")
    assert (missing.status, missing.json["error"]) == (404, "NotFoundError")
    started(FOREVER)
    conflict = server.ask("POST", f"{API}/runs", asdict(job()))
    assert (conflict.status, conflict.json["error"]) == (409, "InUseError")
    strict = asdict(job(strict=True, nodes=1000, code_dir="other"))
    unavailable = server.ask("POST", f"{API}/runs", strict)
    assert (unavailable.status, unavailable.json["error"]) == (503, "UnavailableError")


@pytest.mark.parametrize(
    "raw",
    [
        *[
            b"",
            b"{",
            b"null",
            b"[]",
            b'"x"',
            b"\xff\xfe",
            b'{"job": 1}',
            b'{"job": {}, "sauce": 1}',
        ],
        *[b'{"job": {}, "source": 5}', b'{"job": {}, "environment": {"A": null}}'],
    ],
)
def test_a_body_that_is_not_a_submission_is_refused(server, raw):
    for path in ("runs", "preview"):
        reply = server.ask("POST", f"{API}/{path}", raw=raw)
        assert reply.status == 400
        assert reply.json["problems"]


@pytest.mark.parametrize(
    "body",
    [{"cursors": {"worker-0": -1}}, {"cursors": 1}, {"wait": "soon"}, {"wait": -1}, {"x": 1}, [1]],
    ids=str,
)
def test_a_poll_that_is_none_is_refused(server, started, body):
    run = started("print('x')")
    assert server.ask("POST", f"{API}/runs/{run['id']}/poll", body).status == 400


def test_the_browsers_contract_lists_what_a_field_can_be():
    schema = TypeAdapter(Run).json_schema()
    run, task = schema["properties"], schema["$defs"]["TaskStatus"]["properties"]
    assert set(run["phase"]["enum"]) > state.OVER
    assert run["network"]["enum"] == ["none", "container", "host"]
    assert task["phase"]["enum"] == ["pending", "running", "exited"]
    assert task["role"]["enum"] == ["ps", "chief", "worker", "evaluator"]


def test_logs_travel_in_the_base64_that_a_browser_reads(server, started):
    run = over(Service(server.home), started(BINARY)["id"])
    reply = server.ask("POST", f"{API}/runs/{run.id}/poll", {})
    (chunk,) = reply.json["chunks"]
    assert chunk == {"task": "worker-0", "offset": 0, "data": "+//+"}


@pytest.mark.parametrize("body", ['{"grace": -1}', '{"grace": NaN}', '{"grace": "soon"}'])
def test_a_grace_that_cannot_be_is_a_bad_request(server, started, body):
    run = started("print('x')")
    reply = server.ask("POST", f"{API}/runs/{run['id']}/stop", raw=body.encode())
    assert reply.status == 400
    assert [problem["field"] for problem in reply.json["problems"]] == ["grace"]


def test_a_code_dir_in_use_is_answered_with_the_run_that_uses_it(server, started, job):
    run = started(FOREVER)
    reply = server.ask("POST", f"{API}/runs", asdict(job("print('second')")))
    assert reply.status == 409
    assert (reply.json["error"], reply.json["run"]) == ("InUseError", run["id"])


def test_a_body_beyond_all_measure_is_refused(server):
    reply = server.ask("POST", f"{API}/runs", raw=b" " * (LARGEST_BODY + 1))
    assert reply.status == 413


@contextmanager
def waiting(server, run, number):
    """Poll a run that has no news, several times at once."""
    body = json.dumps({"wait": 10, "cursors": {"worker-0": 1000}}).encode()
    head = (
        f"POST {API}/runs/{run}/poll HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: token {server.token}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with ExitStack() as stack:
        polls = []
        for _ in range(number):
            poll = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])))
            polls.append(stack.enter_context(poll))
            poll.sendall(head.encode() + body)
        yield polls


def test_long_polls_keep_nobody_waiting(server, started):
    run = started("import time; print('news', flush=True); time.sleep(600)")["id"]
    service = Service(server.home)
    until(lambda: service.poll(run, {}).chunks)
    with waiting(server, run, 100) as polls:
        assert server.ask("GET", f"{API}/runs").status == 200
        assert server.ask("GET", "/api/status").status == 200
        news = server.ask("POST", f"{API}/runs/{run}/poll", {"wait": 10})
        assert news.json["chunks"]
        for poll in polls:
            poll.setblocking(False)  # noqa: FBT003
            with pytest.raises(BlockingIOError):
                poll.recv(1)


def test_a_wait_for_the_last_run_stays_with_the_run_that_was_the_last(home, job):
    service = Service()
    run = service.submit(job(FOREVER)).id
    until(lambda: service.poll(run, {}).chunks)
    body = json.dumps({"wait": 10, "cursors": {"worker-0": 1000}}).encode()
    reply = operations.poll(service, operations.Call({}, body, "last"))
    assert isinstance(reply, operations.Later)
    assert reply.run == run


def test_a_server_that_is_ended_does_not_wait_for_polls(servers, job):
    server = servers()
    run = server.ask("POST", f"{API}/runs", asdict(job(FOREVER))).json["id"]
    with waiting(server, run, 3):
        assert server.ask("GET", f"{API}/hello").status == 200
        server.process.terminate()
        server.process.wait(LONGEST_WAIT - 1)
    service = Service(server.home)
    service.stop(run, 0.0)
    over(service, run)


def test_under_a_base_url_both_doors_are_open(servers, home, monkeypatch):
    server = servers("--ServerApp.base_url=/user/ada/")
    assert server.url.endswith("/user/ada")
    assert server.ask("GET", f"{API}/hello").status == 200
    monkeypatch.setenv("TFJOB_HOME", str(server.home))
    assert isinstance(connect({"TFJOB_SOCKET": str(server.socket)}), ServerJobs)


# ---- the kernels' door -----------------------------------------------------------------------


def test_only_its_user_can_reach_the_socket(server):
    assert stat.S_IMODE(server.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(server.socket.parent.stat().st_mode) == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="needs to become another user")
def test_another_user_is_refused_even_where_the_modes_let_him_in(servers):
    server = servers()
    path = server.socket
    for directory in (path.parent, path.parent.parent):
        directory.chmod(0o755)
    path.chmod(0o666)
    with socket.socket(socket.AF_UNIX) as connection:
        os.seteuid(65534)
        try:
            connection.connect(str(path))
        finally:
            os.seteuid(0)
        connection.sendall(b"GET /tfjob/api/hello HTTP/1.0\r\n\r\n")
        reply = connection.makefile("rb").read()
    assert reply.startswith(b"HTTP/1.1 403 ")
    assert b"uid" not in reply


def test_a_kernel_of_the_server_finds_it(server):
    kernel = server.ask("POST", "/api/kernels", {}).json["id"]
    client = BlockingKernelClient(connection_file=str(server.runtime / f"kernel-{kernel}.json"))
    client.load_connection_file()
    client.start_channels()
    printed = []

    def show(message):
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    try:
        client.wait_for_ready(timeout=60)
        code = (
            "from tfjob_magic import client; client.HANDSHAKE = 30.0;"
            "print(type(client.connect()).__name__)"
        )
        client.execute_interactive(code, output_hook=show, timeout=60)
    finally:
        client.stop_channels()
        server.ask("DELETE", f"/api/kernels/{kernel}")
    assert "".join(printed) == "ServerJobs\n"


def test_requests_of_kernels_do_not_fill_the_servers_log(server, home, monkeypatch):
    monkeypatch.setenv("TFJOB_HOME", str(server.home))
    jobs = connect({"TFJOB_SOCKET": str(server.socket)})
    before = server.log.read_text()
    for _ in range(20):
        jobs.runs()
    assert server.log.read_text() == before


def test_the_socket_goes_with_the_server(servers):
    server = servers()
    path = server.socket
    server.stop()
    assert not path.exists()


def test_a_socket_that_a_dead_server_left_is_removed_and_a_live_one_is_not(servers):
    first = servers()
    dead = first.socket
    first.kill()
    assert dead.exists()
    with socket.socket(socket.AF_UNIX) as other:
        living = dead.with_name("other.sock")
        other.bind(str(living))
        other.listen()
        second = servers(runtime=first.runtime)
        left = set(dead.parent.glob("*.sock"))
        assert dead not in left
        assert living in left
        assert len(left) == 2
        second.stop()
        assert set(dead.parent.glob("*.sock")) == {living}


def test_a_directory_too_deep_for_a_socket_is_passed_over(tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(door, "_SHORT", short)
        assert door._directory() == Path(short, f"tfjob-{os.getuid()}")


@pytest.mark.parametrize("runtime", ["/proc/nowhere", "/etc/passwd", ""])
def test_a_runtime_directory_that_is_none_is_passed_over(monkeypatch, runtime):
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        monkeypatch.setattr(tempfile, "tempdir", short)
        assert door._directory() == Path(short, f"tfjob-{os.getuid()}")


def test_a_directory_that_somebody_else_made_is_passed_over(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        monkeypatch.setattr(tempfile, "tempdir", short)
        monkeypatch.setattr(door, "_SHORT", short)
        elsewhere = Path(short, "elsewhere")
        elsewhere.mkdir()
        Path(short, f"tfjob-{os.getuid()}").symlink_to(elsewhere)
        made = door._directory()
        assert made.parent == Path(short)
        assert made.name != f"tfjob-{os.getuid()}"
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
        assert list(elsewhere.iterdir()) == []


# ---- what outlives it ------------------------------------------------------------------------


def test_runs_outlive_a_server_that_is_killed_and_a_new_one_finds_them(servers, job, tmp_path):
    first = servers(home=tmp_path / "kept")
    program = """
import os, time
print('begun', flush=True)
while not os.path.exists('go'): time.sleep(0.01)
print('done', flush=True)
"""
    going = first.ask("POST", f"{API}/runs", asdict(job(program, nodes=2))).json
    quick = first.ask("POST", f"{API}/runs", asdict(job("print('q')", code_dir="quick"))).json
    until(lambda: first.ask("GET", f"{API}/runs/{going['id']}").json["phase"] == "running")
    pids = [task["pid"] for task in first.ask("GET", f"{API}/runs/{going['id']}").json["tasks"]]
    first.kill()
    assert all(alive(pid) for pid in pids)

    second = servers(home=tmp_path / "kept")
    listed = {run["id"]: run for run in second.ask("GET", f"{API}/runs").json}
    assert listed[going["id"]]["phase"] == "running"
    assert set(listed) == {going["id"], quick["id"]}
    Path(going["code_dir"], "go").touch()
    url = f"{API}/runs/{going['id']}"
    until(lambda: second.ask("GET", url).json["phase"] == "succeeded")
    until(lambda: second.ask("GET", f"{API}/runs/{quick['id']}").json["phase"] == "succeeded")
    assert second.ask("GET", f"{url}/logs/worker-1").body == b"begun\ndone\n"
    assert second.ask("GET", f"{url}/logs/ps-0").body.startswith(b"begun\n")


def test_a_live_run_is_activity_and_a_finished_one_is_none(home, job):
    extension = TfjobExtension()
    extension._backend = Backend(Service(), threads=None)
    assert extension.current_activity() is None
    service = Service()
    run = service.submit(job(FOREVER))
    assert extension.current_activity().keys() == {run.id}
    service.stop(run.id, 0.0)
    over(service, run.id)
    assert extension.current_activity() is None


def test_a_poll_over_the_socket_is_activity_to_the_server(server, home, monkeypatch):
    monkeypatch.setenv("TFJOB_HOME", str(server.home))
    jobs = connect({"TFJOB_SOCKET": str(server.socket)})
    before = time.time()
    jobs.runs()
    told = server.ask("GET", "/api/status?no_track_activity=1").json["last_activity"]
    assert told >= time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(before))
