"""Where the statements of a text begin, also in a text that is not Python throughout."""

from __future__ import annotations

import re

_OPEN, _CLOSE = "([{", ")]}"
_TOKEN = re.compile(r"""\\.|'{3}|"{3}|['"#()\[\]{}]""", re.DOTALL)


def starts(lines: list[str]) -> list[int]:
    """Return the numbers (from 0) of the lines on which a statement begins.

    Lines inside a string or brackets, or after a backslash, continue one. A line that begins with
    `%`, `!` or `?` is IPython's where it begins a statement: what it holds is not Python.
    """
    found: list[int] = []
    depth = 0
    quote = ""  # the quotes of the string that the line begins inside of
    continued = False
    for number, line in enumerate(lines):
        if not quote and not depth and not continued and line.strip():
            found.append(number)
            if line.lstrip()[0] in "%!?":
                continue
        depth, quote = _after(line, depth, quote)
        continued = not quote and line.endswith("\\")
    return found


def _after(line: str, depth: int, quote: str) -> tuple[int, str]:
    """Return the depth of brackets and the open quotes after a line."""
    at = 0
    while (token := _TOKEN.search(line, at)) is not None:
        at = token.end()
        mark = token.group()
        if quote:
            if mark.startswith(quote):
                at = token.start() + len(quote)
                quote = ""
            elif mark in {"'''", '"""'}:
                at = token.start() + 1  # inside the other kind: look at each of the three
        elif mark == "#":
            break
        elif mark[0] in "'\"":
            quote = mark
        elif mark in _OPEN:
            depth += 1
        elif mark in _CLOSE:
            depth = max(depth - 1, 0)
    if len(quote) == 1 and not line.endswith("\\"):
        quote = ""  # a short string ends with its line
    return depth, quote
