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


def words(line: str) -> Iterator[Word]:
    """Yield the words of a line, by the very lexer that reads the options.

    What follows a quote that is never closed is one word.
    """
    stream = io.StringIO(line)
    lexer = shlex.shlex(stream, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    position = 0
    while True:
        start = position
        while start < len(line) and line[start] in lexer.whitespace:
            start += 1
        if start == len(line):
            return
        try:
            text = lexer.get_token()
        except ValueError:
            yield Word(lexer.token, start, len(line))
            return
        position = stream.tell()
        ended = line[position - 1] in lexer.whitespace and position - 1 > start
        yield Word(text or "", start, position - 1 if ended else position)
