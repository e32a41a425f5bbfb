"""What logs say, on logs that real runs wrote (tests/data/logs/make.py makes them again)."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_magic.core import hints
from tfjob_magic.core.cause import MOST_LINES, TAIL, Explanation, Failure, alike, explain, first

LOGS = Path(__file__).parent / "data" / "logs"
REFUSES = "--cluster-flags auto"
V1 = "`import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()`"
PYTHON_2 = "this is Python 2, and /opt/py/bin/python is Python 3"
TF_KERAS = "install tf_keras for /opt/py/bin/python and start with --env TF_USE_LEGACY_KERAS=1"

# log: what the error's line holds, what the hint holds
SAID: dict[str, tuple[str | None, str | None]] = {
    "argparse_unknown": ("train.py: error: unrecognized arguments: --ps_hosts", REFUSES),
    "argparse_required": (
        "train.py: error: the following arguments are required: --task_index",
        "--cluster-flags all",
    ),
    "argparse_own": ("unrecognized arguments: --epoch 5", "does not declare --epoch:"),
    "absl_unknown": ("Unknown command line flag 'ps_hosts'", REFUSES),
    "absl_unparsed": ("UnparsedFlagAccessError", "app.run(main)"),
    "absl_log_dir": ("DuplicateFlagError: The flag 'log_dir'", "absl has a flag --log_dir"),
    "click_unknown": ("No such option '--ps_hosts'", REFUSES),
    "optparse_unknown": ("no such option: --task_index", REFUSES),
    "getopt_unknown": ("option --ps_hosts not recognized", REFUSES),
    "argv_int": ("invalid literal for int()", "--cluster-flags none"),
    "python2_print": ("SyntaxError: Missing parentheses in call to 'print'", PYTHON_2),
    "python2_except": ("SyntaxError: multiple exception types", PYTHON_2),
    "python2_name": ("NameError: name 'xrange'", PYTHON_2),
    "python2_module": ("No module named 'urllib2'", PYTHON_2),
    "module_missing": (
        "No module named 'horovodx'",
        "horovodx is not installed for /opt/py/bin/python",
    ),
    "relative_import": ("attempted relative import", "`import model` instead"),
    "input_closed": ("EOFError: EOF when reading a line", "no keyboard"),
    "chained": ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'", None),
    "chained_from": ("KeyError: 'epochs'", None),
    "thread": ("ValueError: row 7 has 3 columns", None),
    "cancelled": ("ValueError: row 7 has 3 columns", None),
    "handled": ("AbortedError: the session is gone", "the end of another task"),
    "silent": (None, None),
    "progress": ("ValueError: loss is nan", None),
    "memory": ("MemoryError", "out of memory"),
    "abort": ("Check failed: size > 0 (0 vs. 0)", None),
    "terminate": ("terminate called after throwing an instance of", "out of memory"),
    "segfault": ("Fatal Python error: Segmentation fault", None),
    "download": ("URLError: <urlopen error", "a download failed"),
    "tf_app": ("module 'tensorflow' has no attribute 'app'", V1),
    "tf_contrib": ("no attribute 'contrib'", "tf.contrib ended with TensorFlow 1"),
    "tf_examples": ("No module named 'tensorflow.examples'", "tf.keras.datasets.mnist"),
    "tf_server": ("has no attribute 'Server'", V1),
    "tf_config_proto": ("has no attribute 'ConfigProto'", V1),
    "tf_placeholder": ("not compatible with eager execution", V1),
    "tf_session": ("The Session graph is empty", V1),
    "tf_layers": ("`dense` is not available with Keras 3", TF_KERAS),
    "adam_lr": ("Argument(s) not recognized: {'lr': 0.1}", "`learning_rate`"),
    "tf_hdfs": ("scheme 'hdfs' not implemented", "HDFS cannot be reached"),
    "tf_download": ("Exception: URL fetch failure on", "a download failed"),
    "tf_memory": ("ResourceExhaustedError", "out of memory"),
    "tf_port": ("UnknownError: Could not start gRPC server", "port 59907 is taken"),
    "tf_port_quiet": ("UnknownError: Could not start gRPC server", "the task's port is taken"),
    "tf_cluster": ('Task 1 was not defined in job "ps"', "has no ps 1"),
    "keras_per_replica-chief": ("Attempt to convert a value (PerReplica", TF_KERAS),
    "keras_coordinator-chief": ("ClusterCoordinator.create_per_worker_dataset", TF_KERAS),
    "coordinator-chief": (
        "InvalidArgumentError: Graph execution error: assertion failed: [the loss is negative.",
        None,
    ),
    "dead_ps-ps": ("OSError: the disk of the parameters is gone", None),
    "dead_ps-worker": (
        "UnavailableError: Graph execution error: From /job:ps/replica:0/task:0:",
        "the end of another task",
    ),
}
DERIVED = {"dead_ps-worker", "handled"}


def told(name: str) -> Explanation:
    return explain((LOGS / f"{name}.log").read_bytes(), "/opt/py/bin/python")


def test_every_log_has_its_line_here():
    assert {path.stem for path in LOGS.glob("*.log")} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_a_log_gives_its_own_error_and_what_would_help(name):
    error, hint = SAID[name]
    explanation = told(name)
    assert (explanation.error is None) == (error is None)
    assert (error or "") in (explanation.error or "")
    assert (explanation.hint is None) == (hint is None)
    assert (hint or "") in (explanation.hint or "")
    assert explanation.derived == (name in DERIVED)


@pytest.mark.parametrize("name", SAID)
def test_the_lines_worth_reading_are_few_and_the_users(name):
    lines = told(name).lines
    assert 1 <= len(lines) <= MOST_LINES
    shown = "\n".join(lines)
    assert "oneDNN" not in shown
    assert "WARNING: All log messages" not in shown
    if name != "segfault":
        assert "site-packages" not in shown


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("chained", '  File "/home/ana/user-job-dir/code/train.py", line 3, in load'),
        ("chained", "RuntimeError: no data"),
        ("coordinator-chief", '  File "/home/ana/user-job-dir/code/train.py", line 16, in step'),
        ("module_missing", "    import horovodx.tensorflow as hvd"),
        ("tf_port", '    server = tf.train.Server(cluster, job_name="ps", task_index=0)'),
        (
            "argparse_unknown",
            "usage: train.py [-h] [--job_name JOB_NAME] [--task_index TASK_INDEX]",
        ),
        ("silent", "epoch 2"),
        ("terminate", "  what():  std::bad_alloc"),
    ],
)
def test_the_line_that_explains_is_among_those_shown(name, line):
    assert line in told(name).lines


def test_every_hint_is_proven_by_a_log():
    given = {told(name).hint for name in SAID}
    for words in hints.TABLE.values():
        pattern = re.escape(words.replace("{python}", "/opt/py/bin/python"))
        pattern = re.sub(r"\\\{\w+\\\}", r".+", pattern)
        assert any(re.fullmatch(pattern, hint) for hint in given if hint), words


def test_an_error_far_above_the_end_is_found():
    log = (LOGS / "module_missing.log").read_bytes()
    noise = b"W0000 00:00:1796136803.442609   17560 local_rendezvous.cc:412] aborting\n" * 110
    assert "horovodx" in (explain(log + noise).error or "")


def test_another_threads_line_inside_a_traceback_does_not_end_it():
    log = (LOGS / "chained.log").read_text()
    torn = log.replace(
        "    with open(path)", "W0000 00:00:1.5   17 a.cc:1] slow\n    with open(path)", 1
    )
    assert torn != log
    assert "data/train.csv" in (explain(torn.encode()).error or "")


def test_an_ignored_exception_is_not_the_cause():
    log = b"""Exception ignored in: <function Session.__del__ at 0x7f>
Traceback (most recent call last):
  File "/home/ana/code/train.py", line 9, in __del__
    self.close()
AttributeError: 'NoneType' object has no attribute 'close'
"""
    assert explain(log).error is None


def test_a_name_that_tensorflow_1_does_not_have_is_no_reason_to_blame_tensorflow_1():
    log = (LOGS / "tf_app.log").read_text().replace("'app'", "'Varable'")
    assert explain(log.encode()).hint is None


def test_a_required_option_of_click_is_not_called_unknown():
    log = b"Usage: train.py [OPTIONS]\n\nError: Missing option '--task_index'.\n"
    assert (explain(log).hint or "").startswith("the script requires --task_index")


def test_a_cut_in_the_middle_of_a_traceback_is_survived():
    log = (LOGS / "coordinator-chief.log").read_bytes()
    for start in range(0, len(log), 97):
        explanation = explain(log[start:])
        assert len(explanation.lines) <= MOST_LINES


@pytest.mark.parametrize(
    "log",
    [
        b"x" * 10_000_000,
        b"\b" * 250_000 + b"\n" + b"1/10\b\b\b\b" * 100_000,
        b"\r" * 1_000_000,
        bytes(range(256)) * 40_000,
        b"Traceback (most recent call last):\n" * 10_000,
        b'  File "a", line 1\n' * 20_000,
        b'  File "' * 100_000,
        b'Traceback (most recent call last):\n  File "a", line 1\nE: a\n\n' * 5_000,
        b"a: error: " * 50_000,
        b"a: error: \n" * 30_000,
        b"\x1b[" + b"0;" * 1_000_000,
        b"a" * 300 + b": error" + b":" * 1_000_000,
        b"Error: " + b"--ps_hosts " * 100_000,
        b"Usage: \nError: " + b"unrecognized arguments:" * 100_000,
        b'Traceback (most recent call last):\n  File "a", line 1\nE: '
        + b"resolved for 'a:1'\n" * 100_000,
        b"E" + b"0" * 100_000,
        b"." * 1_000_000 + b"\n" + b"a." * 1_000_000,
    ],
    ids=range(17),
)
def test_a_hostile_log_takes_no_more_than_a_moment(log):
    # What is not linear would not end within the suite's timeout.
    for tail in (log, log[-TAIL:]):
        assert len(explain(tail).lines) <= MOST_LINES


PIECES = st.sampled_from(
    [
        b"Traceback (most recent call last):\n",
        b'  File "/home/ana/train.py", line 1, in <module>\n',
        b'  File "/usr/lib/python3.11/x.py", line 1, in f\n',
        b"    x = 1\n",
        b"ValueError: a\n",
        b"CancelledError\n",
        b"\nDuring handling of the above exception, another exception occurred:\n\n",
        b"usage: x\n",
        b"x: error: y\n",
        b"\xff\x00\x1b[31m\r\b\n",
        "é".encode(),
    ]
)


@given(st.lists(PIECES | st.binary(max_size=20)).map(b"".join))
def test_whatever_a_log_holds_the_explanation_can_be_shown(log):
    explanation = explain(log)
    assert len(explanation.lines) <= MOST_LINES
    for text in (*explanation.lines, explanation.error or ""):
        assert len(text) <= 400
        assert not [c for c in text if unicodedata.category(c) == "Cc" and c != "\t"]
        text.encode()


def failure(task: str, time: float, error: str | None, *, derived: bool = False) -> Failure:
    return Failure(task, time, Explanation(error, (), None, derived))


def test_the_earliest_failure_is_the_cause():
    failures = [failure("worker-1", 5.0, "B"), failure("ps-0", 3.0, "A")]
    assert first(failures) == (failures[1], ())


def test_an_own_error_comes_before_a_derived_one_of_the_same_second():
    failures = [
        failure("worker-0", 3.0, "UnavailableError", derived=True),
        failure("ps-1", 3.9, "OSError: disk"),
        failure("worker-1", 9.0, "ValueError: later"),
    ]
    assert first(failures)[0].task == "ps-1"


def test_an_own_error_long_after_a_derived_one_is_not_the_cause():
    failures = [
        failure("worker-0", 3.0, "UnavailableError", derived=True),
        failure("worker-1", 4.5, "ValueError: later"),
    ]
    assert first(failures)[0].task == "worker-0"


def test_a_task_that_died_without_a_word_comes_before_one_that_lost_its_peer():
    failures = [
        failure("worker-0", 3.0, "UnavailableError: Socket closed", derived=True),
        failure("ps-0", 3.2, None),
    ]
    assert first(failures) == (failures[1], ())


def test_the_same_error_of_four_tasks_is_told_once():
    names = ["ps-0", "ps-1", "worker-0", "worker-1"]
    failures = [
        failure(
            name,
            1.0 + i / 100,
            f"UnknownError: no server at 127.0.0.1:{5000 + i} for /job:ps/replica:0/task:{i}"
            f" <object at 0x7f{i}a> pid {100 + i} at 12:00:0{i}",
        )
        for i, name in enumerate(names)
    ]
    assert first(failures) == (failures[0], ("ps-1", "worker-0", "worker-1"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("KeyError: 'a'", "KeyError: 'b'"),
        ("ValueError: 3 columns", "ValueError: 4 columns"),
        ("No module named 'x0'", "No module named 'x1'"),
    ],
)
def test_errors_that_differ_in_what_they_say_are_not_the_same(one, other):
    assert alike(one) != alike(other)


def test_a_refused_line_of_two_ports_is_the_same_error_in_both_tasks():
    one = told("argparse_unknown").error
    assert one is not None
    other = re.sub(r"\d{5}", "61234", one)
    assert one != other
    assert alike(one) == alike(other)
