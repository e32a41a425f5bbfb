"""Run directories read as Runs: each event once, each finished run once."""

from __future__ import annotations

import difflib
import re
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfjob_magic.core import lifecycle, plan
from tfjob_magic.core.events import Created, Finished
from tfjob_magic.core.state import LOST, State
from tfjob_magic.errors import NotFoundError, UnavailableError
from tfjob_magic.service.model import Run, TaskStatus
from tfjob_magic.store import rundir
from tfjob_magic.store.rundir import RunDir

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tfjob_magic.core.plan import Plan
    from tfjob_magic.engines import Engine
    from tfjob_magic.service.model import Cause


_ID = re.compile("[a-z0-9][-a-z0-9]{0,62}")  # part of a host name, as long as one can be


class Record:
    """One run directory: its plan, and its events folded as far as they have been read.

    A run whose plan cannot be read has no tasks, and a phase all the same: its events tell it.
    """

    def __init__(self, directory: RunDir, engines: Mapping[str, Engine[Any]]) -> None:
        self.directory = directory
        self._engines = engines
        self._engine = "local"  # until the run's first event names it
        self._lock = threading.Lock()
        self._offset = 0
        self._created: float | None = None
        self._cause: Cause | None = None
        self._explained = False
        self._plan: Plan | None = None
        self._unreadable = ""
        self._code_dir = "?"
        self._logs: dict[str, str] = {}
        self._state = State(tasks={}, grace=0.0, timeout=None)
        try:
            read = plan.from_json(directory.read_plan())
            self._state = lifecycle.begin(
                {task.name: task.role for task in read.tasks}, read.job.grace, read.job.timeout
            )
            self._code_dir = read.job.cwd
            self._logs = {task.name: str(directory.log_path(task.log)) for task in read.tasks}
            self._plan = read
        except RecursionError:
            self._unreadable = "its plan cannot be read (it is nested too deeply)"
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            self._unreadable = f"its plan cannot be read ({error})"

    @property
    def is_readable(self) -> bool:
        """Whether there is a plan."""
        return self._plan is not None

    @property
    def plan(self) -> Plan:
        """The plan that the run was started with; UnavailableError where it cannot be read."""
        if self._plan is None:
            raise UnavailableError(
                f"run: the plan of {self.directory.id} cannot be read;"
                f" `tfjob rm {self.directory.id}` removes the run"
            )
        return self._plan

    @property
    def engine(self) -> Engine[Any]:
        """The engine that the run is on; UnavailableError where this installation has none such."""
        self._read()
        if self._engine not in self._engines:
            raise UnavailableError(
                f"run: {self.directory.id} is on the engine {self._engine!r}, which this"
                f" installation does not have; use the one that started it"
            )
        return self._engines[self._engine]

    def read(self) -> Run:
        """Tell the run as of now, without its cause; one that is lost is settled first."""
        return self._run(self._read(), None)

    def explain(self) -> Run:
        """Tell the run as of now and, if it failed, why: that is read from its logs, once."""
        state = self._read()
        if state.over and not self._explained and self._plan is not None:
            from tfjob_magic.service import causes  # noqa: PLC0415 - many patterns, rarely used

            # Without the lock: logs are where tasks put them, and may be slow to read. Two that
            # look at once find the same.
            self._cause = causes.find(state, self._plan, self.directory)
            self._explained = True
        return self._run(state, self._cause)

    @property
    def marker(self) -> int:
        """A number that grows with every event."""
        return self._offset

    def _read(self) -> State:
        with self._lock:
            with self.directory.reached():
                if not self._state.over:
                    self._fold()
                if not self._state.over and not self.directory.is_held():
                    return self._settle()
            return self._state

    def _settle(self) -> State:
        """Have a run recorded as lost; one of an engine that is not here is left alone."""
        engine = self._engines.get(self._engine)
        if engine is None:
            return self._state
        try:
            engine.settle(self.directory)
        except FileNotFoundError:
            raise
        except OSError as error:  # it is lost all the same
            lost = lifecycle.fold(self._state, [Finished(time.time(), phase=LOST)])
            return replace(lost, reason=f"{lost.reason}; TFJOB_HOME: {error.strerror}")
        self._fold()
        return self._state

    def _fold(self) -> None:
        events, self._offset = self.directory.read_events(self._offset)
        for event in events:
            if isinstance(event, Created):
                self._created = event.time
                self._engine = event.engine
        self._state = lifecycle.fold(self._state, events)

    def _run(self, state: State, cause: Cause | None) -> Run:
        job = None if self._plan is None else self._plan.job
        created = self._created
        if created is None:
            with self.directory.reached():
                created = self.directory.changed()
        return Run(
            id=self.directory.id,
            name=self.directory.id if job is None else job.name,
            engine=self._engine,
            phase=state.phase,
            reason=self._unreadable or state.reason,
            created=created,
            ended=state.ended,
            nodes=0 if job is None else job.nodes,
            flavor="?" if job is None else job.flavor.name,
            network="none" if self._plan is None else self._plan.network.mode,
            rehearsal=self._plan is not None and self._plan.rehearsal,
            directory=str(self.directory.path),
            code_dir=self._code_dir,
            boot_file="?" if job is None else job.boot_file,
            tasks=tuple(self._tasks(state)),
            notes=(*(() if self._plan is None else self._plan.notes), *state.notes),
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
                log=self._logs[task.name],
            )
            for task in (() if self._plan is None else self._plan.tasks)
            for seen in [state.tasks[task.name]]
        ]


class Records:
    """All runs of this user, on any of `engines`; safe to use from several threads."""

    def __init__(self, home: Path, engines: Mapping[str, Engine[Any]]) -> None:
        self._home = home
        self._engines = engines
        self._records: dict[str, Record] = {}
        self._left: frozenset[str] = frozenset()  # runs that no supervisor has any more

    def all(self) -> list[Record]:
        """Every run, in no particular order."""
        found = [self._record(directory) for directory in rundir.all_runs(self._home)]
        self._records = {record.directory.id: record for record in found if record.is_readable}
        return found

    def live(self) -> list[tuple[Record, Run]]:
        """Every run that has a supervisor; the others are not read.

        It lists the directory of runs, and looks at the lock of each run once: a run that has lost
        its supervisor never gets another.
        """
        pairs = []
        left = set()
        for directory in rundir.all_runs(self._home):
            with suppress(NotFoundError, UnavailableError):  # one does not hide the others
                with directory.reached():
                    held = directory.id not in self._left and directory.is_held()
                if not held:
                    left.add(directory.id)
                else:
                    record = self._record(directory)
                    pairs.append((record, record.read()))
        self._left = frozenset(left)
        return [(record, run) for record, run in pairs if not run.over]

    def newest_first(self) -> list[tuple[Record, Run]]:
        """Every run with what it is now."""
        pairs = []
        for record in self.all():
            with suppress(NotFoundError, UnavailableError):  # removed meanwhile, or another user's
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
            known = Record(directory, self._engines)
            if known.is_readable:  # what is in its way may be gone the next time
                self._records[directory.id] = known
        return known


def _nothing(name: str, matching: Sequence[str], ids: Sequence[str]) -> str:
    if matching:
        return f"run: {name!r} may be any of {', '.join(sorted(matching))}; give a longer prefix"
    near = difflib.get_close_matches(name, ids, n=3, cutoff=0.5)
    if near:
        return f"run: there is no run {name!r}; did you mean {' or '.join(near)}?"
    return f"run: there is no run {name!r}; `tfjob list` shows all runs"
