"""What the layers' code may import, read from its text.

import-linter checks who imports whom inside the package, and a list of forbidden modules. A list of
forbidden ones forgets some; the lists here are of what is allowed.
"""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "tfjob_magic"
OLDEST_OF_USERS = (3, 10)  # what the interpreter of `--python` may be

# No clock, no randomness, no files, no processes: what the core computes depends on its arguments.
PURE = {
    "__future__",
    "ast",
    "bisect",
    "collections",
    "collections.abc",
    "dataclasses",
    "difflib",
    "enum",
    "fractions",
    "functools",
    "io",  # for StringIO, which is memory; see test_the_core_has_only_memory_of_io
    "itertools",
    "json",
    "math",
    "re",
    "shlex",
    "string",
    "textwrap",
    "typing",
    "unicodedata",
    "warnings",  # ast.parse gives them out; the core silences its own parsing
}
IMPURE_NAMES = {"open", "input", "print", "exec", "eval", "__import__", "breakpoint"}

CORE = sorted(ROOT.glob("core/**/*.py"))
IN_THE_USERS_INTERPRETER = sorted(
    [*CORE, ROOT / "errors.py", *ROOT.glob("store/*.py"), *ROOT.glob("supervisor/*.py")]
)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), feature_version=OLDEST_OF_USERS)


def imported(tree: ast.AST) -> set[str]:
    """Name the modules that a text imports, wherever in it; a relative import begins with dots."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
            if node.module == "io":  # its names hide what is used of it
                found.update(f"io.{alias.name}" for alias in node.names)
    return found


def is_ours(module: str, *parts: str) -> bool:
    allowed = [f"tfjob_magic.{part}" for part in parts]
    return any(module == part or module.startswith(f"{part}.") for part in allowed)


def test_there_is_something_to_check():
    assert len(CORE) > 10
    assert ROOT / "supervisor" / "loop.py" in IN_THE_USERS_INTERPRETER


@pytest.mark.parametrize("path", CORE, ids=name)
def test_the_core_imports_itself_and_what_is_pure(path):
    foreign = {
        module for module in imported(parsed(path)) - PURE if not is_ours(module, "core", "errors")
    }
    assert not foreign


@pytest.mark.parametrize("path", CORE, ids=name)
def test_the_core_calls_no_builtin_that_reads_writes_or_runs(path):
    called = {
        node.func.id
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & IMPURE_NAMES


@pytest.mark.parametrize("path", CORE, ids=name)
def test_the_core_has_only_memory_of_io(path):
    used = {
        node.attr
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "io"
    }
    assert used <= {"StringIO"}


@pytest.mark.parametrize("path", IN_THE_USERS_INTERPRETER, ids=name)
def test_what_runs_in_the_users_interpreter_is_the_standard_library_and_itself(path):
    foreign = {
        module
        for module in imported(parsed(path))
        if module.partition(".")[0] not in sys.stdlib_module_names - {"tomllib"}  # new in 3.11
        and not is_ours(module, "core", "errors", "store", "supervisor")
    }
    assert not foreign


@pytest.mark.parametrize(
    "line",
    [
        "import datetime",
        "def f():\n    import secrets",
        "from tempfile import mkdtemp",
        "import sys",
    ],
)
def test_an_import_that_the_core_may_not_have_is_found(line):
    assert imported(ast.parse(line)) - PURE
