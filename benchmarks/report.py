"""What all benchmarks share: a result as a table, the machine it is from, and where it is kept."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

PACKAGES = ("tensorflow", "IPython", "jupyter_server")
BLOCK = re.compile(r"(<!-- results -->\n).*(<!-- /results -->)", re.DOTALL)


@dataclass(frozen=True)
class Result:
    """One benchmark's outcome: a table for people, and every number."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: dict[str, Any]

    def table(self) -> str:
        """Write it as a Markdown table."""
        lines = [self.header, ("---",) * len(self.header), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def machine() -> dict[str, str]:
    """Describe what the numbers depend on: this machine, and the versions of what ran on it."""
    facts = {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else "?"),
        "system": platform.platform(),
        "Python": platform.python_version(),
    }
    distributions = packages_distributions()
    return facts | {name: version(distributions[name][0]) for name in PACKAGES}


def text(results: list[Result], command: str) -> str:
    """Write the results, the machine and the command that repeats them, as Markdown."""
    facts = ", ".join(f"{name} {value}" for name, value in machine().items())
    parts = [f"Measured on: {facts}.", f"To repeat it:\n\n```console\n$ {command}\n```"]
    parts += [f"### {result.title}\n\n{result.table()}" for result in results]
    return "\n\n".join(parts) + "\n"


def write(page: Path, results: str) -> None:
    """Put the results between the page's two marks."""
    old = page.read_text(encoding="utf-8")
    if not BLOCK.search(old):
        message = f"{page} has no lines <!-- results --> and <!-- /results -->; add them"
        raise SystemExit(message)
    new = BLOCK.sub(lambda marks: f"{marks[1]}\n{results}\n{marks[2]}", old)
    page.write_text(new, encoding="utf-8")


def _processor() -> str:
    """Name the processor, as far as the system does."""
    try:
        known = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        known = ""
    found = re.search(r"^model name\s*: (.*)$", known, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()
