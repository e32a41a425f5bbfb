"""A run's logs as lines: prefixed, in the order seen, and no more than can be read."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from types import FrameType
from typing import TYPE_CHECKING, Self

from tfjob_magic.errors import NotFoundError
from tfjob_magic.summary import paragraph
from tfjob_magic.tail import Lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfjob_magic.service import Jobs, Run

_WAIT = 0.2  # seconds that one poll waits for news; a ^C is heard as soon
_PACE = 0.1  # seconds between two writes
_FULL = 256 * 1024  # bytes; after a poll that brought so many, the next one follows at once
_COLOURS = {"worker": 36, "ps": 33, "chief": 35, "evaluator": 34}
_UNFINISHED = 5.0  # seconds after which a line is shown that has no newline yet, and again
_STOPPING = 1.0  # seconds after which it is worth saying that a run is still stopping
_SIGN = 0.4  # seconds from an interrupt in which a kernel that goes away shows it
_LOOK = 0.02  # seconds between two looks for that


@dataclass(frozen=True)
class Budget:
    """How many lines are shown; each 200 characters of one count as another line.

    `burst` lines at once and `rate` a second, until `total` have been shown; then `trickle` a
    second. The newest `last` lines of each task are shown in any case, and of one line no more
    than `width` characters. Jupyter's own limits (1 MB and 1000 messages a second, beyond which
    it drops what comes) are far away.
    """

    burst: int = 400
    rate: float = 40.0
    total: int = 5000
    trickle: float = 1.0
    last: int = 20
    width: int = 1000


@dataclass(frozen=True)
class Face:
    """Where a face writes: logs and data by `write`, what we have to say, line by line, by `say`.

    Without a `budget` every line is shown. `width` is the reader's in columns, None for no limit.
    """

    write: Callable[[str], None]
    say: Callable[[str], None]
    budget: Budget | None = None
    colours: bool = False
    width: int | None = None

    def tell(self, sentence: str) -> None:
        """Say a sentence, set in lines of the reader's width."""
        self.say("\n".join(paragraph(sentence, self.width)))


class Feed:
    """Decides which lines are shown, and says how many were not. No clock, no I/O."""

    def __init__(
        self,
        logs: Mapping[str, str],
        budget: Budget | None,
        *,
        prefix: bool = True,
        colours: bool = False,
    ) -> None:
        self._logs = logs
        self._budget = budget
        width = max(map(len, logs), default=0)
        self._prefix = {
            task: _prefix(task, width, colours=colours) if prefix else "" for task in logs
        }
        self._held: dict[str, deque[tuple[int, str]]] = {task: deque() for task in logs}
        self._left_out = dict.fromkeys(logs, 0)
        self._order = count()
        self._tokens = float(budget.burst) if budget else 0.0
        self._spent = 0.0
        self._filled: float | None = None  # when tokens were last added
        self._shown: float | None = None  # when lines were last shown

    @property
    def tasks(self) -> list[str]:
        """The tasks whose lines it takes."""
        return list(self._logs)

    def add(self, task: str, lines: Iterable[str]) -> None:
        """Take the next lines of a task's log."""
        held = self._held[task]
        for line in lines:
            held.append((next(self._order), line))
            if self._budget and len(held) > self._budget.burst:
                held.popleft()
                self._left_out[task] += 1

    def take(self, now: float, *, last: bool = False) -> str:
        """Return what to show now, at `now` seconds of any clock; `last` when nothing follows."""
        budget = self._budget
        waiting = [task for task, held in self._held.items() if held]
        if not waiting:
            return ""
        if budget is not None:
            self._refill(now, budget)
            if self._cost(waiting) > self._tokens:
                flooded_since = now if self._shown is None else self._shown
                if not last and (now - flooded_since < 1.0 or self._tokens < 2 * len(waiting)):
                    if self._shown is None:
                        self._shown = now
                    return ""
                self._trim(waiting, budget.last if last else 1)
            self._spend(self._cost(waiting))
        self._shown = now
        return self._text(waiting)

    def _refill(self, now: float, budget: Budget) -> None:
        rate = budget.rate if self._spent < budget.total else budget.trickle
        since = 0.0 if self._filled is None else now - self._filled
        self._tokens = min(float(budget.burst), self._tokens + since * rate)
        self._filled = now

    def _spend(self, cost: float) -> None:
        self._spent += cost
        self._tokens = max(0.0, self._tokens - cost)

    def _cost(self, tasks: Iterable[str]) -> float:
        """Add up what showing everything held would cost, notices of what is left out included."""
        return sum(
            sum(_weight(line) for _, line in self._held[task]) + bool(self._left_out[task])
            for task in tasks
        )

    def _trim(self, tasks: list[str], least: int) -> None:
        """Leave out the oldest lines until each task is down to its part of the tokens."""
        part = self._tokens / len(tasks) - 1  # one is for the notice
        for task in tasks:
            held = self._held[task]
            cost = sum(_weight(line) for _, line in held)
            while len(held) > least and cost > part:
                cost -= _weight(held.popleft()[1])
                self._left_out[task] += 1

    def _text(self, tasks: list[str]) -> str:
        shown: list[tuple[int, int, str]] = []
        for task in tasks:
            held, prefix = self._held[task], self._prefix[task]
            if self._left_out[task]:
                shown.append((held[0][0], 0, f"{prefix}{self._notice(task)}"))
                self._left_out[task] = 0
            shown.extend((order, 1, f"{prefix}{self._clip(line)}") for order, line in held)
            held.clear()
        return "".join(f"{line}\n" for _, _, line in sorted(shown))

    def _notice(self, task: str) -> str:
        number = self._left_out[task]
        lines = "1 line" if number == 1 else f"{number:,} lines".replace(",", " ")
        return f"… {lines} left out here; the whole log: {self._logs[task]}"

    def _clip(self, line: str) -> str:
        if self._budget is None or len(line) <= self._budget.width:
            return line
        return f"{line[: self._budget.width]} … cut here, whole in the log"


def _prefix(task: str, width: int, *, colours: bool) -> str:
    text = f"{task:<{width}} │"
    colour = _COLOURS.get(task.rpartition("-")[0]) if colours else None
    return f"\x1b[{colour}m{text}\x1b[0m " if colour else f"{text} "


def _weight(line: str) -> int:
    return 1 + len(line) // 200


_Handler = Callable[[int, FrameType | None], object] | int | None  # as `signal.signal` returns it


class Interrupts:
    """Within it, ^C (and what else is named) is counted rather than raised, the first two times.

    So a run can be stopped and its end be seen, and no line is lost half-way. From the third on,
    KeyboardInterrupt is raised as ever. Outside the main thread it changes nothing: signals do
    not arrive there.

    `leaving` tells whether the process is about to end: Jupyter interrupts a kernel before it
    shuts it down, and then nobody has asked for the run to stop. None in a process that is not
    interrupted for that.
    """

    def __init__(self, *signals: signal.Signals, leaving: Callable[[], bool] | None = None) -> None:
        self.received: list[int] = []
        self._leaving = leaving
        self._signals = signals or (signal.SIGINT,)
        self._before: list[tuple[int, _Handler]] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in self._signals:
                self._before.append((number, signal.signal(number, self._receive)))
        return self

    def __exit__(self, *_: object) -> None:
        while self._before:
            number, handler = self._before.pop()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def mean_leaving(self) -> bool:
        """Whether the interrupt just received only announces the end of this process.

        The announcement itself comes a moment later: this waits for it, up to 0.4 s.
        """
        if self._leaving is None:
            return False
        deadline = time.monotonic() + _SIGN
        while not self._leaving():
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK)
        return True

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(number)
        if len(self.received) > 2:  # noqa: PLR2004 - one to stop, one to kill
            raise KeyboardInterrupt


class _Unfinished:
    """Decides when the line of a log that has no newline yet is shown as far as it has come.

    That is after 5 s, then when it has changed, but not again within 5 s.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._since: float | None = None  # when the line was begun or last shown
        self._shown = ""
        self._changed = False

    def grow(self, *, finished: bool) -> None:
        """Take note that the log has grown; `finished` if a line has ended in it."""
        self._changed = True
        if finished:
            self._since, self._shown = None, ""

    def take(self, now: float) -> list[str]:
        """Return the line, if it is to be shown at `now`."""
        if not self._changed:
            return []
        if self._since is None:
            self._changed = bool(self._lines.unfinished)
            self._since = now if self._changed else None
            return []
        if now - self._since < _UNFINISHED:
            return []
        self._changed = False
        text = self._lines.unfinished
        if not text or text == self._shown:
            return []
        self._since, self._shown = now, text
        return [f"{text} …"]


class Reader:
    """Reads on in the logs of a run's tasks, those that `feed` knows, and hands it their lines."""

    def __init__(self, jobs: Jobs, run: Run, feed: Feed, *, colours: bool) -> None:
        self._jobs = jobs
        self._run = run
        self._feed = feed
        self._lines = {task: Lines(colours=colours) for task in feed.tasks}
        self._unfinished = {task: _Unfinished(lines) for task, lines in self._lines.items()}
        self._cursors: dict[str, int] = {}

    def read(self, wait: float) -> tuple[Run, int]:
        """Read what there is, waiting up to `wait` seconds for some; the run and the bytes read."""
        batch = self._jobs.poll(self._run.id, self._cursors, wait)
        for chunk in batch.chunks:
            self._cursors[chunk.task] = chunk.offset + len(chunk.data)
            if chunk.task in self._lines:
                lines = self._lines[chunk.task].feed(chunk.data)
                self._feed.add(chunk.task, lines)
                self._unfinished[chunk.task].grow(finished=bool(lines))
        return batch.run, sum(len(chunk.data) for chunk in batch.chunks)

    def show_unfinished(self, now: float) -> None:
        """Hand over the lines that have had no newline for long: a progress bar, dots, a prompt."""
        for task, unfinished in self._unfinished.items():
            self._feed.add(task, unfinished.take(now))

    def end(self) -> None:
        """Hand over the last lines, where they have no newline."""
        for task, lines in self._lines.items():
            self._feed.add(task, lines.end())


def follow(
    jobs: Jobs, run: Run, face: Face, interrupts: Interrupts | None = None, task: str | None = None
) -> Run:
    """Show the logs of a run, or of one task, until the run is over; return it as it ended.

    The first of the `interrupts` asks the run to stop, the second kills it. One that only announces
    the end of this process leaves the run alone: it is returned as it is. Errors are those of
    `Jobs`, and NotFoundError for a task that the run does not have.
    """
    feed = _feed(run, face, task)
    reader = Reader(jobs, run, feed, colours=face.colours)
    heard = 0
    stopping_since: float | None = None
    told = False
    while True:
        began = time.monotonic()
        run, size = reader.read(_WAIT)
        over = run.over and not size
        if over:
            reader.end()
        else:
            reader.show_unfinished(time.monotonic())
        face.write(feed.take(time.monotonic(), last=over))
        if over:
            return run
        if interrupts and len(interrupts.received) > heard:
            if interrupts.mean_leaving():
                return run
            heard = len(interrupts.received)
            told = True
            again = heard > 1
            face.tell(
                f"■ killing {run.id}"
                if again
                else f"■ stopping {run.id}; interrupt again to kill it at once"
            )
            jobs.stop(run.id, grace=0.0 if again else None)
        elif run.phase == "stopping" and not told:
            stopping_since = stopping_since or began
            if began - stopping_since > _STOPPING:
                told = True
                face.tell(f"stopping: {run.reason or 'waiting for the tasks to end'}")
        if 0 < size < _FULL:
            time.sleep(max(0.0, began + _PACE - time.monotonic()))


def logs(jobs: Jobs, run: Run, face: Face, task: str | None = None) -> None:
    """Show what the tasks of a run, or one of them, have printed so far. Errors as in `follow`."""
    feed = _feed(run, face, task)
    reader = Reader(jobs, run, feed, colours=face.colours)
    while reader.read(0.0)[1]:
        if face.budget is None:
            face.write(feed.take(0.0))
    reader.end()
    face.write(feed.take(0.0, last=True))


def _feed(run: Run, face: Face, task: str | None) -> Feed:
    paths = {status.name: status.log for status in run.tasks if task in {None, status.name}}
    if not paths:
        tasks = ", ".join(status.name for status in run.tasks)
        raise NotFoundError(f"{run.id} has no task {task}; it has {tasks}")
    return Feed(paths, face.budget, prefix=task is None, colours=face.colours)
