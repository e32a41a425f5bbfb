"""HTTP around the operations: one handler for the browser's door, one for the kernels'."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web

from tfjob_magic import tail
from tfjob_magic.errors import (
    ConflictError,
    InUseError,
    InvalidJobError,
    NotFoundError,
    TfjobError,
    UnavailableError,
)
from tfjob_magic.server import operations
from tfjob_magic.server.operations import Call, Later, LogFile, Operation
from tfjob_magic.service import Run, wire
from tfjob_magic.service.inprocess import PAUSE

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Mapping
    from concurrent.futures import Executor

    from tfjob_magic.service.inprocess import Service

LARGEST_BODY = 32 * 2**20  # bytes; a notebook's cell and an environment are far below
STATUS: Mapping[type[TfjobError], int] = {
    InvalidJobError: 400,
    NotFoundError: 404,
    ConflictError: 409,
    InUseError: 409,
    UnavailableError: 503,
}
_GLANCE = 0.005  # seconds between two glances of any of those who wait
_PIECE = 2**20  # bytes of a log that are read and sent at a time


@dataclass
class Backend:
    """What stands behind both doors. `closing` is set when the server goes."""

    service: Service
    threads: Executor
    closing: bool = False
    _waiting: int = 0

    async def run(self, operation: Operation, call: Call) -> bytes | LogFile:
        """Do an operation in a thread, for it reads and writes files; waiting holds no thread."""
        loop = asyncio.get_running_loop()
        self._waiting += 1
        try:
            while True:
                reply = await loop.run_in_executor(self.threads, operation, self.service, call)
                if not isinstance(reply, Later):
                    return reply
                # The more wait, the less often each one looks: all together cost the same.
                await asyncio.sleep(max(PAUSE, _GLANCE * self._waiting))
                call = replace(call, later=reply)
        finally:
            self._waiting -= 1


class OperationHandler(web.RequestHandler):
    """Answers the requests for one path of the table of operations."""

    content_type = "application/json"
    _caller_gone = False

    def initialize(self, methods: Mapping[str, Operation], backend: Backend) -> None:
        """Take what the route was registered with."""
        self.methods = methods
        self.backend = backend

    async def answer(self, names: Mapping[str, str]) -> None:
        """Do what is asked for; `names` are those in the path."""
        operation = self.methods.get(self.request.method or "")
        if operation is None:
            raise web.HTTPError(405)
        if len(self.request.body) > LARGEST_BODY:
            raise web.HTTPError(413)
        query = {
            name: values[-1].decode("utf-8", "replace")
            for name, values in self.request.query_arguments.items()
        }
        try:
            run, task = names.get("run", ""), names.get("task", "")
            call = Call(query, self.request.body, run, task, gone=self._is_pointless)
            reply = await self.backend.run(operation, call)
        except TfjobError as error:
            self.set_status(STATUS[type(error)])
            reply = wire.encode_error(error)
        await self.deliver(operation, reply)

    def on_connection_close(self) -> None:
        """Remember that nobody waits for the answer any more."""
        super().on_connection_close()
        self._caller_gone = True

    def _is_pointless(self) -> bool:
        return self._caller_gone or self.backend.closing

    async def deliver(self, _operation: Operation, reply: bytes | LogFile) -> None:
        """Send the reply of an operation."""
        if isinstance(reply, LogFile):
            await self._send(reply)
        else:
            self.set_header("Content-Type", self.content_type)
            await self.finish(reply)

    async def _send(self, log: LogFile) -> None:
        """Send a log as far as it goes now, a piece at a time, as what it is: plain text."""
        self.content_type = "text/plain; charset=utf-8"
        self.set_header("Content-Type", self.content_type)
        self.set_header("X-Content-Type-Options", "nosniff")
        if log.download:
            self.set_header("Content-Disposition", f'attachment; filename="{log.name}"')
        loop = asyncio.get_running_loop()
        offset, end = log.offset, tail.size(log.path)
        while offset < end:
            piece = await loop.run_in_executor(
                self.backend.threads, tail.read, log.path, offset, min(_PIECE, end - offset)
            )
            if not piece:  # cut short since
                break
            self.write(piece)
            await self.flush()
            offset += len(piece)
        await self.finish()


class WebHandler(OperationHandler, APIHandler):
    """The browser's door: authentication, authorisation and XSRF are the Jupyter server's."""

    auth_resource = "tfjob"

    @web.authenticated
    @authorized
    async def get(self, **names: str) -> None:
        """Answer a GET."""
        await self.answer(names)

    @web.authenticated
    @authorized
    async def post(self, **names: str) -> None:
        """Answer a POST."""
        await self.answer(names)

    @web.authenticated
    @authorized
    async def delete(self, **names: str) -> None:
        """Answer a DELETE."""
        await self.answer(names)

    def finish(self, chunk: str | bytes | dict[str, Any] | None = None) -> Future[None]:
        """Keep the content type, which the base class would make JSON."""
        return super().finish(chunk, set_content_type=self.content_type)


class SocketHandler(OperationHandler):
    """The kernels' door: the unix socket answers processes of the same user only."""

    def prepare(self) -> None:
        """Refuse another user's process, where the socket's mode has not done so already."""
        stream = self.request.connection.stream  # type: ignore[union-attr]
        if peer_uid(stream.socket) not in {None, os.getuid()}:
            raise web.HTTPError(403)
        # For idle cullers.
        self.settings["jupyter_settings"]["tfjob_last_activity"] = datetime.now(UTC)

    async def get(self, **names: str) -> None:
        """Answer a GET."""
        await self.answer(names)

    async def post(self, **names: str) -> None:
        """Answer a POST."""
        await self.answer(names)

    async def delete(self, **names: str) -> None:
        """Answer a DELETE."""
        await self.answer(names)

    async def deliver(self, operation: Operation, reply: bytes | LogFile) -> None:
        """Send the reply; a job whose caller was interrupted meanwhile is stopped.

        That caller never learned of the run, so no other would stop it.
        """
        started = operation is operations.submit and self.get_status() == HTTPStatus.OK
        if self._caller_gone and started and isinstance(reply, bytes):
            run = wire.decode(Run, reply)
            await self.backend.run(operations.stop, Call({}, b"", run=run.id))
        else:
            await super().deliver(operation, reply)


def peer_uid(connection: socket.socket) -> int | None:
    """Tell whose process is at the other end; None where the system does not say."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    credentials = struct.Struct("3i")  # pid, uid, gid
    answer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
    uid: int = credentials.unpack(answer)[1]
    return uid
