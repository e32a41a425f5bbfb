"""The texts of a boot file and of the local modules that it imports, read and never run."""

from __future__ import annotations

import io
import tokenize
from collections import deque
from typing import TYPE_CHECKING

from tfjob_magic.core.syntax import imported, package, tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOST_FILES = 200
MOST_BYTES = 1024 * 1024  # of one file


def read(code_dir: Path, boot_file: str, source: str | None) -> dict[str, str]:
    """Read the boot file and, transitively, the modules of the code dir that it imports.

    Paths relative to the code dir map to texts. `source` stands for the boot file's text where it
    is not written yet (a cell). What cannot be read or decoded, is larger than `MOST_BYTES` or
    comes after `MOST_FILES` is left out: this is a reading for advice, Python judges the job.
    """
    found: dict[str, str] = {}
    tried = {boot_file}
    waiting = deque([boot_file])
    while waiting and len(found) < MOST_FILES:
        path = waiting.popleft()
        is_boot = path == boot_file
        text = source if is_boot and source is not None else _text(code_dir / path)
        if text is None:
            continue
        found[path] = text
        parsed = tree(text)
        if parsed is None:
            continue
        for name in imported(parsed, "" if is_boot else package(path)):
            for candidate in _files(name):
                if candidate not in tried:
                    tried.add(candidate)
                    waiting.append(candidate)
    return found


def _files(name: str) -> Iterator[str]:
    """Yield the files that importing a dotted name may run: its packages' and its own."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        path = "/".join(parts[:end])
        yield f"{path}/__init__.py"
        yield f"{path}.py"


def _text(path: Path) -> str | None:
    """Decode a source file as Python would (PEP 263); None where it cannot be."""
    try:
        if not path.is_file():  # a FIFO would block
            return None
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            return None
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding)
    except (OSError, SyntaxError, ValueError):  # a bad cookie is a SyntaxError
        return None
