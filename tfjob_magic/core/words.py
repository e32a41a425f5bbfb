"""The words of a magic's line, as a shell splits them, and where each stands."""

from __future__ import annotations

import io
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Word:
    """A word without its quotes and escapes; as written it is `line[start:end]`."""

    text: str
    start: int
    end: int


def lexer(stream: io.StringIO) -> shlex.shlex:
    """Make the lexer that splits a magic's line: a shell's quotes and escapes, no comments."""
    made = shlex.shlex(stream, posix=True, punctuation_chars=False)
    made.whitespace_split = True
    made.commenters = ""
    return made


def words(line: str) -> Iterator[Word]:
    """Yield the words of a line, by the very lexer that reads the options.

    What follows a quote that is never closed is one word.
    """
    stream = io.StringIO(line)
    tokens = lexer(stream)
    position = 0
    while True:
        start = position
        while start < len(line) and line[start] in tokens.whitespace:
            start += 1
        if start == len(line):
            return
        try:
            text = tokens.get_token()
        except ValueError:
            yield Word(tokens.token, start, len(line))
            return
        position = stream.tell()
        ended = line[position - 1] in tokens.whitespace and position - 1 > start
        yield Word(text or "", start, position - 1 if ended else position)
