"""The kernels' door: the operations over a unix socket that only this user can reach.

Its path is in `TFJOB_SOCKET`, which kernels inherit.
"""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tornado.httpserver import HTTPServer
from tornado.log import access_log
from tornado.netutil import bind_unix_socket
from tornado.web import Application, RequestHandler

from tfjob_magic.client import VARIABLE
from tfjob_magic.server.handlers import LARGEST_BODY, Backend, SocketHandler
from tfjob_magic.server.operations import OPERATIONS
from tfjob_magic.store import private

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHORT = "/tmp"  # noqa: S108 - what is made there is checked to be ours
_LONGEST_PATH = 100  # bytes; the system's limit is 104 to 108


class Door:
    """A listening socket, from construction to `close`; OSError where there can be none."""

    def __init__(self, backend: Backend, jupyter_settings: dict[str, Any]) -> None:
        directory = _directory()
        _remove_stale(directory)
        self.path = directory / f"{secrets.token_hex(6)}.sock"
        routes = [
            (rf"/tfjob/api/{path}", SocketHandler, {"methods": methods, "backend": backend})
            for path, methods in OPERATIONS.items()
        ]
        application = Application(
            routes, jupyter_settings=jupyter_settings, log_function=_log_failure
        )
        self._server = HTTPServer(application, max_body_size=LARGEST_BODY)
        self._server.add_socket(bind_unix_socket(str(self.path), 0o600))
        os.environ[VARIABLE] = str(self.path)

    def close(self) -> None:
        """Stop listening and leave nothing behind."""
        self._server.stop()
        self.path.unlink(missing_ok=True)
        if os.environ.get(VARIABLE) == str(self.path):
            del os.environ[VARIABLE]


def _log_failure(handler: RequestHandler) -> None:
    """Keep requests out of the server's log, of which a followed run makes five a second."""
    if handler.get_status() >= HTTPStatus.INTERNAL_SERVER_ERROR:
        summary = f"{handler.request.method} {handler.request.path}"
        access_log.error("tfjob: %s ended in %d", summary, handler.get_status())


def _directory() -> Path:
    """Make or find a directory of mode 0700 that is short enough for a socket's path."""
    for directory in _candidates():
        if len(os.fsencode(directory)) + len("/0123456789ab.sock") <= _LONGEST_PATH:
            try:
                private.make(directory)
            except OSError:
                continue
            return directory
    return Path(tempfile.mkdtemp(prefix="tfjob-", dir=_SHORT))


def _candidates() -> Iterator[Path]:
    """Directories of this machine alone: a socket in a shared home would be seen from others."""
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime, "tfjob")
    for temporary in (tempfile.gettempdir(), _SHORT):
        yield Path(temporary, f"tfjob-{os.getuid()}")


def _remove_stale(directory: Path) -> None:
    """Remove the sockets of servers that died."""
    for path in directory.glob("*.sock"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(0)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:  # busy, or gone by itself
                continue
