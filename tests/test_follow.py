from __future__ import annotations

import os
import re
import signal
import threading
from collections import deque
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_magic.errors import NotFoundError
from tfjob_magic.follow import Budget, Face, Feed, Interrupts, follow, logs
from tfjob_magic.service import Batch, Chunk, Run, TaskStatus

LOGS = {"ps-0": "/logs/ps-0.log", "worker-0": "/logs/worker-0.log"}
LEFT_OUT = re.compile(r"… ([\d ]+) lines? left out here; the whole log: (\S+)")


def feed_of(budget: Budget | None = None, **options: bool) -> Feed:
    return Feed(LOGS, budget, **options)


def left_out(text: str) -> int:
    return sum(int(re.sub(r"\D", "", number)) for number, _ in LEFT_OUT.findall(text))


def shown(text: str) -> int:
    return len([line for line in text.splitlines() if not LEFT_OUT.search(line)])


def test_lines_are_prefixed_aligned_and_in_the_order_seen() -> None:
    feed = feed_of()
    feed.add("worker-0", ["a"])
    feed.add("ps-0", ["b"])
    feed.add("worker-0", ["c"])
    assert feed.take(0) == "worker-0 │ a\nps-0     │ b\nworker-0 │ c\n"
    assert feed.take(1) == ""


def test_without_prefix_lines_are_as_they_are() -> None:
    feed = feed_of(prefix=False)
    feed.add("ps-0", ["a", ""])
    assert feed.take(0) == "a\n\n"


def test_on_a_terminal_with_colours_each_role_has_its_own() -> None:
    feed = feed_of(colours=True)
    feed.add("worker-0", ["a"])
    feed.add("ps-0", ["b"])
    assert feed.take(0) == "\x1b[36mworker-0 │\x1b[0m a\n\x1b[33mps-0     │\x1b[0m b\n"


def test_without_a_budget_nothing_is_left_out_or_cut() -> None:
    feed = feed_of()
    lines = ["x" * 5000] * 3000
    feed.add("worker-0", lines)
    assert feed.take(0) == "".join(f"worker-0 │ {line}\n" for line in lines)


def test_what_the_budget_allows_is_shown_at_once() -> None:
    feed = feed_of(Budget(burst=100))
    feed.add("worker-0", ["x"] * 100)
    assert shown(feed.take(0)) == 100


def test_of_a_flood_the_newest_lines_are_shown_and_the_others_counted_with_their_file() -> None:
    feed = feed_of(Budget(burst=100, rate=10, last=5))
    feed.add("worker-0", [f"line {number}" for number in range(100_000)])
    assert feed.take(0.0) == ""  # more may come; the newest is what counts
    text = feed.take(1.0)
    assert text.splitlines()[0] == (
        "worker-0 │ … 99 901 lines left out here; the whole log: /logs/worker-0.log"
    )
    assert text.splitlines()[-1] == "worker-0 │ line 99999"
    assert shown(text) + left_out(text) == 100_000


def test_a_flood_of_one_task_does_not_drown_another() -> None:
    feed = feed_of(Budget(burst=100, rate=10))
    feed.add("ps-0", ["hello"])
    feed.add("worker-0", ["x"] * 1000)
    text = feed.take(0) + feed.take(2)
    assert "ps-0     │ hello\n" in text


def test_an_endless_flood_gets_its_rate_and_later_a_trickle() -> None:
    budget = Budget(burst=100, rate=50, total=1000, trickle=1)
    feed = feed_of(budget)
    written = ""
    lines_at = {}
    for tick in range(10_000):  # 1000 s
        feed.add("worker-0", ["x"] * 100)
        written += feed.take(tick / 10)
        lines_at[tick] = written.count("\n")
    assert lines_at[150] <= 100 + 15 * 50
    assert lines_at[9999] - lines_at[5000] <= 500 + 100
    written += feed.take(1001, last=True)
    assert shown(written) + left_out(written) == 1_000_000


def test_the_newest_lines_of_every_task_are_shown_at_the_end_whatever_was_spent() -> None:
    feed = feed_of(Budget(burst=10, rate=0, trickle=0, last=3))
    feed.add("worker-0", ["x"] * 10)
    feed.take(0)
    feed.add("worker-0", [f"w{number}" for number in range(10)])
    feed.add("ps-0", [f"p{number}" for number in range(10)])
    text = feed.take(1, last=True)
    assert [line.split("│ ")[1] for line in text.splitlines() if "out here" not in line] == [
        "w7", "w8", "w9", "p7", "p8", "p9",
    ]  # fmt: skip
    assert left_out(text) == 14


def test_a_long_line_costs_more_and_is_cut() -> None:
    feed = feed_of(Budget(burst=10, width=30))
    feed.add("ps-0", ["y" * 100])
    assert feed.take(0) == f"ps-0     │ {'y' * 30} … cut here, whole in the log\n"
    feed.add("ps-0", ["z" * 10_000])
    assert feed.take(0.1) == ""


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(LOGS)),
            st.integers(0, 400),
            st.floats(0, 3),
        ),
        max_size=30,
    ),
    st.integers(1, 50),
    st.floats(0, 100),
)
def test_every_line_is_either_shown_or_counted(
    history: list[tuple[str, int, float]], burst: int, rate: float
) -> None:
    feed = feed_of(Budget(burst=burst, rate=rate, total=200, trickle=rate / 10))
    now = 0.0
    text = ""
    for task, lines, pause in history:
        feed.add(task, ["x"] * lines)
        now += pause
        text += feed.take(now)
    text += feed.take(now, last=True)
    assert shown(text) + left_out(text) == sum(lines for _, lines, _ in history)
    assert feed.take(now + 1, last=True) == ""


# ---- a run followed --------------------------------------------------------------------------


def task(name: str) -> TaskStatus:
    role, _, index = name.partition("-")
    return TaskStatus(name, role, int(index), 0, "running", 1, 0, None, None, 0.0, None, LOGS[name])


RUN = Run(
    id="quick-abcde", name="quick", engine="local", phase="running", reason=None, created=0.0,
    ended=None, nodes=2, flavor="v100x8", network="container", rehearsal=False,
    directory="/runs/quick-abcde", code_dir="/code", boot_file="train.py",
    tasks=(task("ps-0"), task("worker-0")), notes=(), cause=None,
)  # fmt: skip


class Scripted:
    """Jobs of one run that plays a list of (phase, {task: bytes}), and hears requests to stop."""

    def __init__(self, *batches: tuple[str, dict[str, bytes]]) -> None:
        self.batches = deque(batches)
        self.offsets = dict.fromkeys(LOGS, 0)
        self.stops: list[float | None] = []
        self.before_poll = lambda: None

    def poll(self, name: str, cursors: dict[str, int], wait: float = 0.0) -> Batch:
        self.before_poll()
        assert name == RUN.id
        for log, offset in self.offsets.items():
            assert cursors.get(log, 0) == offset
        phase, data = self.batches[0]
        if len(self.batches) > 1:
            self.batches.popleft()
        else:
            self.batches[0] = (phase, {})
        chunks = tuple(Chunk(log, self.offsets[log], new) for log, new in data.items())
        for chunk in chunks:
            self.offsets[chunk.task] += len(chunk.data)
        return Batch(replace(RUN, phase=phase, reason="because"), chunks)

    def stop(self, name: str, grace: float | None = None) -> Run:
        self.stops.append(grace)
        self.batches = deque([("stopped", {})])
        return RUN


class Heard:
    """A face that remembers."""

    def __init__(self) -> None:
        self.written = ""
        self.said: list[str] = []
        self.face = Face(write=self._write, say=self.said.append)

    def _write(self, text: str) -> None:
        self.written += text


def test_a_run_is_followed_to_its_end_and_its_last_line_needs_no_newline() -> None:
    jobs = Scripted(
        ("running", {"worker-0": b"on", "ps-0": b"up\n"}),
        ("running", {"worker-0": b"e\ntw"}),
        ("succeeded", {"worker-0": b"o"}),
        ("succeeded", {}),
    )
    heard = Heard()
    run = follow(jobs, RUN, heard.face)
    assert run.phase == "succeeded"
    assert heard.written == "ps-0     │ up\nworker-0 │ one\nworker-0 │ two\n"
    assert heard.said == []


def test_only_the_task_that_is_asked_for_is_shown() -> None:
    jobs = Scripted(("running", {"worker-0": b"w\n", "ps-0": b"p\n"}), ("succeeded", {}))
    heard = Heard()
    follow(jobs, RUN, heard.face, task="ps-0")
    assert heard.written == "p\n"


def test_a_task_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(NotFoundError, match="no task worker-7; it has ps-0, worker-0"):
        follow(Scripted(("running", {})), RUN, Heard().face, task="worker-7")


def test_logs_are_what_there_is_now() -> None:
    jobs = Scripted(("running", {"worker-0": b"a\nb\nun"}), ("running", {"worker-0": b"done"}))
    heard = Heard()
    logs(jobs, RUN, heard.face)
    assert heard.written == "worker-0 │ a\nworker-0 │ b\nworker-0 │ undone\n"


def test_logs_under_a_budget_are_the_newest_lines() -> None:
    jobs = Scripted(("running", {"worker-0": b"x\n" * 5000 + b"newest\n"}))
    heard = Heard()
    logs(jobs, RUN, replace(heard.face, budget=Budget(burst=100)))
    assert heard.written.endswith("worker-0 │ newest\n")
    assert shown(heard.written) <= 100
    assert shown(heard.written) + left_out(heard.written) == 5001


def test_the_first_interrupt_stops_the_run() -> None:
    jobs = Scripted(("running", {}))
    heard = Heard()
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        run = follow(jobs, RUN, heard.face, interrupts)
    assert run.phase == "stopped"
    assert jobs.stops == [None]
    assert heard.said == ["■ stopping quick-abcde; interrupt again to kill it at once"]
    assert interrupts.received == [signal.SIGINT]


def test_an_interrupt_that_announces_the_end_of_the_process_leaves_the_run_alone() -> None:
    jobs = Scripted(("running", {}))
    heard = Heard()
    signs = deque([False, False, True])  # it comes a moment after the interrupt
    with Interrupts(leaving=signs.popleft) as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        run = follow(jobs, RUN, heard.face, interrupts)
    assert run.phase == "running"
    assert jobs.stops == []
    assert heard.said == []


def test_an_interrupt_of_a_kernel_that_stays_stops_the_run() -> None:
    jobs = Scripted(("running", {}))
    with Interrupts(leaving=lambda: False) as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert follow(jobs, RUN, Heard().face, interrupts).phase == "stopped"
    assert jobs.stops == [None]


def test_the_second_interrupt_kills_the_run() -> None:
    jobs = Scripted(("running", {}))
    heard = Heard()

    def stop(name: str, grace: float | None = None) -> Run:
        jobs.stops.append(grace)
        jobs.batches = deque([("stopped" if grace == 0 else "stopping", {})])
        if grace is None:
            os.kill(os.getpid(), signal.SIGINT)
        return RUN

    jobs.stop = stop
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        run = follow(jobs, RUN, heard.face, interrupts)
    assert run.phase == "stopped"
    assert jobs.stops == [None, 0.0]
    assert heard.said[-1] == "■ killing quick-abcde"


def test_the_third_interrupt_gets_out() -> None:
    with Interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_while_lines_are_read_loses_none() -> None:
    jobs = Scripted(("running", {"worker-0": b"x\n" * 1000}), ("running", {}))
    jobs.before_poll = lambda: os.kill(os.getpid(), signal.SIGINT) if not jobs.stops else None
    heard = Heard()
    with Interrupts() as interrupts:
        follow(jobs, RUN, heard.face, interrupts)
    assert heard.written == "worker-0 │ x\n" * 1000


def test_afterwards_an_interrupt_is_what_it_was() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before


def test_outside_the_main_thread_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def enter() -> None:
        with Interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_run_that_stops_for_long_says_why_once(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Scripted(*[("stopping", {})] * 60, ("failed", {}))
    heard = Heard()
    clock = iter(range(1000))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr("time.sleep", lambda _: None)
    follow(jobs, RUN, heard.face)
    assert heard.said == ["stopping: because"]


# ---- lines without a newline -------------------------------------------------------------------


def followed(monkeypatch: pytest.MonkeyPatch, *arrivals: tuple[float, bytes], end: float) -> str:
    """Follow a run whose log grows at the given seconds, looked at every second until the end."""
    now = 0.0
    waiting = deque(arrivals)

    class Timed(Scripted):
        def poll(self, name: str, cursors: dict[str, int], wait: float = 0.0) -> Batch:
            nonlocal now
            now += 1.0
            data = b""
            while waiting and waiting[0][0] <= now:
                data += waiting.popleft()[1]
            phase = "running" if now < end else "succeeded"
            self.batches = deque([(phase, {"worker-0": data} if data else {})])
            return super().poll(name, cursors, wait)

    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr("time.sleep", lambda _: None)
    heard = Heard()
    follow(Timed(), RUN, heard.face)
    return heard.written.replace("worker-0 │ ", "")


def test_a_line_that_does_not_end_is_shown_after_five_seconds_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for end, written in [(6, "loading"), (7, "loading …\nloading"), (99, "loading …\nloading")]:
        assert followed(monkeypatch, (1, b"loading"), end=end) == f"{written}\n"


def test_a_long_progress_bar_is_shown_every_five_seconds_and_then_as_it_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bar = [(float(second), b"\r%d/20" % second) for second in range(1, 21)]
    assert followed(monkeypatch, *bar, (20, b"\n"), end=30).splitlines() == [
        "6/20 …", "11/20 …", "16/20 …", "20/20",
    ]  # fmt: skip


def test_lines_that_end_in_time_are_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [(float(second), b" loss\nstep %d" % second) for second in range(30)]
    written = followed(monkeypatch, *steps, (30, b"\n"), end=60)
    assert "…" not in written
    assert len(written.splitlines()) == 31


def test_a_line_that_begins_after_a_silence_has_its_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = followed(monkeypatch, (1, b"one\n"), (30, b"tw"), (34, b"o\n"), end=60)
    assert written == "one\ntwo\n"


def test_a_bar_that_is_cleared_is_not_shown_as_an_empty_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert followed(monkeypatch, (1, b"bar"), (3, b"\r\x1b[K"), end=60) == ""


def test_an_unfinished_line_of_ten_megabytes_costs_no_more_than_it_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chunks = [(float(second), b"y" * 65536) for second in range(1, 161)]
    lines = followed(monkeypatch, *chunks, end=170).splitlines()
    assert len(lines) == 161 // 5 + 1
    assert max(map(len, lines)) < 10_100
