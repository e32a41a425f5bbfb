import json
import math
from contextlib import suppress
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfjob_magic.core import events, lifecycle

FINITE = st.floats(allow_nan=False, allow_infinity=False)
st.register_type_strategy(float, FINITE)
EVERY_KIND = st.one_of([st.from_type(kind) for kind in events.KINDS.values()])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
FIELDS = sorted({field.name for kind in events.KINDS.values() for field in fields(kind)})
LIKELY = st.sampled_from(
    ["w", "failed", "lost", 0, 1, -9, 10**400, 2**63, 1.5, None, [], [3], ["w"], {}, math.nan, True]
)


@settings(deadline=None)
@given(EVERY_KIND)
def test_an_event_survives_its_line(event):
    line = events.encode(event)
    assert "\n" not in line
    assert "\r" not in line
    assert events.decode(line) == event


def test_the_kind_is_the_first_thing_on_a_line():
    line = events.encode(events.Created(1.5, run="mnist-1"))
    assert line == '{"kind": "created", "time": 1.5, "run": "mnist-1", "engine": "local"}'


def test_a_kind_of_a_later_version_is_passed_over():
    assert events.decode('{"kind": "task_restarted", "time": 1.0, "task": "ps-0"}') is None


def test_a_field_of_a_later_version_is_left_out():
    line = '{"kind": "supervised", "time": 1.0, "pid": 7, "host": "a"}'
    assert events.decode(line) == events.Supervised(1.0, pid=7)


def test_a_field_that_has_a_default_may_be_absent():
    line = '{"kind": "task_exited", "time": 1, "task": "ps-0", "attempt": 1, "code": 0, '
    assert events.decode(line + '"signal": null}') == events.TaskExited(1, "ps-0", 1, 0, None)


@pytest.mark.parametrize(
    "line",
    [
        *["", "{", "7", "[]", "null", '{"time": 1}', '{"kind": "created"}', '{"kind": []}'],
        '{"kind": "orphans_ended", "time": 1, "pids": 5}',
        '{"kind": "orphans_ended", "time": 1, "pids": ["5"]}',
        '{"kind": "finished", "time": "x", "phase": "failed"}',
        '{"kind": "finished", "time": NaN, "phase": "failed"}',
        '{"kind": "finished", "time": Infinity, "phase": "failed"}',
        '{"kind": "finished", "time": 1' + "0" * 400 + ', "phase": "failed"}',
        '{"kind": "finished", "time": true, "phase": "failed"}',
        '{"kind": "finished", "time": 1, "phase": ["a"]}',
        '{"kind": "task_exited", "time": 1, "task": ["w"], "attempt": 1, "code": 0, "signal": 1}',
        '{"kind": "task_exited", "time": 1, "task": "w", "attempt": 1, "code": 0.5, "signal": 1}',
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_a_line_that_is_no_event_is_a_value_error(line):
    with pytest.raises(ValueError, match=r"."):
        events.decode(line)


@settings(deadline=None)
@given(ANYTHING)
def test_any_json_is_an_event_or_a_value_error(value):
    with suppress(ValueError):
        events.decode(json.dumps(value))


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(events.KINDS)),
            st.fixed_dictionaries(dict.fromkeys(FIELDS, LIKELY)),
        ),
        max_size=6,
    )
)
def test_whatever_is_read_as_an_event_can_be_folded(lines):
    state = lifecycle.begin({"w": "worker"}, 1.0, None)
    for kind, values in lines:
        with suppress(ValueError):
            event = events.decode(json.dumps({**values, "kind": kind}))
            if event is not None:
                state = fold_without_value_errors(state, event)
    assert set(state.tasks) == {"w"}


def fold_without_value_errors(state, event):
    """Fold, where a ValueError is a fault and not a refusal."""
    try:
        return lifecycle.fold(state, [event])
    except ValueError as error:
        raise AssertionError(event) from error


def test_every_kind_has_a_name_of_its_own():
    assert all(cls.kind == kind for kind, cls in events.KINDS.items())
    assert json.loads(events.encode(events.DeadlinePassed(0.0))) == {
        "kind": "deadline_passed",
        "time": 0.0,
    }
