"""How long `%load_ext tfjob_magic` takes in a fresh IPython process and in a fresh kernel."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from jupyter_process import Jupyter
from report import Result

AIM = "under 0.3 s"
TIMED = (
    "import time; start = time.perf_counter(); "
    "get_ipython().run_line_magic('load_ext', 'tfjob_magic'); "
    "print(time.perf_counter() - start)"
)


def in_ipython() -> float:
    """Seconds in a new IPython process."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "IPython", f"--ipython-dir={place}", "-c", TIMED]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def in_kernel(jupyter: Jupyter) -> float:
    """Seconds in a new kernel of a Jupyter server."""
    with jupyter.kernel() as kernel:
        return float(kernel.run(TIMED))


def measure(times: int) -> Result:
    """Measure both `times` times, by turns."""
    seconds: dict[str, list[float]] = {"IPython": [], "a kernel": []}
    with tempfile.TemporaryDirectory() as place, Jupyter(Path(place)) as jupyter:
        for _ in range(times):
            seconds["IPython"].append(in_ipython())
            seconds["a kernel"].append(in_kernel(jupyter))
    rows = tuple(
        (place, f"{statistics.median(all_):.3f} s", f"{max(all_):.3f} s", AIM)
        for place, all_ in seconds.items()
    )
    return Result(
        f"`%load_ext tfjob_magic` in a fresh process ({times} times)",
        ("in", "median", "slowest", "aim"),
        rows,
        {"seconds": seconds},
    )
