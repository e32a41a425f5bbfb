"""Run directories read as Runs: each event once, each finished run once."""

from __future__ import annotations

import difflib
import re
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from tfjob_magic.core import lifecycle, plan
from tfjob_magic.core.events import Created
from tfjob_magic.errors import NotFoundError, UnavailableError
from tfjob_magic.service.model import Run, TaskStatus
from tfjob_magic.store import rundir
from tfjob_magic.store.rundir import RunDir

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tfjob_magic.core.lifecycle import State
    from tfjob_magic.core.plan import Plan
    from tfjob_magic.engines.local import LocalEngine
    from tfjob_magic.service.model import Cause


_ID = re.compile("[a-z0-9][-a-z0-9]{0,62}")  # part of a host name, as long as one can be


class Record:
    """One run directory: its plan, and its events folded as far as they have been read."""

    def __init__(self, directory: RunDir, engine: LocalEngine) -> None:
        self.directory = directory
        self.plan: Plan = plan.from_json(directory.read_plan())
        self._engine = engine
        self._lock = threading.Lock()
        self._offset = 0
        self._created = 0.0
        self._state: State = lifecycle.begin(
            {task.name: task.role for task in self.plan.tasks},
            self.plan.job.grace,
            self.plan.job.timeout,
        )
        self._cause: Cause | None = None
        self._explained = False

    def read(self) -> Run:
        """Tell the run as of now, without its cause; one that is lost is settled first."""
        return self._run(self._read(), None)

    def explain(self) -> Run:
        """Tell the run as of now and, if it failed, why: that is read from its logs, once."""
        state = self._read()
        with self._lock:
            if state.over and not self._explained:
                from tfjob_magic.service import causes  # noqa: PLC0415 - many patterns, rarely used

                self._cause = causes.find(state, self.plan, self.directory)
                self._explained = True
            return self._run(state, self._cause)

    @property
    def marker(self) -> int:
        """A number that grows with every event."""
        return self._offset

    def _read(self) -> State:
        with self._lock:
            try:
                if not self._state.over:
                    self._fold()
                if not self._state.over and not self.directory.is_held():
                    self._engine.settle(self.directory)
                    self._fold()
            except FileNotFoundError:
                raise NotFoundError(f"run: {self.directory.id} has been removed") from None
            return self._state

    def _fold(self) -> None:
        events, self._offset = self.directory.read_events(self._offset)
        for event in events:
            if isinstance(event, Created):
                self._created = event.time
        self._state = lifecycle.fold(self._state, events)

    def _run(self, state: State, cause: Cause | None) -> Run:
        job = self.plan.job
        return Run(
            id=self.directory.id,
            name=job.name,
            engine=self._engine.name,
            phase=state.phase,
            reason=state.reason,
            created=self._created,
            ended=state.ended,
            nodes=job.nodes,
            flavor=job.flavor.name,
            network=self.plan.network.mode,
            rehearsal=self.plan.rehearsal,
            directory=str(self.directory.path),
            code_dir=job.cwd,
            boot_file=job.boot_file,
            tasks=tuple(self._tasks(state)),
            notes=(*self.plan.notes, *state.notes),
            cause=cause,
        )

    def _tasks(self, state: State) -> list[TaskStatus]:
        return [
            TaskStatus(
                name=task.name,
                role=task.role,
                index=task.index,
                node=task.node,
                phase=seen.phase,
                pid=seen.pid,
                attempt=seen.attempt,
                code=seen.code,
                signal=seen.signal,
                started=seen.started,
                ended=seen.ended,
                log=str(self.directory.log_path(task.log)),
            )
            for task in self.plan.tasks
            for seen in [state.tasks[task.name]]
        ]


class Records:
    """All runs of this user; safe to use from several threads."""

    def __init__(self, home: Path, engine: LocalEngine) -> None:
        self._home = home
        self._engine = engine
        self._records: dict[str, Record] = {}

    def all(self) -> list[Record]:
        """Every run whose directory can be read, in no particular order."""
        found = {}
        for directory in rundir.all_runs(self._home):
            with suppress(UnavailableError):  # one that cannot be read does not hide the others
                found[directory.id] = self._record(directory)
        self._records = found
        return list(found.values())

    def live(self) -> list[tuple[Record, Run]]:
        """Every run that has a supervisor; the others are not even read."""
        pairs = []
        for directory in rundir.all_runs(self._home):
            with suppress(NotFoundError, UnavailableError):
                if directory.is_held():
                    record = self._record(directory)
                    pairs.append((record, record.read()))
        return [(record, run) for record, run in pairs if not run.over]

    def newest_first(self) -> list[tuple[Record, Run]]:
        """Every run with what it is now."""
        pairs = []
        for record in self.all():
            with suppress(NotFoundError):  # removed meanwhile
                pairs.append((record, record.read()))
        return sorted(pairs, key=lambda pair: (pair[1].created, pair[1].id), reverse=True)

    def find(self, name: str) -> Record:
        """One run, by its id, by a prefix that only it has, or by `last`."""
        if name == "last":
            newest = self.newest_first()
            if not newest:
                raise NotFoundError("run: there are no runs yet")
            return newest[0][0]
        if _ID.fullmatch(name) and (directory := RunDir(self._home / name)).exists():
            return self._record(directory)
        directories = {directory.id: directory for directory in rundir.all_runs(self._home)}
        matching = [run for run in directories if run.startswith(name)] if name else []
        if len(matching) == 1:
            return self._record(directories[matching[0]])
        raise NotFoundError(_nothing(name, matching, list(directories)))

    def _record(self, directory: RunDir) -> Record:
        known = self._records.get(directory.id)
        if known is None:
            try:
                known = Record(directory, self._engine)
            except (OSError, ValueError, LookupError, TypeError) as error:
                raise UnavailableError(
                    f"run: the plan of {directory.id} cannot be read ({error});"
                    f" look into {str(directory.path)!r}"
                ) from error
            self._records[directory.id] = known
        return known


def _nothing(name: str, matching: Sequence[str], ids: Sequence[str]) -> str:
    if matching:
        return f"run: {name!r} may be any of {', '.join(sorted(matching))}; write more of it"
    near = difflib.get_close_matches(name, ids, n=3, cutoff=0.5)
    if near:
        return f"run: there is no run {name!r}; did you mean {' or '.join(near)}?"
    return f"run: there is no run {name!r}; `tfjob list` shows those there are"
