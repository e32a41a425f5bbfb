"""Why a run failed, from its events and the logs of the tasks that failed first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_magic import tail
from tfjob_magic.core import cause as causes
from tfjob_magic.core.cause import Failure
from tfjob_magic.core.state import FAILED
from tfjob_magic.core.tracebacks import HEADER
from tfjob_magic.service.model import Cause

if TYPE_CHECKING:
    from pathlib import Path

    from tfjob_magic.core.plan import Plan
    from tfjob_magic.core.state import State
    from tfjob_magic.store.rundir import RunDir

_MOST_LOGS = 100  # read to choose the cause among failures in one instant
_MOST_SEARCHED = 4  # of them, those searched further for what was raised
_DEPTH = 2 * 1024 * 1024  # bytes of one log that are searched for it


def find(state: State, plan: Plan, directory: RunDir) -> Cause | None:
    """Find why a run failed (contract E3); None where no task is to blame: a timeout, say."""
    if state.phase != FAILED or state.cause is None:
        return None
    logs = {task.name: directory.log_path(task.log) for task in plan.tasks}
    failures = []
    for number, name in enumerate((state.failures or (state.cause,))[:_MOST_LOGS]):
        task = state.tasks[name]
        log = read_end(logs[name], _DEPTH if number < _MOST_SEARCHED else causes.TAIL)
        explanation = causes.explain(log, plan.job.python, code=task.code, signal=task.signal)
        failures.append(Failure(name, task.ended or 0.0, explanation))
    first, same = causes.first(failures)
    return Cause(
        task=first.task,
        words=state.tasks[first.task].words,
        error=first.explanation.error,
        lines=first.explanation.lines,
        hint=first.explanation.hint,
        same=same,
        log=str(logs[first.task]),
    )


def read_end(log: Path, depth: int) -> bytes:
    """Read a log's end: as far back, up to `depth` bytes, as its last traceback begins."""
    end = start = tail.size(log)
    blocks: list[bytes] = []
    header = HEADER.encode()
    following = b""  # the first bytes of the block after, where a header may end
    while start and end - start < depth:
        size = min(causes.TAIL, start)
        start -= size
        blocks.insert(0, tail.read(log, start, size))
        if header in blocks[0] + following:
            return b"".join(blocks)
        following = blocks[0][: len(header)]
    return blocks[-1] if blocks else b""
