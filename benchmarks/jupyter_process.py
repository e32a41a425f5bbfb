"""A Jupyter server in a process of its own, and its kernels, for what is measured in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from jupyter_client.blocking.client import BlockingKernelClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE = 60.0  # seconds; an end to waiting, no verdict


class Kernel:
    """A kernel of the server, spoken to by its connection file."""

    def __init__(self, connection: Path) -> None:
        self._client = BlockingKernelClient()
        self._client.load_connection_file(str(connection))
        self._client.start_channels()
        self._client.wait_for_ready(timeout=PATIENCE)

    def run(self, source: str) -> str:
        """Run a cell; what it printed."""
        return "".join(printed for printed, _ in self.run_timed(source))

    def run_timed(self, source: str) -> list[tuple[str, float]]:
        """Run a cell; what it printed, piece by piece, each with the seconds until it came."""
        printed: list[tuple[str, float]] = []
        start = time.monotonic()

        def keep(message: dict[str, Any]) -> None:
            if message["msg_type"] == "stream":
                printed.append((message["content"]["text"], time.monotonic() - start))

        reply = self._client.execute_interactive(source, timeout=PATIENCE, output_hook=keep)
        if reply["content"]["status"] != "ok":
            sys.exit(f"a cell failed: {reply['content']}\n{printed}")
        return printed

    def close(self) -> None:
        """Speak to it no more."""
        self._client.stop_channels()


class Jupyter:
    """A server whose files are all in `place`; with the extension, or with it switched off."""

    def __init__(self, place: Path, *, extension: bool = True) -> None:
        self.place = place
        environment = {
            **os.environ,
            **{
                name: str(place / folder)
                for name, folder in {
                    "JUPYTER_CONFIG_DIR": "config",
                    "JUPYTER_DATA_DIR": "data",
                    "JUPYTER_RUNTIME_DIR": "runtime",
                    "XDG_RUNTIME_DIR": "runtime",
                    "IPYTHONDIR": "ipython",
                    "TFJOB_HOME": "runs",
                }.items()
            },
        }
        (place / "notebooks").mkdir()
        command = [
            *(sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"),
            *("--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", "--IdentityProvider.token=secret"),
            f"--ServerApp.root_dir={place / 'notebooks'}",
            f"--ServerApp.jpserver_extensions=tfjob_magic={extension}",
        ]
        with (place / "server.log").open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=place, env=environment, stdout=log, stderr=subprocess.STDOUT
            )
        self._await()
        loaded = self.ask("GET", "tfjob/api/runs", missing=404) is not None
        if loaded != extension:
            sys.exit(f"the extension is {'on' if loaded else 'off'}: {place / 'server.log'}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)

    def ask(
        self, method: str, path: str, body: object = None, *, missing: int | None = None
    ) -> Any:  # noqa: ANN401 - JSON
        """Ask its REST interface; None where it answers with the code `missing`."""
        told = self.place / "runtime" / f"jpserver-{self.process.pid}.json"
        request = urllib.request.Request(  # noqa: S310 - http, to our own server
            json.loads(told.read_text())["url"] + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": "token secret"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=PATIENCE) as reply:
                return json.loads(reply.read() or "null")
        except urllib.error.HTTPError as error:
            if error.code == missing:
                return None
            raise

    @contextmanager
    def kernel(self) -> Iterator[Kernel]:
        """Start a kernel; it ends with the context."""
        name = self.ask("POST", "api/kernels", {"name": "python3"})["id"]
        kernel = Kernel(self.place / "runtime" / f"kernel-{name}.json")
        try:
            yield kernel
        finally:
            kernel.close()
            self.ask("DELETE", f"api/kernels/{name}")

    def _await(self) -> None:
        """Wait until the server answers."""
        end = time.monotonic() + PATIENCE
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                sys.exit((self.place / "server.log").read_text())
            time.sleep(0.05)

    def _answers(self) -> bool:
        """Tell whether it does; its file is there a little before it listens."""
        try:
            return bool(self.ask("GET", "api/status"))
        except (OSError, ValueError):
            return False
