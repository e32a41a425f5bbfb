"""Run all benchmarks, one after the other; print their tables and keep their numbers.

    python benchmarks/run.py --json result.json --write docs/benchmarks.md

Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import first_step
import in_server
import load_ext
import report

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=15, help="pairs of trainings (default: 15)")
    parser.add_argument("--times", type=int, default=15, help="of everything quick (default: 15)")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds idle (default: 30)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to keep every number")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page to put the results in")
    arguments = parser.parse_args()
    for option in ("pairs", "times", "idle"):
        if getattr(arguments, option) < 1:
            parser.error(f"--{option}: at least 1")

    benchmarks: dict[str, Callable[[], report.Result]] = {
        "load_ext": lambda: load_ext.measure(arguments.times),
        "idle": lambda: in_server.idle(3, arguments.idle),
        "first_line": lambda: in_server.first_line(arguments.times),
        "first_step": lambda: first_step.measure(arguments.pairs),
    }
    results = {}
    for name, benchmark in benchmarks.items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        results[name] = benchmark()
    command = (
        f"python3 tasks.py bench --pairs {arguments.pairs} --times {arguments.times} "
        f"--idle {arguments.idle:g}"
    )
    text = report.text(list(results.values()), command)
    print(text)
    if arguments.json:
        numbers = {name: result.numbers for name, result in results.items()}
        kept = {"machine": report.machine(), **numbers}
        arguments.json.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    if arguments.write:
        report.write(arguments.write, text)


if __name__ == "__main__":
    main()
