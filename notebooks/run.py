"""Run a notebook in a kernel of its own and print its cells and their output as they come.

    python notebooks/run.py notebooks/quickstart.ipynb

The notebook's file is left as it is. Exit code 1 when a cell raises that is not meant to.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client import BlockingKernelClient, KernelManager

HERE = os.path.relpath(Path(sys.executable).parent)
NEXT = f"""
Next: `{HERE}/pip install jupyterlab`, then `{HERE}/jupyter lab notebooks` opens the notebooks.
`{HERE}/tfjob list` shows the runs, and docs/usage.md explains all options."""


def show(message: dict[str, Any]) -> None:
    """Print one message of the kernel, if it is output."""
    kind, content = message["msg_type"], message["content"]
    if kind == "stream":
        print(content["text"], end="", flush=True)
    elif kind in {"display_data", "execute_result"}:
        print(content["data"].get("text/plain", ""), flush=True)
    elif kind == "error":
        print("\n".join(content["traceback"]), flush=True)


def show_source(cell: nbformat.NotebookNode) -> None:
    """Print a cell: prose in lines of 80 columns, code as it is, behind a bar."""
    lines = cell.source.splitlines()
    if cell.cell_type == "code":
        shown = [f"│ {line}".rstrip() for line in lines]
    else:
        shown = [textwrap.fill(line, 80) for line in lines]
    print("", *shown, "", sep="\n", flush=True)


def is_heard(client: BlockingKernelClient) -> bool:
    """Tell whether output arrives here by now; a kernel may answer before that."""
    client.kernel_info()
    try:
        return bool(client.get_iopub_msg(timeout=0.5))
    except queue.Empty:
        return False


def run(path: Path) -> bool:
    """Run every cell in the notebook's own folder; whether all went as they should."""
    notebook = nbformat.read(path, as_version=4)
    with kernel(path) as client:
        for cell in notebook.cells:
            show_source(cell)
            if cell.cell_type != "code":
                continue
            reply = client.execute_interactive(cell.source, allow_stdin=False, output_hook=show)
            may_raise = "raises-exception" in cell.metadata.get("tags", [])
            if reply["content"]["status"] == "error" and not may_raise:
                return False
    return True


@contextmanager
def kernel(path: Path) -> Iterator[BlockingKernelClient]:
    """Start a notebook's kernel, reached by sockets of this user alone; ^C interrupts its cell, as ■ does."""
    with tempfile.TemporaryDirectory() as place:
        file = str(Path(place, "kernel.json"))
        manager = KernelManager(kernel_name="python3", transport="ipc", connection_file=file)
        # As a Jupyter server does, so that the job is named after the notebook.
        environment = {**os.environ, "JPY_SESSION_NAME": str(path)}
        manager.start_kernel(cwd=str(path.parent), env=environment)
        before = signal.signal(signal.SIGINT, lambda *_: manager.interrupt_kernel())
        client = manager.blocking_client()
        client.start_channels()
        try:
            client.wait_for_ready()
            while not is_heard(client):
                pass
            yield client
        finally:
            client.stop_channels()
            manager.shutdown_kernel()
            signal.signal(signal.SIGINT, before)


if __name__ == "__main__":
    done = run(Path(sys.argv[1]).resolve())
    if done:
        print(NEXT)
    sys.exit(not done)
