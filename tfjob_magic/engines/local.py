"""The local engine: runs on this machine, each under a detached supervisor."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tfjob_magic
from tfjob_magic.core.events import Finished, OrphansEnded, Supervised
from tfjob_magic.core.launch import Launch, TaskLaunch, encode
from tfjob_magic.core.node import Nic, Node, carve
from tfjob_magic.core.plan import Plan, count_tasks
from tfjob_magic.core.state import LOST
from tfjob_magic.errors import TfjobError, UnavailableError
from tfjob_magic.machine import look
from tfjob_magic.store import cgroups, ports, processes
from tfjob_magic.store.ledger import Ledger
from tfjob_magic.store.rundir import EventWriter, RunDir

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfjob_magic.core.job import Job

SUPERVISOR = Path(tfjob_magic.__file__).parent / "supervisor" / "__main__.py"
START_PATIENCE = 30.0  # seconds until a supervisor that says nothing is given up
SWEEP_PATIENCE = 5.0  # seconds for what a lost run left behind to be gone


@dataclass(frozen=True)
class LocalReservation:
    """Cores, devices and ports of this machine, kept by open files."""

    nodes: tuple[Node, ...]
    nics: tuple[Nic, ...]
    held_ports: ports.HeldPorts
    ledger: Ledger

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports that are held, one per task."""
        return self.held_ports.numbers

    @property
    def fds(self) -> tuple[int, ...]:
        """What the supervisor is to keep open."""
        return (self.ledger.fd, *self.held_ports.fds)


class LocalEngine:
    """Runs on this machine. `ledger` is the directory of another ledger than the user's own."""

    name = "local"

    def __init__(self, ledger: Path | None = None) -> None:
        self._ledger = ledger

    @contextmanager
    def reserve(self, job: Job) -> Iterator[LocalReservation]:
        """Choose cores, devices and ports of this machine for a job, and keep them.

        Until the run is started, or the context left, other submissions of this user wait.
        """
        machine = look()
        tasks = count_tasks(job)
        with Ledger(self._ledger) as ledger:
            machine = ledger.order(machine)
            nodes = carve(machine, job, one_address=sys.platform == "darwin")
            ledger.take(
                cores={core for node in nodes for core in node.capacity.cores},
                devices={device for node in nodes for device in node.capacity.devices},
            )
            wanted = tasks if tasks > 1 else 0
            with ports.hold(wanted, random.SystemRandom()) as held:
                yield LocalReservation(nodes, machine.nics, held, ledger)

    def start(
        self,
        plan: Plan,
        directory: RunDir,
        lock: int,
        environments: Mapping[str, Mapping[str, str]],
        reservation: LocalReservation,
    ) -> None:
        """Start a supervisor for the run and hand it all that it keeps; about 50 ms.

        Nothing of this process is forked: it executes a launcher, which detaches the supervisor.
        Raises UnavailableError when it cannot be started; the run directory is gone then.
        """
        launch = Launch(
            grace=plan.job.grace,
            timeout=plan.job.timeout,
            tasks=tuple(
                TaskLaunch(
                    name=task.name,
                    role=task.role,
                    argv=task.argv,
                    cwd=task.cwd,
                    log=task.log,
                    cores=task.granted.cores,
                    environment=dict(environments[task.name]),
                )
                for task in plan.tasks
            ),
        )
        reservation.ledger.end_turn()
        try:
            try:
                _launch(directory, encode(launch), (lock, *reservation.fds))
            except BaseException:
                _ask_to_stop(directory)
                raise
            finally:
                os.close(lock)
        except BaseException:
            _remove_if_free(directory)
            raise

    def stop(self, directory: RunDir, by: str, grace: float | None = None) -> None:
        """Ask the run's supervisor to stop it; `by` and `grace` (seconds) as in the event."""
        if directory.is_held():
            directory.request_stop(by, grace)

    def settle(self, directory: RunDir) -> None:
        """Record a run as lost if it has no supervisor and no last event, and end its processes.

        Whoever notices does it, once: under the run's lock, after another look.
        """
        if directory.is_held() or _is_finished(directory):
            return
        lock = directory.take_lock()
        if lock is None:
            return
        try:
            if not _is_finished(directory):
                ended = _sweep(directory)
                with EventWriter(directory.events_path) as writer:
                    if ended:
                        writer.append(OrphansEnded(time.time(), pids=tuple(sorted(ended))))
                    writer.append(Finished(time.time(), phase=LOST))
        finally:
            os.close(lock)


def _launch(directory: RunDir, message: bytes, held: tuple[int, ...]) -> None:
    command = [
        *(sys.executable, "-I", "-S", "-X", "utf8", str(SUPERVISOR)),
        *(str(directory.path), ",".join(map(str, held))),
    ]
    launcher = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        close_fds=True,
        pass_fds=held,
        start_new_session=True,
        cwd="/",
        # Not the caller's environment, which is the tasks' and may hold secrets; only what an
        # interpreter may need to be started at all.
        env={name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ},
    )
    with launcher:
        try:
            _, said = launcher.communicate(message, timeout=START_PATIENCE)
        except subprocess.TimeoutExpired:
            said = f"no answer within {START_PATIENCE:g} s".encode()
            launcher.kill()
        except BaseException:
            launcher.kill()
            raise
    if launcher.returncode != 0:
        reason = said.decode("utf-8", "replace").strip().splitlines() or ["it died"]
        raise UnavailableError(f"the run's supervisor could not be started: {reason[-1]}")


# There is to be no run that its submitter does not know of. What goes wrong here must not hide why
# the run could not be started; a directory that stays is a lost run, which can be seen and removed.


def _ask_to_stop(directory: RunDir) -> None:
    # An interrupt may come when the supervisor has the run already.
    with suppress(OSError, TfjobError):
        directory.request_stop(by="an interrupt while it was started", grace=0.0)


def _remove_if_free(directory: RunDir) -> None:
    with suppress(OSError, TfjobError):
        if not directory.is_held():
            directory.remove()


def _is_finished(directory: RunDir) -> bool:
    events, _ = directory.read_events()
    return any(isinstance(event, Finished) for event in events)


def _sweep(directory: RunDir) -> set[int]:
    """End every process that is in the run's group or carries its mark; tasks of it die anyway."""
    ended: set[int] = set()
    mark = str(directory.path)
    group = _group(directory)
    deadline = time.monotonic() + SWEEP_PATIENCE
    while True:
        grouped = [] if group is None else cgroups.members(group)
        if group is not None and grouped:
            cgroups.kill(group)
            ended.update(grouped)
        marked = processes.marked(mark)
        ended.update(pid for pid in marked if processes.kill_marked(pid, mark))
        if not (grouped or marked) or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    if group is not None:
        cgroups.remove(group)
    return ended


def _group(directory: RunDir) -> Path | None:
    events, _ = directory.read_events()
    path = next((event.cgroup for event in events if isinstance(event, Supervised)), None)
    return cgroups.found(path, directory.path)
