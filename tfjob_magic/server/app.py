"""The extension itself: what it registers with the Jupyter server, and when it goes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from jupyter_server.extension.application import ExtensionApp

from tfjob_magic.server.door import Door
from tfjob_magic.server.handlers import Backend, WebHandler
from tfjob_magic.server.operations import OPERATIONS
from tfjob_magic.service.inprocess import Service


class TfjobExtension(ExtensionApp):
    """`/tfjob/api/` for the browser, a unix socket for kernels; no timer, nothing at rest."""

    name = "tfjob_magic"
    _backend: Backend
    _door: Door | None = None

    def initialize_settings(self) -> None:
        """Make what stands behind the handlers, and open the kernels' door.

        Kernels that are started from now on inherit the socket's path.
        """
        self._backend = Backend(
            service=Service(),
            threads=ThreadPoolExecutor(8, thread_name_prefix="tfjob"),
        )
        assert self.serverapp is not None  # noqa: S101 - it is what loads an extension
        try:
            self._door = Door(self._backend, self.serverapp.web_app.settings)
        except OSError as error:
            self.log.warning("tfjob: no socket for kernels, they will do without: %s", error)

    def initialize_handlers(self) -> None:
        """Register every operation, behind the server's authentication."""
        self.handlers.extend(
            (rf"/tfjob/api/{path}", WebHandler, {"methods": methods, "backend": self._backend})
            for path, methods in OPERATIONS.items()
        )

    def current_activity(self) -> dict[str, str] | None:
        """Name the runs that are going on: a server with one is not idle."""
        return {run.id: run.phase for run in self._backend.service.live()} or None

    async def stop_extension(self) -> None:
        """Close the door; the runs go on."""
        self._backend.closing = True
        if self._door is not None:
            self._door.close()
        self._backend.threads.shutdown(wait=False, cancel_futures=True)
