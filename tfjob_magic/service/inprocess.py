"""The service itself, in the process that asks."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfjob_magic import configuration, tail
from tfjob_magic.core import flags, flavor, variables
from tfjob_magic.core import job as jobs
from tfjob_magic.core import plan as plans
from tfjob_magic.engines.local import LocalEngine
from tfjob_magic.errors import (
    ConflictError,
    InUseError,
    UnavailableError,
)
from tfjob_magic.service import checks
from tfjob_magic.service.model import Batch, Chunk, Run, Submission
from tfjob_magic.service.records import Records
from tfjob_magic.store import codedir, rundir, sources
from tfjob_magic.store.rundir import RunDir

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from tfjob_magic.core.flags import Flags
    from tfjob_magic.core.flavor import Flavor
    from tfjob_magic.core.job import Job
    from tfjob_magic.core.plan import Plan
    from tfjob_magic.engines import Engine, Reservation

_ENGINE = LocalEngine.name  # where jobs run
LONGEST_WAIT = 10.0  # seconds
MOST_BYTES = 2**20  # of all logs together, in one batch
PAUSE = 0.03  # seconds between two glances
_LAST_BREATH = 5.0  # seconds for a supervisor to be gone after it wrote its last event
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_MARK_LENGTH = 5


@dataclass(frozen=True)
class Glance:
    """One look at a run: a batch, how many events there were, and whether there is news in it."""

    batch: Batch
    marker: int
    news: bool


class Service:
    """Implements `Jobs` on this machine's run directories. Safe to use from several threads.

    Everything is read from `home`, the directory of run directories, so any number of services
    may work side by side. `engines` are those that runs may be on, by name.
    """

    def __init__(
        self,
        home: Path | None = None,
        engines: Mapping[str, Engine[Any]] | None = None,
        rng: Random | None = None,
    ) -> None:
        self.home = home or rundir.home()
        self._engines = engines or {LocalEngine.name: LocalEngine()}
        self._rng = rng or random.SystemRandom()
        self._records = Records(self.home, self._engines)

    def preview(self, submission: Submission) -> Plan:
        """Plan the job; the reservation that the plan is made under is given back."""
        job = _job(submission)
        if submission.source is None:
            checks.check_boot_file(job)
        chosen = _flags(job, submission.source)
        with self._engines[_ENGINE].reserve(job) as reservation:
            return self._plan(job, chosen, reservation)

    def submit(self, submission: Submission, gone: Callable[[], bool] = lambda: False) -> Run:
        """Start the job, unless whoever asked for it has `gone` by then: UnavailableError."""
        job = _job(submission)
        if submission.source is not None:
            checks.check_cell(submission.source)
        environment = submission.environment or os.environ
        checks.check_environment(environment)
        code_dir = Path(job.cwd)
        self._make_home()
        with codedir.hold(code_dir, self.home / ".code-dirs") as place:
            self._check_free(code_dir)
            if submission.source is None:
                checks.check_boot_file(job)
                boot_file = code_dir / job.boot_file
            else:
                place.stage(job.boot_file, submission.source)
                boot_file = place.staged
            chosen = _flags(job, submission.source)
            engine = self._engines[_ENGINE]
            with engine.reserve(job) as reservation:
                plan = self._plan(job, chosen, reservation)
                environments = {
                    task.name: variables.environment(environment, task, job.env)
                    for task in plan.tasks
                }
                if gone():
                    raise UnavailableError(
                        "whoever asked for the job has gone; nothing was started"
                    )
                written = json.dumps(plans.to_json(plan), indent=2, ensure_ascii=False)
                directory, lock = RunDir.create(
                    self.home, plan.run, written, boot_file, time.time(), engine=engine.name
                )
                try:
                    place.commit()
                except BaseException:
                    os.close(lock)
                    directory.remove()
                    raise
                engine.start(plan, directory, lock, environments, reservation)
        return self.run(plan.run)

    def runs(self) -> list[Run]:
        """List every run of this user."""
        return [run for _, run in self._records.newest_first()]

    def live(self) -> list[Run]:
        """List the runs that are going on; cheap however many are over."""
        return [run for _, run in self._records.live()]

    def run(self, name: str) -> Run:
        """Look at one run."""
        return self._records.find(name).explain()

    def plan(self, name: str) -> Plan:
        """Show the plan that the run was started with."""
        return self._records.find(name).plan

    def stop(self, name: str, grace: float | None = None) -> Run:
        """Ask the run to stop."""
        record = self._records.find(name)
        if grace is not None:
            grace = jobs.parse_grace(grace)
        if not record.read().over:
            record.engine.stop(record.directory, "the user", grace)
        return record.explain()

    def remove(self, name: str) -> None:
        """Delete the directory of a run that is over."""
        record = self._records.find(name)
        run = record.read()
        if not run.over:
            raise ConflictError(f"run: {run.id} is {run.phase}; stop it before you remove it")
        deadline = time.monotonic() + _LAST_BREATH
        while record.directory.is_held() and time.monotonic() < deadline:
            time.sleep(PAUSE)
        record.directory.remove()

    def poll(self, name: str, cursors: Mapping[str, int], wait: float = 0.0) -> Batch:
        """Read on in the logs, waiting for something new."""
        checks.check_poll(cursors, wait)
        deadline = time.monotonic() + min(wait, LONGEST_WAIT)
        glance = self.glance(name, cursors)
        while not glance.news and time.monotonic() < deadline:
            time.sleep(PAUSE)
            glance = self.glance(glance.batch.run.id, cursors, glance.marker)
        return glance.batch

    def glance(self, name: str, cursors: Mapping[str, int], marker: int | None = None) -> Glance:
        """Read on in the logs without waiting; `marker` is the last glance's."""
        record = self._records.find(name)
        record.read()
        seen = record.marker
        run = record.explain()
        chunks = _chunks(run, cursors)
        changed = marker is not None and seen != marker
        return Glance(Batch(run, chunks), seen, bool(chunks) or changed or run.over)

    def flavors(self) -> list[Flavor]:
        """List the flavors that have a name."""
        return list({**flavor.TABLE, **configuration.flavors(os.environ)}.values())

    def _make_home(self) -> None:
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UnavailableError(
                f"TFJOB_HOME: {str(self.home)!r}, where runs are kept, cannot be made"
                f" ({error.strerror}); set it to a directory that can be written"
            ) from error

    def _check_free(self, code_dir: Path) -> None:
        """Make sure that no live run uses the code dir."""
        real = os.path.realpath(code_dir)
        for _, run in self._records.live():
            if os.path.realpath(run.code_dir) == real:
                raise InUseError(
                    f"code_dir: {str(code_dir)!r} is in use by {run.id}, which is {run.phase};"
                    f" wait for it, stop it first with --replace, or choose another --code-dir",
                    run.id,
                )

    def _plan(self, job: Job, chosen: Flags, reservation: Reservation) -> Plan:
        run = self._new_id(job.name)
        return plans.plan(
            job,
            reservation.nodes,
            reservation.ports,
            run,
            log_dir=str(self.home / run / "logs"),
            nics=reservation.nics,
            flags=chosen,
        )

    def _new_id(self, name: str) -> str:
        while True:
            run = f"{name}-{''.join(self._rng.choices(_BASE32, k=_MARK_LENGTH))}"
            if not (self.home / run).exists():
                return run


def _job(submission: Submission) -> Job:
    raw = {"python": sys.executable, **submission.job}
    code_dir = raw.get("code_dir")
    if raw.get("name") is None and isinstance(code_dir, str):
        raw["name"] = jobs.slug(code_dir)
    own = configuration.flavors(submission.environment or os.environ)
    return jobs.parse(raw, own)


def _flags(job: Job, source: str | None) -> Flags:
    texts = sources.read(Path(job.cwd), job.boot_file, source)
    return flags.choose(job.cluster_flags, job.boot_file, texts)


def _chunks(run: Run, cursors: Mapping[str, int]) -> tuple[Chunk, ...]:
    """Read the logs beyond the cursors, the bytes of a batch shared fairly over the tasks."""
    waiting = []
    for task in run.tasks:
        path, cursor = Path(task.log), cursors.get(task.name, 0)
        if (size := tail.size(path) - cursor) > 0:
            waiting.append((size, task.name, path, cursor))
    left = MOST_BYTES
    chunks = {}
    for number, (size, name, path, cursor) in enumerate(sorted(waiting)):
        # Those with little to say go first and leave the rest of their share to the others.
        data = tail.read(path, cursor, min(size, left // (len(waiting) - number)))
        left -= len(data)
        if data:
            chunks[name] = Chunk(name, cursor, data)
    return tuple(chunks[task.name] for task in run.tasks if task.name in chunks)
