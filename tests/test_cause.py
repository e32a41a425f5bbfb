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
from tfjob_magic.service import causes

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
    "chained": (
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'",
        "../../data/train.csv",
    ),
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
        "UnavailableError: Graph execution error: recvmsg:Connection reset by peer",
        "the end of another task",
    ),
    "handled_exit": (None, "earlier in its log: ZeroDivisionError: division by zero"),
    "handled_quit": (None, "earlier in its log: ZeroDivisionError: division by zero"),
    "handled_segfault": (None, "earlier in its log: ZeroDivisionError: division by zero"),
    "handled_kill": (None, "earlier in its log: ZeroDivisionError: division by zero"),
    "teardown_terminate": ("ValueError: bad shape", None),
    "teardown_check": ("ValueError: bad shape", None),
    "group": ("ValueError: row 7 has 3 columns", None),
    "group_nested": ("KeyError: 'a'", None),
    "usage_lines": (None, None),
    "name_of_notebook": ("NameError: name 'model'", "define or import `model`"),
    "name_display": ("NameError: name 'display'", "display is IPython's"),
    "name_ipython": ("NameError: name 'get_ipython'", "get_ipython is IPython's"),
    "name_foreign": ("Größenfehler: drei Spalten", None),
    "name_local": ("main.<locals>.BadRow: row 7", None),
    "tf_file": ("data/train.csv; No such file or directory", "../../data/train.csv"),
    "tf_graph": (
        "InvalidArgumentError: Graph execution error: Matrix size-incompatible: In[0]: [1,3]",
        None,
    ),
}
# How those ended that did not exit with 1.
CODES = {
    "argparse_unknown": 2,
    "argparse_required": 2,
    "argparse_own": 2,
    "click_unknown": 2,
    "optparse_unknown": 2,
    "silent": 3,
    "handled_exit": 4,
    "usage_lines": 2,
}
SIGNALS = {
    "abort": 6,
    "terminate": 6,
    "segfault": 11,
    "handled_segfault": 11,
    "handled_kill": 9,
    "teardown_terminate": 6,
    "teardown_check": 6,
}
DERIVED = {"dead_ps-worker", "handled"}


def told(name: str) -> Explanation:
    log = (LOGS / f"{name}.log").read_bytes()
    signal = SIGNALS.get(name)
    code = CODES.get(name, 1) if signal is None else None
    return explain(log, "/opt/py/bin/python", code=code, signal=signal)


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
        ("handled_exit", "ERROR: dataset missing"),
        ("handled_quit", "no GPU: give --data"),
        ("handled_segfault", "epoch 29"),
        ("handled_kill", "epoch 29"),
        ("thread", "no more data"),
        ("group", '    raise ValueError("row 7 has 3 columns")'),
        ("tf_graph", '  File "/home/ana/user-job-dir/code/train.py", line 4, in step'),
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


RAISED = b"""Traceback (most recent call last):
  File "/home/ana/code/train.py", line 1, in <module>
    1 / 0
ZeroDivisionError: division by zero
"""


@pytest.mark.parametrize(
    ("code", "signal", "after", "own"),
    [
        (1, None, b"", True),
        (1, None, b"cannot go on\n", True),
        (1, None, b"loading\nstep 1 loss 0.5\nstep 2 loss 0.4\nstep 3 loss 0.3\nno data\n", False),
        (1, None, b"a line\n" * 21, False),
        (1, None, b"W0000 00:00:1.5   17 a.cc:1] aborting\n" * 110, True),
        (1, None, b"WARNING:tensorflow:closing 1\n" * 110, True),
        (3, None, b"", True),
        (3, None, b"no data\n", False),
        (None, 9, b"", False),
        (None, 15, b"", False),
        (137, None, b"", False),
        (None, 11, b"", True),
        (None, 11, b"step 1\n", False),
        (134, None, b"terminate called without an active exception\nAborted\n", True),
        (None, 6, b"step 1\nterminate called without an active exception\n", True),
        (None, 6, b"step 1\nterminate called after throwing an instance of 'E'\n", False),
        (None, None, b"", True),
        (None, None, b"step 1\n" * 5, False),
    ],
)
def test_an_exception_is_the_error_where_the_task_ended_of_it(code, signal, after, own):
    explanation = explain(b"epoch 0\n" + RAISED + after, code=code, signal=signal)
    assert (explanation.error == "ZeroDivisionError: division by zero") == own
    last = after.decode().splitlines()[-1:]
    assert own or not last or last[0] in explanation.lines
    shown = "ZeroDivisionError: division by zero" in (*explanation.lines, explanation.hint or "")
    assert own or shown or "earlier in its log: ZeroDivisionError" in (explanation.hint or "")


def test_a_daemon_threads_end_at_shutdown_does_not_hide_the_exception():
    after = b"""Fatal Python error: _enter_buffered_busy: could not acquire lock for \
<_io.BufferedWriter name='<stdout>'> at interpreter shutdown, possibly due to daemon threads
Python runtime state: finalizing (tstate=0x0000000000a8f0d8)

Current thread 0x00007f0d1c3b9740 (most recent call first):
  <no Python frame>
"""
    explanation = explain(RAISED + b"step 7\n" + after, signal=6)
    assert explanation.error == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    "after",
    [
        b"x" * 1_000_000 + b"\n",
        b"W0000 00:00:1.5   17 a.cc:1] aborting\n" * 30_000,
        b"\n" * 400_000,
        b"",
    ],
)
def test_a_traceback_far_before_the_end_is_read(tmp_path, after):
    log = tmp_path / "worker-0.log"
    message = RAISED.rstrip(b"\n")
    for before in range(TAIL - len(message), TAIL, 40):
        log.write_bytes(b"epoch 0\n" * 100 + b"-" * before + b"\n" + message + after)
        found = explain(causes.read_end(log, 4 * TAIL + len(message)), code=1).error or ""
        assert found.startswith("ZeroDivisionError: division by zero")


def test_no_more_of_a_log_is_read_than_allowed(tmp_path):
    log = tmp_path / "worker-0.log"
    log.write_bytes(RAISED + b"step\n" * 1_000_000)
    assert causes.read_end(log, 4 * TAIL) == (b"step\n" * 1_000_000)[-TAIL:]
    assert causes.read_end(tmp_path / "none.log", TAIL) == b""


def test_an_interrupt_that_nobody_caught_is_the_error():
    log = RAISED.replace(b"ZeroDivisionError: division by zero", b"KeyboardInterrupt")
    assert explain(log, signal=2).error == "KeyboardInterrupt"


def test_a_fatal_line_long_before_the_end_is_not_the_error():
    fatal = (LOGS / "abort.log").read_bytes()
    assert explain(fatal + b"epoch 1\nepoch 2\nepoch 3\n", signal=11).error is None
    assert explain(fatal, code=1).error is None


@pytest.mark.parametrize(
    ("log", "code"),
    [
        (b"usage: 83% of disk\nepoch 1: loss 2\nmodel: error: 0.25\n", 2),
        (b"usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --x\n", 1),
        (b"usage: train.py [-h]\ntrain.py: error: a\ngoing on\n", 2),
        (b"usage: other.py [-h]\ntrain.py: error: a\n", 2),
    ],
)
def test_lines_that_only_look_like_a_refused_command_line_are_not_the_error(log, code):
    assert explain(log, code=code).error is None


def test_a_cancellation_long_after_a_handled_exception_does_not_come_from_it():
    log = (LOGS / "cancelled.log").read_bytes()
    at = log.rindex(b"Traceback")
    between = b"epoch 1\nepoch 2\nepoch 3\n"
    assert "CancelledError" in (explain(log[:at] + between + log[at:], code=1).error or "")


@pytest.mark.parametrize("prefix", [b"[rank0] ", b"[rank0]: ", b"[1,0]<stderr>:", b"worker | "])
def test_a_prefix_of_every_line_does_not_hide_a_traceback(prefix):
    for name in ("chained", "group"):
        log = (LOGS / f"{name}.log").read_bytes()
        behind = b"".join(prefix + line for line in log.splitlines(keepends=True))
        plain, shown = explain(log, code=1), explain(b"epoch 1\n" + behind, code=1)
        assert (shown.error, shown.hint) == (plain.error, plain.hint)
        assert shown.lines == plain.lines


def test_the_reason_of_a_graph_error_is_found_behind_older_tensorflows_places():
    log = b"""Traceback (most recent call last):
  File "/home/ana/code/train.py", line 9, in <module>
    step(a, b)
tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:

Detected at node 'MatMul' defined at (most recent call last):
    File "/home/ana/code/train.py", line 9, in <module>
      step(a, b)
    File "/home/ana/code/train.py", line 6, in step
      return tf.matmul(a, b)
Node: 'MatMul'
Detected at node 'MatMul' defined at (most recent call last):
    File "/home/ana/code/train.py", line 6, in step
      return tf.matmul(a, b)
Node: 'MatMul'
Matrix size-incompatible: In[0]: [1,3], In[1]: [2,1]
\t [[{{node MatMul}}]] [Op:__inference_step_12]
"""
    explanation = explain(log, code=1)
    assert (explanation.error or "").endswith(
        "error: Matrix size-incompatible: In[0]: [1,3], In[1]: [2,1]"
    )
    assert "      return tf.matmul(a, b)" in explanation.lines
    assert not [line for line in explanation.lines if line.startswith("Node:")]


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
