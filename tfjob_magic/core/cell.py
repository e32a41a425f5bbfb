"""A notebook cell as a boot file: whether it would run as one, and its text."""

from __future__ import annotations

import ast
import re
import warnings
from typing import TYPE_CHECKING

from tfjob_magic.core.scan import starts
from tfjob_magic.core.words import words
from tfjob_magic.errors import InvalidJobError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_PROBLEMS = 5

_ELSEWHERE = "a Python file cannot hold it; move it to another cell"
_ASSIGNED = r"[^=!<>()'\"]*[^=!<>+\-*/%&|^@:()'\"]=\s*"
_KINDS = {
    r"%%": f"is an IPython cell magic; {_ELSEWHERE}",
    r"%": f"is an IPython magic; {_ELSEWHERE}",
    r"!": f"is a shell command; {_ELSEWHERE}",
    r"\?|[\w.*]+\?{1,2}\s*$": "asks IPython for help, which a Python file cannot; delete it",
    _ASSIGNED + r"%(?!=)": f"takes what an IPython magic returns; {_ELSEWHERE}",
    _ASSIGNED + r"!(?!=)": "takes a shell command's output; use subprocess.run in a Python file",
}
_IPYTHON = tuple((re.compile(pattern), words) for pattern, words in _KINDS.items())

# PEP 263's own pattern, after any beginning of a comment.
_COOKIE = re.compile(r"coding[:=][ \t]*[-\w.]+")


def check(cell: str) -> None:
    """Raise InvalidJobError where the cell would not run as a Python file.

    Every problem names the cell's line (line 1 is the `%%tfjob` line), its text and what to do.
    """
    if not cell.strip():
        raise InvalidJobError([Problem("cell", "is empty; write the training script under it")])
    problems = list(_problems(cell))
    if problems:
        raise InvalidJobError(problems[:MOST_PROBLEMS])


def _problems(cell: str) -> Iterator[Problem]:
    lines = _lines(cell)
    error = _error(lines)
    if error is None:
        return
    found = False
    for number in starts(lines):
        words = next((w for pattern, w in _IPYTHON if pattern.match(lines[number].strip())), None)
        if words is not None:
            found = True
            yield _problem(lines, number, words)
            indent = lines[number][: len(lines[number]) - len(lines[number].lstrip())]
            lines[number] = f"{indent}pass"
    if found:
        error = _error(lines)
    if error is not None:
        number, words = error
        yield _problem(_lines(cell), number, words)


def _lines(cell: str) -> list[str]:
    """Return the lines as Python counts them."""
    return cell.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _problem(lines: list[str], number: int, words: str) -> Problem:
    text = lines[number].strip() if number < len(lines) else ""
    if len(text) > 80:  # noqa: PLR2004 - what a line of a message bears
        text = f"{text[:79]}…"
    return Problem("cell", f"line {number + 2}: `{text}` {words}")


def _error(lines: list[str]) -> tuple[int, str] | None:
    """Return the first line (from 0) that Python refuses and why; None where it would run."""
    for number, line in enumerate(lines):
        if not _is_text(line):
            return number, "holds a character that a file cannot"
    text = "\n".join(lines)
    with warnings.catch_warnings():  # the script's own affair, shown when it runs
        warnings.simplefilter("ignore")
        try:
            compile(text, "train.py", "exec", dont_inherit=True)
        except SyntaxError as error:
            number = max((error.lineno or 1) - 1, 0)
            awaits = _first_await(text)
            if awaits is not None:
                return awaits, (
                    "awaits at the top level, which only a notebook can; put it in an"
                    " `async def main()` and call asyncio.run(main())"
                )
            return number, f"is not valid Python: {error.msg}"
        except (RecursionError, MemoryError):
            return None  # Python's own word is better than a guess
    return None


def _is_text(line: str) -> bool:
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in line


def _first_await(text: str) -> int | None:
    """Return the line of the first top-level await, where that is all that is wrong."""
    try:
        tree = compile(
            text,
            "train.py",
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST,
            dont_inherit=True,
        )
        compile(tree, "train.py", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    lines = [line for statement in tree.body for line in _awaits(statement)]
    return min(lines) - 1 if lines else None


def _awaits(node: ast.AST) -> Iterator[int]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        return
    if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
        yield node.lineno
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp) and any(
        generator.is_async for generator in node.generators
    ):
        yield node.lineno
    for child in ast.iter_child_nodes(node):
        yield from _awaits(child)


def text(line: str, cell: str) -> str:
    """Return the boot file: the magic's line as a comment, then the cell as it is.

    So a traceback's line numbers are the cell's. The values of `--env` are masked. Line 1 can
    neither end early nor name another encoding than the file's own, UTF-8: where it, or the
    cell's first line, looks like an encoding declaration (PEP 263), a true one goes before.
    """
    shown = "".join(c if c.isprintable() else _escaped(c) for c in masked(line))
    first = f"# %%tfjob {shown}".rstrip()
    following = _lines(cell)[0]
    if _COOKIE.search(first) or (following.lstrip().startswith("#") and _COOKIE.search(following)):
        first = f"# coding: utf-8 # {first[2:]}"
    return f"{first}\n{cell}"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def masked(line: str) -> str:
    """Return the magic's line with `***` for every value of `--env`, up to the lone `--`."""
    pieces: list[str] = []
    shown_to = 0
    mask_next = False
    for word in words(line):
        shown = line[word.start : word.end]
        if word.text == "--":
            break
        if mask_next:
            shown, mask_next = _without_value(word.text), False
        elif word.text.startswith("--en") and "--env".startswith(word.text.partition("=")[0]):
            option, has_value, value = word.text.partition("=")
            mask_next = not has_value
            shown = f"{option}={_without_value(value)}" if has_value else shown
        pieces += [line[shown_to : word.start], shown]
        shown_to = word.end
    return "".join(pieces) + line[shown_to:]


def _without_value(assignment: str) -> str:
    name, equals, _ = assignment.partition("=")
    return f"{name}=***" if equals and name.isidentifier() else "***"
