"""Which cluster flags a program gets, held against what the real libraries do."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap

import pytest
from flag_programs import CASES, Case
from hypothesis import given
from hypothesis import strategies as st

from tfjob_magic.core.flags import ALL, choose

VALUES = {
    "--task_index": "0",
    "--ps_hosts": "127.0.0.1:5000,127.0.0.2:5001",
    "--PS_hosts": "127.0.0.1:5000,127.0.0.2:5001",
    "--worker_hosts": "127.0.0.1:5002,127.0.0.2:5003",
    "--job_name": "worker",
    "--task_name": "worker",
}


def sources(case: Case) -> dict[str, str]:
    return {"train.py": textwrap.dedent(case.source), **dict(case.modules)}


def arguments(flags: list[str]) -> list[str]:
    return [part for flag in flags for part in (flag, VALUES[flag])]


@pytest.mark.parametrize("name", CASES)
def test_a_program_gets_the_flags_that_it_takes(name):
    case = CASES[name]
    chosen = choose("auto", "train.py", sources(case))
    assert list(chosen.passed) == case.passed.split()
    left_out = [flag for flag in ALL.passed if flag.lower() not in case.passed.lower().split()]
    if left_out:
        (note,) = chosen.notes
        assert note.startswith("train.py (")
        assert all(flag in note for flag in left_out)
        assert "ModelArts passes" in note
        assert "--cluster-flags all" in note
        assert "\n" not in note
    else:
        assert chosen.notes == ()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.tensorflow if case.needs == "tensorflow" else ())
        for name, case in CASES.items()
    ],
)
def test_the_real_library_takes_what_is_passed_and_refuses_what_is_left_out(name, tmp_path):
    case = CASES[name]
    if case.needs and importlib.util.find_spec(case.needs) is None:
        pytest.skip(f"{case.needs} is not installed")
    for path, text in sources(case).items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)

    def run(flags: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "train.py", *arguments(flags)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    passed = case.passed.split()
    done = run(passed)
    assert done.returncode == 0, done.stderr
    left_out = [flag for flag in ALL.passed if flag.lower() not in case.passed.lower().split()]
    for flag in left_out[:1] if case.needs == "tensorflow" else left_out:
        done = run([flag, *passed])
        assert done.returncode != 0, f"{flag} would have been taken"
        assert "ModuleNotFoundError" not in done.stderr


def test_none_passes_nothing_and_says_nothing():
    assert choose("none", "train.py", {"train.py": "print(1)"}).passed == ()


@pytest.mark.parametrize("name", CASES)
def test_all_passes_all_whatever_the_parser_says(name):
    case = CASES[name]
    chosen = choose("all", "train.py", sources(case))
    assert [flag.lower() for flag in chosen.passed[:4]] == list(ALL.passed)
    assert chosen.notes == ()
    assert ("--PS_hosts" in chosen.passed) == ("--PS_hosts" in case.passed)
    assert ("--task_name" in chosen.passed) == ("--task_name" in case.passed)


def test_python_2_gets_all_four_and_a_note():
    chosen = choose("auto", "train.py", {"train.py": "print 'a'\n"})
    assert chosen.passed == ALL.passed
    assert "could not be read as Python 3" in chosen.notes[0]


def test_a_boot_file_that_is_not_there_gets_all_four():
    assert choose("auto", "train.py", {}) == ALL


def test_a_module_that_cannot_be_read_does_not_matter():
    source = {"train.py": CASES["argparse"].source, "old.py": "print 'a'\n"}
    assert choose("auto", "train.py", source).passed == ("--task_index", "--job_name")


def test_a_reader_by_position_is_told_what_comes_first():
    chosen = choose("auto", "train.py", {"train.py": "import sys\nindex = int(sys.argv[1])\n"})
    assert chosen.passed == ALL.passed
    assert "--cluster-flags none" in chosen.notes[0]


def test_names_that_are_computed_are_called_a_guess():
    chosen = choose("auto", "train.py", sources(CASES["argparse computed"]))
    assert "seems not to take" in chosen.notes[0]


def test_modules_that_import_each_other_are_read():
    source = {
        "train.py": "from a import FLAGS\nx = FLAGS.job_name\n",
        "a.py": "from b import FLAGS\n",
        "b.py": "from a import FLAGS\n",
    }
    assert choose("auto", "train.py", source) == ALL


PARTS = st.sampled_from(
    [
        "import argparse",
        "from absl import app, flags",
        "import tensorflow as tf",
        "from other import *",
        "parser = argparse.ArgumentParser()",
        "parser.add_argument('--job_name')",
        "parser.add_argument(*names)",
        "parser.parse_args()",
        "x = x.y",
        "a = b; b = a",
        "app.run()",
        "flags.DEFINE_string()",
        "tf.app.flags.FLAGS.x",
        "tf.app.run(main, None, *a, **k)",
        "import getopt; getopt.getopt()",
        "import fire; fire.Fire(lambda: 0)",
        "class A(A): pass",
        "@f\ndef main(a, *b, c=FLAGS.d, **e): return main()",
        "lambda: (yield)",
        "match x:\n    case [1, *_]: pass",
    ]
)
TEXTS = st.lists(PARTS, max_size=12).map("\n".join) | st.text(max_size=40)


@given(TEXTS, TEXTS)
def test_whatever_the_sources_say_the_flags_are_some_of_those_there_are(boot, other):
    chosen = choose("auto", "train.py", {"train.py": boot, "other.py": other})
    assert set(chosen.passed) <= set(VALUES)
    assert list(chosen.passed) == sorted(chosen.passed, key=list(VALUES).index)
