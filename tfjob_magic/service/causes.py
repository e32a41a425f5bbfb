"""Why a run failed, from its events and the logs of the tasks that failed first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_magic import tail
from tfjob_magic.core import cause as causes
from tfjob_magic.core.cause import Failure
from tfjob_magic.core.lifecycle import FAILED
from tfjob_magic.service.model import Cause

if TYPE_CHECKING:
    from tfjob_magic.core.lifecycle import State
    from tfjob_magic.core.plan import Plan
    from tfjob_magic.store.rundir import RunDir

_MOST_LOGS = 100  # read to choose the cause among failures in one instant


def find(state: State, plan: Plan, directory: RunDir) -> Cause | None:
    """Find why a run failed (contract E3); None where no task is to blame: a timeout, say."""
    if state.phase != FAILED or state.cause is None:
        return None
    logs = {task.name: directory.log_path(task.log) for task in plan.tasks}
    failures = []
    for name in (state.failures or (state.cause,))[:_MOST_LOGS]:
        start = max(0, tail.size(logs[name]) - causes.TAIL)
        explanation = causes.explain(tail.read(logs[name], start, causes.TAIL), plan.job.python)
        failures.append(Failure(name, state.tasks[name].ended or 0.0, explanation))
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
