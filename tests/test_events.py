import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfjob_magic.core import events

EVERY_KIND = st.one_of([st.from_type(kind) for kind in events.KINDS.values()])


def same(left, right):
    """NaN is no time, but the writer may not lose it silently either."""
    return repr(left) == repr(right)


@settings(deadline=None)
@given(EVERY_KIND)
def test_an_event_survives_its_line(event):
    line = events.encode(event)
    assert "\n" not in line
    assert "\r" not in line
    assert same(events.decode(line), event)


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


@pytest.mark.parametrize("line", ["", "{", "7", "[]", "null", '{"time": 1}', '{"kind": "created"}'])
def test_a_line_that_is_no_event_is_a_value_error(line):
    with pytest.raises(ValueError, match=r"."):
        events.decode(line)


def test_every_kind_has_a_name_of_its_own():
    assert all(cls.kind == kind for kind, cls in events.KINDS.items())
    assert json.loads(events.encode(events.DeadlinePassed(0.0))) == {
        "kind": "deadline_passed",
        "time": 0.0,
    }
