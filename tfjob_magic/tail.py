"""Reading a task's log: bytes by offset, and lines as a terminal would have shown them last."""

from __future__ import annotations

import codecs
import os
import re
import stat
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

WIDTH = 10_000
"""How many characters of one line are kept; what lies beyond is counted."""

_STYLE_LENGTH = 200  # an endless pile of colours without a reset is cut down to its last ones

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x08\x0a-\x1f\x7f-\x9f]+)"
    r"|(?P<backspaces>\x08+)"
    r"|(?P<return>\r)"
    r"|\x1b\[(?P<numbers>[0-?]{0,64})[ -/]{0,8}(?P<final>[@-~])"
    r"|(?P<string>\x1b[\]PX^_])"  # OSC and its kin: text for the terminal, up to its terminator
    r"|\x1b[ -/]{0,8}[0-Z\\`-~]"  # short sequences
    r"|(?P<open>\x1b(?:\[[0-?]{0,64})?[ -/]{0,8}\Z)"  # cut by the end of the chunk
    r"|[\x00-\x1f\x7f-\x9f]"
)
_STRING_END = re.compile("\x07|\x1b\\\\|(?P<open>\x1b\\Z)")


def read(path: Path, offset: int, limit: int) -> bytes:
    """At most `limit` bytes of a log from `offset` on; empty where there is no such log yet.

    A task can put anything in its log's place; what is not a regular file is as empty, and never
    waited for.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return os.pread(descriptor, limit, offset)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def size(path: Path) -> int:
    """How many bytes a log has; 0 where `read` would find none."""
    try:
        found = path.lstat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


class Lines:
    """Puts the lines of one log together from its bytes, however these are cut.

    A carriage return or backspaces move the cursor and what follows overwrites, as on a terminal,
    so that a progress bar becomes the one line that it ended as. Colours are kept with `colours`,
    every other control sequence is dropped. Invalid UTF-8 becomes U+FFFD. A line keeps its first
    `WIDTH` characters and says how many more it had. Time is linear in the bytes, memory bounded.
    """

    def __init__(self, *, colours: bool = False) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._colours = colours
        self._held = ""  # the beginning of a sequence whose end is still to come
        self._in_string = False
        self._style = ""  # the colour sequences in force
        self._cells: list[str] = []
        self._styles: list[str] = []
        self._cursor = 0
        self._length = 0

    def feed(self, data: bytes) -> list[str]:
        """Take the next bytes; the lines that they finish, without their newlines."""
        return self._take(self._decoder.decode(data))

    def end(self) -> list[str]:
        """Finish with the log: its last line, where that one has no newline."""
        lines = self._take(self._decoder.decode(b"", final=True))
        if self._length:
            lines.append(self._finish())
        return lines

    def _take(self, text: str) -> list[str]:
        text = self._held + text
        self._held = ""
        lines: list[str] = []
        position = 0
        while position < len(text):
            newline = text.find("\n", position)
            stop = newline if newline >= 0 else len(text)
            part = text[position:stop]
            if self._in_string or _CONTROL.search(part):
                self._obey(part)
            else:
                self._write(part)
            if newline >= 0:
                lines.append(self._finish())
            position = stop + 1
        return lines

    def _obey(self, part: str) -> None:
        """Write a part of one line, obeying what in it controls a terminal."""
        position = 0
        while position < len(part):
            if self._in_string:
                position = self._skip_string(part, position)
                continue
            for token in _TOKEN.finditer(part, position):
                position = token.end()
                if token["text"]:
                    self._write(token["text"])
                elif token["backspaces"]:
                    self._cursor = max(0, self._cursor - len(token["backspaces"]))
                elif token["return"]:
                    self._cursor = 0
                elif token["final"]:
                    self._apply(token["final"], token["numbers"])
                elif token["open"]:
                    self._held = token["open"]
                elif token["string"]:
                    self._in_string = True
                    break

    def _skip_string(self, part: str, position: int) -> int:
        end = _STRING_END.search(part, position)
        if end is None:
            return len(part)
        if end["open"]:  # perhaps the first half of the terminator
            self._held = end["open"]
        else:
            self._in_string = False
        return end.end()

    def _write(self, text: str) -> None:
        start, self._cursor = self._cursor, self._cursor + len(text)
        self._length = max(self._length, self._cursor)
        if start < WIDTH:
            stop = min(self._cursor, WIDTH)
            self._cells[start:stop] = text[: stop - start]
            if self._colours:
                self._styles[start:stop] = [self._style] * (stop - start)

    def _apply(self, final: str, numbers: str) -> None:
        if final == "K" and numbers in {"", "0"}:
            self._cut(self._cursor)
        elif final == "K" and numbers == "2":
            # The cursor really stays; every program returns it, before or after.
            self._cursor = 0
            self._cut(0)
        elif final == "m" and self._colours:
            fresh = "" if numbers in {"", "0"} else f"{self._style}\x1b[{numbers}m"
            while len(fresh) > _STYLE_LENGTH:
                fresh = fresh[fresh.index("m") + 1 :]
            self._style = fresh

    def _cut(self, column: int) -> None:
        del self._cells[column:], self._styles[column:]
        self._length = column

    @property
    def unfinished(self) -> str:
        """The line that has no newline yet, as a terminal would show it now; time as its length."""
        if any(self._styles):
            cells = zip(self._styles, self._cells, strict=True)
            line = "".join(
                f"{style}{shown}\x1b[0m" if style else shown
                for style, group in groupby(cells, key=lambda cell: cell[0])
                for shown in ["".join(character for _, character in group)]
            )
        else:
            line = "".join(self._cells)
        if self._length > WIDTH:
            line += f" … and {self._length - WIDTH} more characters"
        return line

    def _finish(self) -> str:
        line = self.unfinished
        self._cells.clear()
        self._styles.clear()
        self._cursor = self._length = 0
        self._held = ""
        self._in_string = False
        return line
