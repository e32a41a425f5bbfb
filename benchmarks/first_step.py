"""How long a job takes to its first line and to its first training step.

`tfjob run` (cold: four times `python train.py`) against a shell script that starts the same four
processes by hand. The runs are paired and interleaved in one session, each pair in the order
opposite to the one before; a time ends when the line *arrives at the reader*, so what stands
between a task and the person who waits for it is counted.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from report import Result

HERE = Path(__file__).resolve().parent
SCRIPT = HERE / "train.py"
MARKS = ("first line", "first step")
LIMITS = {"first line": "at most 0.2 s more", "first step": "at most 1.05 times"}
PATIENCE = 180.0  # seconds for one run; no verdict, only an end to a run that hangs


def free_hosts(count: int) -> list[str]:
    """Addresses on this machine that nobody listens on."""
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            holder = held.enter_context(socket.socket())
            holder.bind(("127.0.0.1", 0))
            ports.append(holder.getsockname()[1])
    return [f"127.0.0.1:{port}" for port in ports]


def ours() -> list[str]:
    """Give the command of this project."""
    tfjob = Path(sys.executable).with_name("tfjob")
    options = ["--nodes", "2", "--flavor", "v100x8", "--python", sys.executable]
    return [str(tfjob), "run", str(SCRIPT), *options]


def by_hand() -> list[str]:
    """Give the command of the shell script."""
    hosts = free_hosts(4)
    script = str(HERE / "by_hand.sh")
    return [script, sys.executable, str(SCRIPT), ",".join(hosts[:2]), ",".join(hosts[2:])]


def run_once(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Run one job to its end; seconds from the start to the first line that holds each mark."""
    seen: dict[str, float] = {}
    output = []
    start = time.monotonic()
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        giving_up = threading.Timer(PATIENCE, process.kill)
        giving_up.start()
        for line in process.stdout or ():
            output.append(line)
            for mark in MARKS:
                if f"mark: {mark}" in line:
                    seen.setdefault(mark, time.monotonic() - start)
        giving_up.cancel()
    if set(seen) != set(MARKS):
        sys.exit(f"{' '.join(command)}\ndid not train:\n{''.join(output)}")
    return seen


def run_pairs(pairs: int) -> dict[str, list[dict[str, float]]]:
    """Interleave the runs of both, after one of each that does not count."""
    contenders = {"ours": ours, "by hand": by_hand}
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "TFJOB_HOME": home, "PYTHONUNBUFFERED": "1"}
        for number in range(pairs + 1):
            for name in sorted(contenders, reverse=number % 2 == 1):
                seconds = run_once(contenders[name](), environment)
                print(f"{number}/{pairs} {name:<8} {seconds}", file=sys.stderr, flush=True)
                if number:
                    measured[name].append(seconds)
    return measured


def measure(pairs: int) -> Result:
    """Medians of each, the ratio of the medians, and the median of the paired differences."""
    measured = run_pairs(pairs)
    medians = {}
    rows = []
    for mark in MARKS:
        mine, theirs = ([run[mark] for run in measured[name]] for name in ("ours", "by hand"))
        ours_, by_hand_ = statistics.median(mine), statistics.median(theirs)
        difference = statistics.median(a - b for a, b in zip(mine, theirs, strict=True))
        ratio = ours_ / by_hand_
        medians[mark] = {
            "ours": ours_,
            "by hand": by_hand_,
            "ratio": ratio,
            "difference": difference,
        }
        times = (f"{ours_:.2f} s", f"{by_hand_:.2f} s", f"{ratio:.3f}", f"{difference:+.2f} s")
        rows.append((mark, *times, LIMITS[mark]))
    return Result(
        f"To the first training step: `tfjob run` against a shell script ({pairs} pairs)",
        ("to the", "tfjob run", "by hand", "ratio", "median difference", "aim"),
        tuple(rows),
        {"medians": medians, "runs": measured},
    )
