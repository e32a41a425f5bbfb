"""The lifecycle by histories of events, with no process started."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfjob_magic.core.events import (
    DeadlinePassed,
    Finished,
    Noted,
    OrphansEnded,
    StopRequested,
    Supervised,
    TaskExited,
    TaskNotStarted,
    TaskStarted,
    TimedOut,
    decode,
    encode,
)
from tfjob_magic.core.lifecycle import (
    KILL_PATIENCE,
    RULES,
    SUPERVISOR_DIED,
    Ask,
    Finish,
    Kill,
    Start,
    advance,
    alarm,
    begin,
    fold,
)
from tfjob_magic.core.state import OVER

TWO_AND_TWO = {"ps-0": "ps", "ps-1": "ps", "worker-0": "worker", "worker-1": "worker"}
WITH_CHIEF = {"chief-0": "chief", **TWO_AND_TWO, "evaluator-0": "evaluator"}
WORKERS = {"worker-0": "worker", "worker-1": "worker"}
GRACE = 10.0


class History:
    """A run told event by event, with the actions that each one asked for."""

    def __init__(self, tasks=TWO_AND_TWO, grace=GRACE, timeout=None):
        self.first = begin(tasks, grace, timeout)
        self.state = self.first
        self.events = []
        self.now = 100.0

    def tell(self, event):
        self.events.append(event)
        self.state, actions = advance(self.state, event)
        return list(actions)

    def later(self, seconds=1.0):
        self.now += seconds
        return self.now

    def supervised(self):
        return self.tell(Supervised(self.later(), pid=1))

    def started(self, task):
        return self.tell(TaskStarted(self.later(), task=task, pid=1000, attempt=1))

    def running(self):
        self.supervised()
        for task in self.state.tasks:
            self.started(task)
        return self

    def exited(self, task, code=0, number=None, after=1.0):
        code = None if number else code
        return self.tell(TaskExited(self.later(after), task, attempt=1, code=code, signal=number))

    def stop(self, grace=None, after=1.0):
        return self.tell(StopRequested(self.later(after), by="the user", grace=grace))

    def deadline(self):
        self.now = max(self.now, self.state.deadline)
        event = alarm(self.state, self.now)
        assert isinstance(event, DeadlinePassed)
        return self.tell(event)

    def finish(self, actions):
        (finish,) = [action for action in actions if isinstance(action, Finish)]
        return self.tell(Finished(self.later(), phase=finish.phase, cause=finish.cause))


def test_tasks_are_started_one_after_the_other_in_their_order():
    history = History()
    assert history.supervised() == [Start("ps-0", 1)]
    assert history.state.phase == "starting"
    assert history.started("ps-0") == [Start("ps-1", 1)]
    assert history.started("ps-1") == [Start("worker-0", 1)]
    assert history.started("worker-0") == [Start("worker-1", 1)]
    assert history.state.phase == "starting"
    assert history.started("worker-1") == []
    assert history.state.phase == "running"


def test_all_workers_exit_0_and_the_job_succeeded_and_the_ps_are_ended():  # contract E1, E2
    history = History().running()
    assert history.exited("worker-1") == []
    assert history.state.phase == "running"
    assert history.exited("worker-0") == [Ask(("ps-0", "ps-1"))]
    assert history.state.phase == "stopping"
    assert history.exited("ps-0", number=15) == []
    actions = history.exited("ps-1", code=1)
    assert actions == [Finish("succeeded", None)]
    assert history.state.phase == "stopping"
    assert not history.state.over
    history.finish(actions)
    assert history.state.phase == "succeeded"
    assert history.state.cause is None
    assert history.state.reason is None
    assert history.state.failures == ()
    assert history.state.tasks["ps-0"].ended_by_us
    assert not history.state.tasks["worker-0"].ended_by_us


def test_a_ps_that_exits_0_is_no_alarm():  # contract E2
    history = History().running()
    assert history.exited("ps-0") == []
    assert history.exited("ps-1") == []
    assert history.state.phase == "running"
    history.exited("worker-0")
    assert history.exited("worker-1") == [Finish("succeeded", None)]


def test_a_failing_worker_fails_the_job_and_workers_are_asked_before_ps():  # contract E3
    history = History().running()
    assert history.exited("worker-1", code=3) == [Ask(("worker-0",))]
    assert history.state.cause == "worker-1"
    assert history.state.reason == "worker-1 exited with code 3"
    assert history.exited("worker-0", number=15) == [Ask(("ps-0", "ps-1"))]
    history.exited("ps-0", number=15)
    actions = history.exited("ps-1", number=15)
    assert actions == [Finish("failed", "worker-1")]
    history.finish(actions)
    assert history.state.phase == "failed"
    assert history.state.failures == ("worker-1",)


def test_a_dead_ps_fails_the_job_and_is_the_cause():
    history = History().running()
    assert history.exited("ps-1", number=9) == [Ask(("worker-0", "worker-1"))]
    history.exited("worker-0", code=1)
    assert history.exited("worker-1", number=15) == [Ask(("ps-0",))]
    actions = history.exited("ps-0", number=15)
    history.finish(actions)
    assert history.state.phase == "failed"
    assert history.state.reason == "ps-1 was killed by SIGKILL"
    assert history.state.failures == ("ps-1",)
    assert history.state.tasks["worker-0"].ended_by_us


def test_failures_of_one_instant_are_all_kept_the_first_as_the_cause():
    history = History().running()
    history.exited("worker-0", code=1)
    history.exited("ps-1", code=1, after=0.0)
    history.exited("worker-1", code=1, after=0.0)
    history.exited("ps-0", code=1)
    assert history.state.cause == "worker-0"
    assert set(history.state.failures) == {"worker-0", "ps-1", "worker-1"}
    assert history.state.failures[0] == "worker-0"


def test_a_task_that_fails_on_its_own_while_others_are_being_ended_is_not_the_cause():
    history = History().running()
    history.exited("worker-0", code=1)
    history.exited("ps-0", code=1)
    assert history.state.cause == "worker-0"
    assert history.state.failures == ("worker-0",)
    assert not history.state.tasks["ps-0"].ended_by_us


def test_the_chief_is_the_key_task_where_there_is_one():
    history = History(WITH_CHIEF).running()
    assert history.exited("worker-0") == []
    assert history.exited("evaluator-0") == []
    assert history.exited("chief-0") == [Ask(("worker-1",))]
    assert history.exited("worker-1", number=15) == [Ask(("ps-0", "ps-1"))]
    history.exited("ps-0", number=15)
    assert history.exited("ps-1", number=15) == [Finish("succeeded", None)]


def test_all_workers_of_a_chief_may_end_and_the_job_goes_on():
    history = History(WITH_CHIEF).running()
    history.exited("worker-0")
    history.exited("worker-1")
    assert history.state.phase == "running"


@pytest.mark.parametrize("task", ["chief-0", "worker-0", "ps-0", "evaluator-0"])
def test_any_task_that_fails_fails_the_job(task):
    history = History(WITH_CHIEF).running()
    (asked,) = history.exited(task, code=2)
    assert isinstance(asked, Ask)
    assert history.state.outcome == "failed"
    assert history.state.cause == task


def test_the_evaluator_is_ended_with_the_workers():
    history = History({"ps-0": "ps", "worker-0": "worker", "evaluator-0": "evaluator"}).running()
    assert history.exited("worker-0") == [Ask(("evaluator-0",))]
    assert history.exited("evaluator-0", number=15) == [Ask(("ps-0",))]


def test_workers_alone_succeed_without_anything_to_end():
    history = History(WORKERS).running()
    history.exited("worker-0")
    assert history.exited("worker-1") == [Finish("succeeded", None)]


def test_one_grace_is_shared_and_then_all_that_is_left_is_killed():
    history = History(grace=4.0).running()
    history.exited("worker-0", code=1)
    since = history.now
    assert history.state.deadline == since + 4.0
    history.exited("worker-1", number=15, after=3.0)
    assert history.state.deadline == since + 4.0
    assert history.deadline() == [Kill(("ps-0", "ps-1"))]
    history.exited("ps-0", number=9)
    assert history.exited("ps-1", number=9) == [Finish("failed", "worker-0")]


def test_a_worker_that_outlives_the_grace_takes_the_ps_with_it():
    history = History().running()
    history.stop()
    assert history.deadline() == [Kill(("ps-0", "ps-1", "worker-0", "worker-1"))]


def test_what_sigkill_does_not_end_is_not_waited_for_without_end():
    history = History(WORKERS).running()
    history.exited("worker-0", code=1)
    assert history.deadline() == [Kill(("worker-1",))]
    assert history.state.deadline == history.now + KILL_PATIENCE
    actions = history.deadline()
    assert actions == [Finish("failed", "worker-0")]
    assert history.state.notes == ("worker-1 could not be killed and may still be there",)
    assert history.exited("worker-1", number=9) == []
    history.finish(actions)
    assert history.state.phase == "failed"


def test_a_stop_ends_as_stopped_even_when_all_workers_then_exit_0():
    history = History(WORKERS).running()
    assert history.stop() == [Ask(("worker-0", "worker-1"))]
    history.exited("worker-0")
    actions = history.exited("worker-1")
    assert actions == [Finish("stopped", None)]
    history.finish(actions)
    assert history.state.phase == "stopped"
    assert history.state.reason == "stopped by the user"


def test_a_stop_after_all_workers_succeeded_leaves_the_success():
    history = History().running()
    history.exited("worker-0")
    history.exited("worker-1")
    history.stop(grace=0.0)
    history.exited("ps-0", number=9)
    assert history.exited("ps-1", number=9) == [Finish("succeeded", None)]


def test_a_stop_after_a_failure_leaves_the_failure_and_its_cause():
    history = History().running()
    history.exited("ps-0", code=1)
    assert history.stop(grace=0.0) == [Kill(("ps-1", "worker-0", "worker-1"))]
    assert history.state.outcome == "failed"
    assert history.state.reason == "ps-0 exited with code 1"


def test_a_second_stop_shortens_the_grace_and_never_lengthens_it():
    history = History(grace=60.0).running()
    history.stop()
    first = history.now
    assert history.state.deadline == first + 60.0
    history.stop(grace=100.0)
    assert history.state.deadline == first + 60.0
    history.stop(grace=5.0)
    assert history.state.deadline == history.now + 5.0
    history.stop()
    assert history.state.deadline < history.now + 5.0


def test_a_stop_without_grace_kills_now():
    history = History().running()
    assert history.stop(grace=0.0) == [Kill(tuple(TWO_AND_TWO))]
    assert history.stop(grace=0.0) == []


def test_a_job_without_grace_kills_now():
    history = History(WORKERS, grace=0.0).running()
    assert history.exited("worker-0", code=1) == [Kill(("worker-1",))]


def test_a_deadline_that_has_been_moved_meanwhile_does_nothing():
    history = History(WORKERS, grace=5.0).running()
    history.stop()
    history.now += 5.0
    assert history.stop(grace=0.0, after=0.0) == [Kill(("worker-0", "worker-1"))]
    assert history.tell(DeadlinePassed(history.now)) == []
    assert history.state.step == "kill"


def test_the_timeout_fails_the_job_and_is_named():
    history = History(timeout=60.0).running()
    assert alarm(history.state, 101.0 + 59.9) is None
    event = alarm(history.state, 101.0 + 60.0)
    assert event == TimedOut(161.0, after=60.0)
    assert history.tell(event) == [Ask(("worker-0", "worker-1"))]
    assert history.state.outcome == "failed"
    assert history.state.cause is None
    assert history.state.reason == "the job's timeout of 60 s passed"
    assert history.state.deadline == 161.0 + GRACE


def test_without_a_timeout_time_itself_is_no_event():
    history = History().running()
    assert history.state.deadline is None
    assert alarm(history.state, 1e12) is None


def test_a_task_that_cannot_be_started_fails_the_job_and_no_more_are_started():
    history = History()
    history.supervised()
    history.started("ps-0")
    actions = history.tell(
        TaskNotStarted(history.later(), "ps-1", 1, "/no/python: No such file or directory")
    )
    assert actions == [Ask(("ps-0",))]
    assert history.state.reason == (
        "ps-1 could not be started: /no/python: No such file or directory"
    )
    assert history.exited("ps-0", number=15) == [Finish("failed", "ps-1")]


def test_a_stop_while_starting_starts_no_more():
    history = History()
    history.supervised()
    history.started("ps-0")
    assert history.stop() == [Ask(("ps-0",))]
    assert history.started("ps-1") == [Ask(("ps-1",))]


def test_a_task_that_has_started_while_all_are_killed_is_killed():
    history = History()
    history.supervised()
    history.started("ps-0")
    assert history.stop(grace=0.0) == [Kill(("ps-0",))]
    assert history.started("ps-1") == [Kill(("ps-1",))]


def test_a_task_that_fails_while_others_start_fails_the_job():
    history = History()
    history.supervised()
    history.started("ps-0")
    assert history.exited("ps-0", code=1) == [Finish("failed", "ps-0")]


def test_a_worker_that_is_done_while_another_is_not_started_is_no_success():
    history = History(WORKERS)
    history.supervised()
    history.started("worker-0")
    assert history.exited("worker-0") == []
    assert history.state.phase == "starting"


def test_a_run_whose_supervisor_died_is_lost_and_shows_no_running_task():
    history = History().running()
    history.exited("ps-0")
    history.tell(OrphansEnded(history.later(), pids=(7, 8)))
    history.tell(Finished(history.later(), phase="lost"))
    assert history.state.phase == "lost"
    assert history.state.reason == SUPERVISOR_DIED
    assert {task.phase for task in history.state.tasks.values()} == {"exited"}
    assert history.state.tasks["ps-0"].code == 0
    assert history.state.tasks["worker-0"].words == "ended unseen"


def test_a_note_changes_nothing_but_the_notes():
    history = History().running()
    before = history.state
    assert history.tell(Noted(history.later(), note="worker-0 could not be kept to core 7")) == []
    assert history.state == dataclasses.replace(
        before, notes=("worker-0 could not be kept to core 7",)
    )


def test_a_late_exit_of_an_attempt_before_is_no_news():
    history = History().running()
    before = history.state
    assert history.tell(TaskExited(history.later(), "ps-0", attempt=0, code=1, signal=None)) == []
    assert history.state == before


def test_an_event_of_a_task_that_the_plan_does_not_have_is_no_news():
    history = History().running()
    before = history.state
    assert history.exited("worker-7", code=1) == []
    assert history.state == before


def test_a_run_without_a_worker_or_a_chief_is_refused():
    with pytest.raises(ValueError, match="chief or a worker"):
        begin({"ps-0": "ps"}, GRACE, None)


def test_the_table_knows_no_event_of_a_run_that_is_over():
    assert not {phase for phase, _ in RULES} & OVER


# Whatever happens, in whatever order

TASKS = st.sampled_from([*WITH_CHIEF, "stranger-0"])
SPANS = st.floats(0.0, 20.0)
ANY_SPANS = SPANS | st.floats(-5.0, 20.0) | st.sampled_from([float("nan"), float("inf"), -1e308])
HAPPENINGS = st.one_of(
    st.just(Supervised(0.0, pid=1)),
    st.builds(TaskStarted, st.just(0.0), TASKS, st.integers(2, 9), st.integers(1, 2)),
    st.builds(TaskNotStarted, st.just(0.0), TASKS, st.integers(1, 2), st.just("no")),
    st.builds(
        lambda task, attempt, end: TaskExited(0.0, task, attempt, *end),
        TASKS,
        st.integers(1, 2),
        st.sampled_from([(0, None), (1, None), (None, 9), (None, 15)]),
    ),
    st.builds(StopRequested, st.just(0.0), st.just("x"), st.none() | ANY_SPANS),
    st.just(TimedOut(0.0, after=5.0)),
    st.just(DeadlinePassed(0.0)),
    st.just(Noted(0.0, note="n")),
    st.just(OrphansEnded(0.0, pids=(3,))),
)
CLUSTERS = st.sampled_from([TWO_AND_TWO, WITH_CHIEF, WORKERS, {"worker-0": "worker"}])


@settings(deadline=None)
@given(
    CLUSTERS, ANY_SPANS, st.none() | ANY_SPANS, st.lists(st.tuples(HAPPENINGS, SPANS), max_size=60)
)
def test_whatever_happens_a_run_ends_once_and_starts_nothing_when_it_is_stopping(
    tasks, grace, timeout, happenings
):
    state = begin(tasks, grace, timeout)
    now = 0.0
    finishes = []
    for happening, span in happenings:
        now += span
        before = state
        state, actions = advance(state, dataclasses.replace(happening, time=now))
        starts = [action for action in actions if isinstance(action, Start)]
        if state.phase == "stopping":
            assert not starts
            assert state.deadline is not None
        assert len(starts) <= 1
        finishes += [action for action in actions if isinstance(action, Finish)]
        assert len(finishes) <= 1
        order = ["pending", "starting", "running", "stopping"]
        assert order.index(before.phase) <= order.index(state.phase)
        if before.outcome is not None:
            assert (state.outcome, state.cause) == (before.outcome, before.cause)
        if state.cause is not None:
            assert state.cause in state.failures
        signalled = [n for a in actions if isinstance(a, (Ask, Kill)) for n in a.tasks]
        assert all(state.tasks[name].phase == "running" for name in signalled)
        if any(isinstance(action, Ask) for action in actions):
            roles = {state.tasks[name].role for name in signalled}
            others = [t for t in state.tasks.values() if t.phase == "running" and t.role != "ps"]
            assert "ps" not in roles or not others


@settings(deadline=None)
@given(CLUSTERS, ANY_SPANS, st.none() | ANY_SPANS, st.lists(HAPPENINGS, max_size=20), SPANS)
def test_an_alarm_always_changes_something(tasks, grace, timeout, happenings, span):
    state = begin(tasks, grace, timeout)
    for now, happening in enumerate(happenings):
        state, _ = advance(state, dataclasses.replace(happening, time=float(now)))
    now = len(happenings) + span
    for _ in range(4):
        event = alarm(state, now)
        if event is None:
            return
        after, _ = advance(state, event)
        assert after != state
        state = after
        now += 100.0
    pytest.fail("time never stops being an event")


def test_a_stop_whose_grace_is_not_a_number_has_the_jobs_and_can_be_hurried():
    history = History(WORKERS).running()
    history.stop(grace=float("nan"))
    assert history.state.deadline == history.now + GRACE
    assert history.stop(grace=float("nan")) == []
    assert history.state.deadline < history.now + GRACE
    assert history.stop(grace=0.0) == [Kill(("worker-0", "worker-1"))]


@pytest.mark.parametrize("timeout", [float("nan"), float("inf"), float("-inf")])
def test_a_timeout_that_is_not_finite_is_none(timeout):
    state, _ = advance(begin(WORKERS, GRACE, timeout), Supervised(1.0, pid=1))
    assert state.timeout is None
    assert state.deadline is None


@settings(deadline=None)
@given(CLUSTERS, st.sampled_from(["succeeded", "failed", "stopped", "lost"]), st.data())
def test_a_run_that_is_over_stays_as_it_is(tasks, phase, data):
    state, _ = advance(begin(tasks, GRACE, None), Finished(1.0, phase=phase))
    for event in data.draw(st.lists(HAPPENINGS | st.just(Finished(2.0, phase="failed")))):
        assert advance(state, event) == (state, ())


class World:
    """A small world: tasks end when they like and may ignore SIGTERM, but not SIGKILL."""

    def __init__(self, state, draw):
        self.state = state
        self.draw = draw
        self.now = 0.0
        self.running = {}
        self.queue = [Supervised(self.now, pid=1)]
        self.log = []

    def turn(self):
        if not self.queue:
            self.now += 1.0
            self.happen()
        for event in self.queue[:1]:
            self.queue.pop(0)
            self.log.append(event)
            self.state, actions = advance(self.state, event)
            for action in actions:
                self.do(action)

    def happen(self):
        choice = self.draw(st.sampled_from(["nothing", "success", "failure", "stop"]))
        event = alarm(self.state, self.now)
        if choice == "stop":
            event = StopRequested(self.now, by="x", grace=3.0)
        elif choice != "nothing" and self.running:
            self.end(next(iter(self.running)), code=0 if choice == "success" else 1)
        if event is not None and not self.queue:
            self.queue.append(event)

    def do(self, action):
        if isinstance(action, Start):
            self.running[action.task] = action.attempt
            self.queue.append(TaskStarted(self.now, action.task, 5, action.attempt))
        elif isinstance(action, (Ask, Kill)):
            for name in action.tasks:
                if isinstance(action, Kill) or self.draw(st.booleans()):
                    self.end(name, number=9 if isinstance(action, Kill) else 15)
        elif isinstance(action, Finish):
            assert not self.running
            self.queue.append(Finished(self.now + 0.6, action.phase, action.cause))

    def end(self, name, code=None, number=None):
        if name in self.running:
            attempt = self.running.pop(name)
            self.queue.append(TaskExited(self.now + 0.5, name, attempt, code, number))


@settings(deadline=None)
@given(CLUSTERS, st.none() | st.floats(0.1, 30.0), st.data())
def test_a_run_comes_to_an_end_unless_nobody_ends_its_tasks_and_readers_see_the_same(
    tasks, timeout, data
):
    world = World(begin(tasks, GRACE, timeout), data.draw)
    for _ in range(200):
        if world.state.over:
            break
        world.turn()
    assert world.state.over or (world.state.phase == "running" and timeout is None)
    lines = [encode(event) for event in world.log]
    assert fold(begin(tasks, GRACE, timeout), map(decode, lines)) == world.state
