"""What people do with this project, on a machine that has Python 3.11 or later and nothing else.

Standard library only. Every task first makes `.venv` beside this file, once: a stamp remembers what
it was made from, so that the next time costs nothing. It must parse in an old Python 3 as well, to
be able to say that it is too old.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "tfjob-stamp"
EXTRAS = "tensorflow,test"
MADE_FROM = ("pyproject.toml", "jupyter-config/tfjob_magic.json")  # what an install copies

OLDEST = (3, 11)
NEWER = ("python3.13", "python3.12", "python3.11", "python3.14")  # TensorFlow is slow to follow
ABLE = f"import sys, venv, ensurepip; sys.exit(sys.version_info < {OLDEST})"

CHECKS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("mypy", "--config-file", "tests/mypy.ini"),
    ("lint-imports",),
)
TESTS = (
    "pytest",
    "--nbval",
    "--nbval-sanitize-with=notebooks/nbval-sanitize.cfg",
    "--ignore-glob=*/user-job-dir/*",
    "tests",
    "notebooks",
)


def quickstart(_arguments: list[str]) -> None:
    """Run notebooks/quickstart.ipynb on real TensorFlow and print it as it goes."""
    run(PYTHON, "notebooks/run.py", "notebooks/quickstart.ipynb")


def check(_arguments: list[str]) -> None:
    """Run the linters and the type checker."""
    for command in CHECKS:
        run(VENV / "bin" / command[0], *command[1:])


def test(arguments: list[str]) -> None:
    """Run the checks, then every test and every notebook."""
    check(arguments)
    with tempfile.TemporaryDirectory(prefix="tfjob-notebooks-") as runs:
        os.environ["TFJOB_HOME"] = runs  # for the notebooks; a test has a directory of its own
        run(VENV / "bin" / TESTS[0], *TESTS[1:])


def bench(arguments: list[str]) -> None:
    """Run all benchmarks; options as in benchmarks/run.py."""
    run(PYTHON, "benchmarks/run.py", *arguments)


TASKS = {task.__name__: task for task in (quickstart, test, check, bench)}


def run(*command: str | Path) -> None:
    """Print a command and run it in the project's folder; its failure ends this program."""
    words = [os.path.relpath(word, ROOT) if isinstance(word, Path) else word for word in command]
    print("\n$", " ".join(words), flush=True)
    with subprocess.Popen([str(word) for word in command], cwd=ROOT) as process:
        # ^C reaches the command as well: it ends in its own time.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = process.wait()
        signal.signal(signal.SIGINT, before)
    if code:
        # A signal's number becomes what a shell would have returned.
        sys.exit(128 - code if code < 0 else code)


def able_python() -> str:
    """Find an interpreter that can hold the project: this one if it will do, else a newer one."""
    own = os.path.realpath(sys.executable)  # not .venv's own, which is about to be made anew
    for python in [own, *filter(None, map(shutil.which, NEWER))]:
        if subprocess.run([python, "-c", ABLE], capture_output=True, check=False).returncode == 0:
            return python
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST:
        sys.exit(
            f"tfjob-magic needs Python 3.11 or later; this is {version}, and no newer one with its "
            "venv module is on PATH. Install one (https://www.python.org/downloads/) and try again."
        )
    sys.exit(
        f"Python {version} has no venv module here. "
        "On Debian and Ubuntu `apt-get install python3-venv` adds it."
    )


def stamp(python: str) -> str:
    """Tell apart environments: the interpreter, the folder, and what the install copies."""
    version = subprocess.run([python, "-VV"], capture_output=True, check=True).stdout
    digest = hashlib.sha256(f"{os.path.realpath(python)}\n{ROOT}\n{EXTRAS}\n".encode() + version)
    for name in MADE_FROM:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def set_up() -> None:
    """Make `.venv` and install the project in it, unless that is done already."""
    python = able_python()
    wanted = stamp(python)
    if STAMP.is_file() and STAMP.read_text() == wanted and PYTHON.exists():
        return
    print("Setting up .venv (once; TensorFlow is a download of some 300 MB) ...", flush=True)
    run(python, "-m", "venv", "--clear", VENV)
    pip = (PYTHON, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "install", "--editable", f".[{EXTRAS}]")
    STAMP.write_text(wanted)


def main() -> None:
    """Set up, then do the task that was named."""
    if sys.platform == "win32":
        sys.exit("tfjob-magic runs on Linux and macOS; on Windows use it inside WSL.")
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="\n".join(f"  {name:<11} {task.__doc__}" for name, task in TASKS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("task", choices=TASKS)
    task, arguments = parser.parse_known_args()
    if arguments and task.task != "bench":
        parser.error("unrecognized arguments: " + " ".join(arguments))
    set_up()
    TASKS[task.task](arguments)


if __name__ == "__main__":
    main()
