"""How much text a program can be given; with more, Linux says "Argument list too long".

One argument or variable has a fixed limit (MAX_ARG_STRLEN, which counts a final NUL); all together
have a quarter of the stack's limit, 2 MiB by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST = 128 * 1024 - 1  # bytes of one argument, or of one NAME=value
MOST = 512 * 1024  # bytes of all parameters, and of all variables; the caller's environment is more


def size(text: str) -> int:
    """Count the bytes of a text as it is passed to a program."""
    return len(text.encode("utf-8", "surrogateescape"))


def total(texts: Iterable[str]) -> int:
    """Count the bytes that texts take together: each has a NUL and a pointer beside it."""
    return sum(size(text) + 9 for text in texts)
