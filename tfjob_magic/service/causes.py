"""Why a run failed, from its events and the logs of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfjob_magic.core.lifecycle import State
    from tfjob_magic.core.plan import Plan
    from tfjob_magic.service.model import Cause
    from tfjob_magic.store.rundir import RunDir


def find(state: State, plan: Plan, directory: RunDir) -> Cause | None:
    """Find the cause of a failed run; None where no task is to blame."""
    return None
