"""What the extension costs an idle Jupyter server, and how soon a cell shows a job's first line."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jupyter_process import Jupyter
from report import Result

SETTLE = 5.0  # seconds after its start until a server is idle
MARK = "mark: first line"
CELL = f"%%tfjob --nodes 2 --flavor cpu-2c2g --name first-line\nprint({MARK!r}, flush=True)\n"


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far; the kernel counts it in hundredths of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle(rounds: int, seconds: float) -> Result:
    """Let a server with the extension and one without be idle, at the same time."""
    spent: dict[str, list[float]] = {"with": [], "without": []}
    with (
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as other,
        Jupyter(Path(one)) as having,
        Jupyter(Path(other), extension=False) as lacking,
    ):
        servers = {"with": having.process.pid, "without": lacking.process.pid}
        time.sleep(SETTLE)
        for _ in range(rounds):
            before = {name: cpu_seconds(pid) for name, pid in servers.items()}
            time.sleep(seconds)
            for name, pid in servers.items():
                spent[name].append(cpu_seconds(pid) - before[name])
    rows = tuple(
        (name, f"{statistics.median(all_) / seconds:.2%}", f"{max(all_) / seconds:.2%}")
        for name, all_ in spent.items()
    )
    return Result(
        f"CPU of an idle Jupyter server, {rounds} times {seconds:g} s (aim: no difference)",
        ("the extension", "median, of one core", "most"),
        rows,
        {"seconds": seconds, "cpu_seconds": spent},
    )


def plain(place: Path) -> float:
    """Seconds until a plain `python file` has printed the same line."""
    file = place / "plain.py"
    file.write_text(f"print({MARK!r}, flush=True)\n")
    start = time.monotonic()
    subprocess.run([sys.executable, str(file)], check=True, capture_output=True)
    return time.monotonic() - start


def first_line(times: int) -> Result:
    """Measure from sending a cell to a warm kernel to the first line that it shows of a task."""
    seconds: dict[str, list[float]] = {"%%tfjob in a cell": [], "python, in a shell": []}
    with (
        tempfile.TemporaryDirectory() as place,
        Jupyter(Path(place)) as jupyter,
        jupyter.kernel() as kernel,
    ):
        kernel.run("%load_ext tfjob_magic")
        kernel.run(CELL)  # does not count: the first use imports
        for _ in range(times):
            came = [when for text, when in kernel.run_timed(CELL) if MARK in text]
            seconds["%%tfjob in a cell"].append(came[0])
            seconds["python, in a shell"].append(plain(Path(place)))
    rows = tuple(
        (way, f"{statistics.median(all_):.3f} s", f"{max(all_):.3f} s")
        for way, all_ in seconds.items()
    )
    return Result(
        f"From a cell to a job's first line, through the server ({times} times)",
        ("", "median", "slowest"),
        rows,
        {"seconds": seconds},
    )
