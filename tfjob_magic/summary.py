"""A run in words: how it begins, how it ended, why it failed. The same in every face."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfjob_magic.errors import TfjobError
    from tfjob_magic.service import Run

_MARKS = {"succeeded": "✓", "failed": "✗", "stopped": "■", "lost": "?"}
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def heading(run: Run) -> str:
    """Say what a run is, and where: the first line about it."""
    network = "" if run.network == "none" else f" · {run.network} network"
    return f"{run.id} · {size(run)}{network} · {run.code_dir}/{run.boot_file}"


def ending(run: Run) -> str:
    """Say how a run ended, in the last line about it."""
    after = f"{'in' if run.phase == 'succeeded' else 'after'} {lasted(run)}"
    parts = [f"{_MARKS[run.phase]} {run.id} {run.phase} {after}", size(run)]
    if run.cause is not None:
        parts.insert(1, f"{run.cause.task} {run.cause.words}")
    elif run.reason and run.phase != "succeeded":
        parts.insert(1, run.reason)
    return " · ".join([*parts, f"logs: {run.directory}/logs"])


def failure(run: Run) -> str:
    """Say why a run did not succeed, to one who knows nothing yet: cause, lines, hint, log."""
    cause = run.cause
    head = f"{_MARKS[run.phase]} {run.id} {run.phase} after {lasted(run)}"
    if cause is None:
        why = f": {run.reason}" if run.reason else ""
        return f"{head}{why}\n\nWhole logs: {run.directory}/logs"
    blocks = [f"{head}: {cause.task} {cause.words}"]
    if cause.error:
        blocks.append(f"  {cause.error}")
    if cause.lines:
        lines = "\n".join(f"  │ {line}".rstrip() for line in cause.lines)
        blocks.append(f"From the log of {cause.task}:\n{lines}")
    if cause.hint:
        blocks.append(f"Hint: {cause.hint}")
    last = f"Whole log: {cause.log}"
    if cause.same:
        last = f"The same error: {', '.join(cause.same)}\n{last}"
    return "\n\n".join([*blocks, last])


def mistakes(error: TfjobError) -> str:
    """Say what cannot be done, to stand after `tfjob:`; each further problem on its own line."""
    return str(error).replace("\n", "\n       ")


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
    return f"{nodes} × {run.flavor}{' (rehearsal)' if run.rehearsal else ''}"  # noqa: RUF001


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
