"""The service behind the Jupyter server's unix socket."""

from __future__ import annotations

import os
import socket
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import quote

from tfjob_magic import __version__
from tfjob_magic.core.flavor import Flavor
from tfjob_magic.errors import TfjobError, UnavailableError
from tfjob_magic.service import Batch, Run, Submission, wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfjob_magic.core.plan import Plan
    from tfjob_magic.service.inprocess import Service

HANDSHAKE = 0.25  # seconds in which a server has to answer; one at rest takes a thousandth
PATIENCE = 60.0  # seconds; the longest poll takes ten
_LONGEST_NAME = 200  # characters; that of a run is far shorter
_ERROR = 400  # the first HTTP status that is one

T = TypeVar("T")


def answers(path: str, here: Service) -> bool:
    """Whether a server listens there for this user, this version and these run directories."""
    try:
        with _Connection(path, HANDSHAKE) as connection:
            hello = wire.decode(wire.Hello, connection.ask("GET", "hello"))
    except (OSError, HTTPException, TfjobError):
        return False
    return hello == wire.Hello(uid=os.getuid(), version=__version__, home=str(here.home))


class ServerJobs:
    """`Jobs` over the server's socket.

    When the server goes, the service `here` takes over for good: what counts is in the run
    directories, and both read the same ones.
    """

    def __init__(self, path: str, here: Service) -> None:
        self._path: str | None = path
        self._here = here

    def preview(self, submission: Submission) -> Plan:
        """Plan the job."""
        return self._ask(
            ("POST", "preview", wire.encode(Submission, submission)),
            wire.decode_plan,
            lambda: self._here.preview(submission),
        )

    def submit(self, submission: Submission) -> Run:
        """Start the job; UnavailableError where the server went before it told the outcome."""
        connection = self._connection()
        if connection is None:
            return self._here.submit(submission)
        with connection:
            try:
                reply = connection.ask("POST", "runs", wire.encode(Submission, submission))
            except (OSError, HTTPException) as error:
                raise UnavailableError(
                    "the Jupyter server went away while it was starting the job;"
                    " `%tfjob list` shows whether it runs"
                ) from error
        return wire.decode(Run, reply)

    def runs(self) -> list[Run]:
        """List every run of this user."""
        return self._ask(
            ("GET", "runs", b""), lambda reply: wire.decode(list[Run], reply), self._here.runs
        )

    def run(self, name: str) -> Run:
        """Look at one run."""
        return self._ask(("GET", _path(name), b""), _read_run, lambda: self._here.run(name))

    def plan(self, name: str) -> Plan:
        """Show the plan that the run was started with."""
        return self._ask(
            ("GET", f"{_path(name)}/plan", b""), wire.decode_plan, lambda: self._here.plan(name)
        )

    def stop(self, name: str, grace: float | None = None) -> Run:
        """Ask the run to stop."""
        body = wire.encode(wire.StopRequest, wire.StopRequest.model_construct(grace=grace))
        return self._ask(
            ("POST", f"{_path(name)}/stop", body),
            _read_run,
            lambda: self._here.stop(name, grace),
        )

    def remove(self, name: str) -> None:
        """Delete the directory of a run that is over."""
        self._ask(
            ("DELETE", _path(name), b""), lambda _reply: None, lambda: self._here.remove(name)
        )

    def poll(self, name: str, cursors: dict[str, int], wait: float = 0.0) -> Batch:
        """Read on in the logs, waiting for something new."""
        body = wire.encode(
            wire.PollRequest, wire.PollRequest.model_construct(cursors=cursors, wait=wait)
        )
        return self._ask(
            ("POST", f"{_path(name)}/poll", body),
            wire.decode_batch,
            lambda: self._here.poll(name, cursors, wait),
        )

    def flavors(self) -> list[Flavor]:
        """List the flavors that have a name."""
        return self._ask(
            ("GET", "flavors", b""),
            lambda reply: wire.decode(list[Flavor], reply),
            self._here.flavors,
        )

    def _ask(
        self, request: tuple[str, str, bytes], read: Callable[[bytes], T], here: Callable[[], T]
    ) -> T:
        """Ask the server, and where it has gone, here: all but `submit` may be asked twice."""
        connection = self._connection()
        if connection is not None:
            try:
                with connection:
                    return read(connection.ask(*request))
            except (OSError, HTTPException):
                self._path = None
        return here()

    def _connection(self) -> _Connection | None:
        if self._path is not None:
            try:
                return _Connection(self._path, PATIENCE)
            except OSError:
                self._path = None
        return None


class _Connection:
    """One connection to the server, for one request; OSError where there is no listener."""

    def __init__(self, path: str, timeout: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(path)
        except BaseException:
            self._socket.close()
            raise
        self._http = HTTPConnection("localhost")
        self._http.sock = self._socket

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Send the request and read the reply; an error in it is raised."""
        self._http.request(method, f"/tfjob/api/{path}", body or None)
        response = self._http.getresponse()
        reply = response.read()
        if response.status >= _ERROR:
            raise wire.decode_error(reply)
        return reply


def _path(name: str) -> str:
    """Make the path of a run; a name that cannot be is cut, and not found by the server."""
    return f"runs/{quote(name[:_LONGEST_NAME], safe='', errors='replace')}"


def _read_run(reply: bytes) -> Run:
    return wire.decode(Run, reply)
