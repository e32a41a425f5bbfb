"""A run in words: how it begins, how it ended, why it failed. The same in every face."""

from __future__ import annotations

import os
import textwrap
from contextlib import suppress
from typing import TYPE_CHECKING

from tfjob_magic.core import flavor
from tfjob_magic.errors import InvalidJobError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_magic.errors import TfjobError
    from tfjob_magic.service import Run

_MARKS = {"succeeded": "✓", "failed": "✗", "stopped": "■", "lost": "?"}
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def heading(run: Run, width: int | None = None) -> str:
    """Say what a run is, and where: the first line about it.

    Here and below, `width` is the reader's in columns: a longer line is broken between its parts.
    """
    network = [] if run.network == "none" else [f"{run.network} network"]
    return _line([run.id, size(run), *network, path(f"{run.code_dir}/{run.boot_file}")], width)


def ending(run: Run, width: int | None = None) -> str:
    """Say how a run ended, in the last line about it."""
    after = f"{'in' if run.phase == 'succeeded' else 'after'} {lasted(run)}"
    parts = [f"{_MARKS[run.phase]} {run.id} {run.phase} {after}", size(run)]
    if run.cause is not None:
        parts.insert(1, f"{run.cause.task} {run.cause.words}")
    elif run.reason and run.phase != "succeeded":
        parts.insert(1, run.reason)
    return _line([*parts, f"logs: {path(run.directory)}/logs"], width)


def _line(parts: Sequence[str], width: int | None) -> str:
    """Join the parts of a line; where it is too long, a part begins a new one, indented."""
    lines = [parts[0]]
    for part in parts[1:]:
        longer = f"{lines[-1]} · {part}"
        if width is None or len(longer) <= width - len("  "):
            lines[-1] = longer
        else:
            lines.append(part)
    first, *others = lines
    set_lines = paragraph(first, width, "", "  ")
    for line in others:
        set_lines += paragraph(line, width, "  ", "  ")
    return "\n".join(set_lines)


def failure(run: Run, width: int | None = None) -> str:
    """Say why a run did not succeed, to one who knows nothing yet: cause, lines, hint, log."""
    cause = run.cause
    head = f"{_MARKS[run.phase]} {run.id} {run.phase} after {lasted(run)}"
    if cause is None:
        why = f": {run.reason}" if run.reason else ""
        return f"{sentence(head + why, width)}\n\nWhole logs: {path(run.directory)}/logs"
    blocks = [sentence(f"{head}: {cause.task} {cause.words}", width)]
    if cause.error:
        blocks.append("\n".join(paragraph(cause.error, width, "  ", "  ")))
    if cause.lines:
        lines = "\n".join(f"  │ {line}".rstrip() for line in cause.lines)
        blocks.append(f"From the log of {cause.task}:\n{lines}")
    if cause.hint:
        blocks.append(sentence(f"Hint: {cause.hint}", width))
    last = f"Whole log: {path(cause.log)}"
    if cause.same:
        same = sentence(f"The same error: {', '.join(cause.same)}", width)
        last = f"{same}\n{last}"
    return "\n\n".join([*blocks, last])


def mistakes(error: TfjobError, width: int | None = None) -> str:
    """Say what cannot be done, to stand after `tfjob: `; each further problem on its own line."""
    indent = " " * len("tfjob: ")
    problems = str(error).splitlines()
    lines = [line for text in problems for line in paragraph(text, width, indent, indent)]
    return "\n".join(lines).lstrip(" ")


def paragraph(text: str, width: int | None, first: str = "", rest: str = "") -> list[str]:
    """Set a sentence in lines of `width` columns, broken at spaces alone: paths stay whole."""
    if width is None:
        return [first + text]
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def sentence(text: str, width: int | None) -> str:
    """Set one of our own sentences in lines."""
    return "\n".join(paragraph(text, width))


def path(text: str) -> str:
    """Show an absolute path in its shortest form: from the working directory, or with `~`."""
    forms = [text]
    with suppress(OSError):  # the working directory may be gone
        forms += _from(os.getcwd(), text, "")  # noqa: PTH109 - a text like the other
    forms += _from(os.path.expanduser("~"), text, "~/")  # noqa: PTH111 - likewise
    return min(forms, key=len)


def _from(folder: str, text: str, sign: str) -> list[str]:
    inside = folder.startswith("/") and folder != "/" and text.startswith(f"{folder}/")
    return [sign + text[len(folder) + 1 :]] if inside else []


def headline(run: Run) -> str:
    """Say why a run did not succeed in one line: what an exception says."""
    cause = run.cause
    if cause is None:
        return f"{run.id} {run.phase}" + (f": {run.reason}" if run.reason else "")
    error = f": {cause.error}" if cause.error else ""
    return f"{run.id} {run.phase}: {cause.task} {cause.words}{error}"


def size(run: Run) -> str:
    """Say how large a run is: `2 nodes × v100x8 (rehearsal)`."""  # noqa: RUF002
    nodes = "1 node" if run.nodes == 1 else f"{run.nodes} nodes"
    return f"{nodes} × {resources(run)}"  # noqa: RUF001


def resources(run: Run) -> str:
    """Say what a node has: the flavor's name, or `8 V100` for one that is a console's text."""
    name = run.flavor
    if "|" in name:
        with suppress(InvalidJobError):
            given = flavor.parse(name, {})
            kind = given.accelerator
            name = f"{given.accelerators} {kind}" if kind else f"{given.cpus} cores"
    return f"{name} (rehearsal)" if run.rehearsal else name


def lasted(run: Run) -> str:
    """Say how long a run took that is over."""
    return duration((run.ended or run.created) - run.created)


def duration(seconds: float) -> str:
    """Say a time as people do: `0.4 s`, `12.3 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`."""
    if round(seconds, 1) < _MINUTE:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"
