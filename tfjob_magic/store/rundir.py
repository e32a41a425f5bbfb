"""Run directories: everything that outlives the processes of a run (docs/architecture.md).

Standard library only, Python 3.10 syntax: the supervisor reads and writes them too.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import signal
import stat
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tfjob_magic.core.events import Created, Event, Supervised, decode, encode
from tfjob_magic.errors import ConflictError, NotFoundError, UnavailableError
from tfjob_magic.store import locks, private, processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

LONGEST_GRACE = 1e9  # seconds; a number in JSON may be larger than any float

LEFT_OVER_AFTER = 3600.0  # seconds; making or deleting a run takes far less
_LEFT_OVER = re.compile(r"\.(new|gone)-.+-[0-9a-f]{8}", re.DOTALL)


def home() -> Path:
    """Where this user's run directories are: every face of the same user sees all of them.

    `$TFJOB_HOME`, else `$XDG_STATE_HOME/tfjob/runs`, else `~/.local/state/tfjob/runs`.
    """
    chosen = os.environ.get("TFJOB_HOME")
    if chosen:
        return Path(chosen).absolute()
    try:
        return private.state_home() / "runs"
    except RuntimeError as error:
        raise UnavailableError(
            "TFJOB_HOME: this user has no home directory; set it to a directory for the runs"
        ) from error


def all_runs(where: Path) -> list[RunDir]:
    """Find the run directories under `where`, in no particular order."""
    with reached(where):
        try:
            paths = list(where.iterdir())
        except FileNotFoundError:
            return []
        found = [RunDir(path) for path in paths if not path.name.startswith(".")]
        return [directory for directory in found if directory.exists()]


@contextmanager
def reached(path: Path) -> Iterator[None]:
    """Make an OSError about `path`, in the directory of runs, an UnavailableError that names it."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"TFJOB_HOME: {str(path)!r} cannot be used ({error.strerror});"
            f" set it to a directory that can be read and written"
        ) from error


class RunDir:
    """One run's directory, by its path; the directory's name is the run's id."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        given = Path(path).absolute()
        # One run has one path, whatever links lead to it: its processes are found by it.
        self.path = given.parent.resolve() / given.name
        self.id = self.path.name
        self.plan_path = self.path / "plan.json"
        self.events_path = self.path / "events.jsonl"
        self.logs_path = self.path / "logs"
        self.supervisor_log_path = self.path / "supervisor.log"
        self.lock_path = self.path / "lock"
        self.nudge_path = self.path / "nudge"
        self._stop_path = self.path / "requests" / "stop.json"

    @classmethod
    def create(
        cls,
        where: Path,
        run: str,
        plan_json: str,
        boot_file: Path,
        now: float,
        *,
        engine: str = "local",
    ) -> tuple[RunDir, int]:
        """Make the directory of a new run, with its plan, its boot file and its `created` event.

        `engine` is the name of the one that the run will be on.

        It appears whole or not at all, already locked: the second value is the lock, a file
        descriptor to hand to the supervisor and to close. Raises ConflictError when there is such
        a run already, UnavailableError when the directory cannot be written.
        """
        try:
            with ExitStack() as undo:
                where.mkdir(mode=0o700, parents=True, exist_ok=True)
                _clear_leftovers(where)
                draft = cls(where / f".new-{run}-{os.urandom(4).hex()}")
                undo.callback(_delete_what_can_be, draft.path)
                draft.path.mkdir(mode=0o700)
                for name in ("boot", "logs", "requests"):
                    (draft.path / name).mkdir(mode=0o700)
                os.mkfifo(draft.nudge_path, 0o600)
                _write(draft.plan_path, plan_json.encode("utf-8", "surrogateescape"))
                _write(draft.path / "boot" / boot_file.name, boot_file.read_bytes())
                with EventWriter(draft.events_path) as writer:
                    writer.append(Created(now, run=run, engine=engine))
                    writer.check()
                lock = locks.open_to_lock(draft.lock_path)
                undo.callback(os.close, lock)
                locks.take(lock)
                made = cls(where / run)
                draft.path.rename(made.path)
                undo.pop_all()
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise ConflictError(f"run: there is a run named {run!r} already") from error
            raise UnavailableError(
                f"TFJOB_HOME: the run directory cannot be made under {str(where)!r} "
                f"({error.strerror}); set it to a directory that can be written"
            ) from error
        return made, lock

    def exists(self) -> bool:
        """Whether there is a run here."""
        try:
            return self.events_path.is_file()
        except OSError:  # another user's, or closed to everybody
            return False

    def changed(self) -> float:
        """When a file was last added to the directory or taken away; seconds since the epoch."""
        return self.path.stat().st_mtime

    def read_plan(self) -> dict[str, object]:
        """Read the plan as it was written."""
        text = self.plan_path.read_bytes().decode("utf-8", "surrogateescape")
        plan: dict[str, object] = json.loads(text)
        return plan

    def log_path(self, log: str) -> Path:
        """Say where a task's log is, by the file name that the plan gives it."""
        return self.logs_path / log

    def read_events(self, offset: int = 0) -> tuple[list[Event], int]:
        """Read the events from a byte offset on; the second value is where to go on reading.

        A last line that is not whole yet is left for the next time; one that never became whole
        (the disk was full, the machine went down) is skipped.
        """
        with self.events_path.open("rb") as file:
            file.seek(offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        events = []
        for line in whole.splitlines():
            try:
                event = decode(line.decode("utf-8", "surrogateescape"))
            except ValueError:
                continue
            if event is not None:
                events.append(event)
        return events, offset + len(whole)

    def is_held(self) -> bool:
        """Whether a supervisor has the run; asks for the lock without taking it.

        Where the lock was deleted the supervisor is looked for among the processes.
        """
        try:
            fd = os.open(self.lock_path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return processes.is_supervisor(self._supervisor(), str(self.path))
        try:
            return locks.is_taken(fd)
        finally:
            os.close(fd)

    def take_lock(self) -> int | None:
        """Take the run's lock, a file descriptor to close; None when a supervisor has it."""
        if not self.lock_path.exists() and self.is_held():
            return None
        fd = locks.open_to_lock(self.lock_path)
        if locks.take(fd):
            return fd
        os.close(fd)
        return None

    def request_stop(self, by: str, grace: float | None = None) -> None:
        """Ask the supervisor to stop the run, and return; it answers by an event.

        `by` names who asks, for the run's reason; a `grace` in seconds replaces the job's. Where
        that cannot be written (the disk is full) the supervisor is sent SIGTERM, which asks the
        same with the job's own grace. UnavailableError where it cannot be asked either way.
        """
        with self.reached():
            try:
                self._write_stop_request(by, grace)
            except OSError:
                if not self._signal_supervisor(signal.SIGTERM):
                    raise

    def _write_stop_request(self, by: str, grace: float | None) -> None:
        aside = self._stop_path.with_name(f".stop-{os.urandom(4).hex()}")
        try:
            _write(aside, json.dumps({"by": by, "grace": grace}).encode())
            aside.rename(self._stop_path)
        except BaseException:
            with suppress(OSError):
                aside.unlink()
            raise
        self._nudge()

    def _supervisor(self) -> int:
        """Give the pid of the last supervisor that has had the run; -1 where there was none."""
        try:
            events, _ = self.read_events()
        except FileNotFoundError:
            return -1
        return next((event.pid for event in reversed(events) if isinstance(event, Supervised)), -1)

    def _signal_supervisor(self, number: int) -> bool:
        return processes.signal_supervisor(self._supervisor(), str(self.path), number)

    def _nudge(self) -> None:
        try:
            fd = os.open(self.nudge_path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # no supervisor reads it: none is there yet (it will look), or none any more
            if error.errno == errno.ENOENT:
                self._signal_supervisor(signal.SIGCHLD)  # it was deleted; that wakes it as well
                return
            raise
        try:
            os.write(fd, b"!")
        except BlockingIOError:
            pass  # so many nudges wait there that one more says nothing new
        finally:
            os.close(fd)

    def take_stop_request(self) -> tuple[str, float | None] | None:
        """Take what `request_stop` asked, once: for the supervisor.

        A grace that is not a number of seconds from 0 on is none: the job's own holds.
        """
        taken = self._stop_path.with_name(".taken")
        try:
            self._stop_path.rename(taken)
            request = json.loads(taken.read_bytes())
            by, grace = str(request["by"]), request["grace"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None  # there is none, or none that can be read: no reason to end a run
        if not isinstance(grace, int | float) or not 0 <= grace < math.inf:
            return by, None
        return by, float(min(grace, LONGEST_GRACE))

    def remove(self) -> None:
        """Delete the directory of a run that is over; raises ConflictError while it is not.

        NotFoundError where it is gone, UnavailableError where it cannot be deleted, with the place
        of what is left of it.
        """
        with self.reached():
            lock = self.take_lock()
            if lock is None:
                raise ConflictError(f"run: {self.id!r} is still running; stop it first")
            try:
                going = self.path.with_name(f".gone-{self.id}-{os.urandom(4).hex()}")
                self.path.rename(going)
                try:
                    _delete(going)
                except OSError as error:
                    raise UnavailableError(
                        f"run: {self.id} could not be deleted completely ({error.strerror}:"
                        f" {error.filename!r}); delete {str(going)!r} yourself"
                    ) from error
            finally:
                os.close(lock)

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Make an OSError about the run's files one of ours: NotFoundError if the run is gone."""
        with reached(self.path):
            try:
                yield
            except FileNotFoundError as error:
                if self.path.exists():
                    raise
                raise NotFoundError(f"run: {self.id} has been removed") from error


class EventWriter:
    """Appends events to `events.jsonl`, whole lines in their order.

    What a full disk refuses stays in memory and is tried again with the next event: a run is not
    lost because its log cannot be written for a while. A line that a writer before this one left
    torn is ended first.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        size = os.fstat(self._fd).st_size
        torn = size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"
        self._unwritten = b"\n" if torn else b""
        self._error: OSError | None = None

    def append(self, event: Event) -> None:
        """Write one event, or keep it for later."""
        self._unwritten += encode(event).encode("utf-8", "surrogateescape") + b"\n"
        self.flush()

    def flush(self) -> bool:
        """Write what is still unwritten; whether nothing is left."""
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._fd, self._unwritten) :]
        except OSError as error:
            self._error = error
        return not self._unwritten

    def check(self) -> None:
        """Raise the OSError that keeps events from being written, if one does."""
        if self._unwritten and self._error is not None:
            raise self._error

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def _delete_what_can_be(directory: Path) -> None:
    with suppress(OSError):
        _delete(directory)


def _clear_leftovers(where: Path) -> None:
    """Delete what processes that were ended in the middle of making or deleting a run left."""
    for path in where.iterdir():
        with suppress(OSError):
            late = time.time() - LEFT_OVER_AFTER
            if _LEFT_OVER.fullmatch(path.name) and path.lstat().st_ctime < late:
                _delete(path)


def _delete(directory: Path) -> None:
    if not directory.is_dir():
        return
    with suppress(PermissionError):  # another user's, and perhaps empty
        directory.chmod(0o700)  # a task may have closed its own directories
    for path in directory.iterdir():
        if stat.S_ISDIR(path.lstat().st_mode):
            _delete(path)
        else:
            path.unlink()
    directory.rmdir()
