from __future__ import annotations

import shlex
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_magic import grammar
from tfjob_magic.core.job import Job
from tfjob_magic.errors import InvalidJobError
from tfjob_magic.grammar import arguments, cell, line


def parameters(text: str, **namespace: object) -> object:
    return cell(f"-- {text}", namespace).job["parameters"]


def refusal(text: str, **namespace: object) -> str:
    with pytest.raises(InvalidJobError) as caught:
        cell(text, namespace)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_main_job_is_read() -> None:
    command = cell("--nodes 2 --flavor v100x8 -- --epochs 5", {})
    assert command.job == {"nodes": "2", "flavor": "v100x8", "parameters": ["--epochs", "5"]}


def test_every_option_arrives_under_its_own_name() -> None:
    command = cell(
        "--name n --code-dir c --job-dir /j --boot-file b.py --nodes 2 --flavor f --pool dedicated "
        "--nic roce --network host --python /p --env A=1 --env B=x=y --ps 1 --workers 3 --chief "
        "--evaluator --timeout 15m --grace 2 --strict --replace --cluster-flags all --detach "
        "--dry-run --out VAR",
        {},
    )
    assert command.job == {
        "name": "n", "code_dir": "c", "job_dir": "/j", "boot_file": "b.py", "nodes": "2",
        "flavor": "f", "pool": "dedicated", "nic": "roce", "network": "host", "python": "/p",
        "env": {"A": "1", "B": "x=y"}, "ps": "1", "workers": "3", "chief": True,
        "evaluator": True, "timeout": 900.0, "grace": 2.0, "strict": True, "cluster_flags": "all",
    }  # fmt: skip
    assert command.replace
    assert command.detach
    assert command.dry_run
    assert command.out == "VAR"


def test_a_cell_can_set_every_field_of_a_job() -> None:
    rows = [row for rows in grammar._JOB.values() for row in rows]
    options = {name.removeprefix("--").replace("-", "_") for name, _, _ in rows}
    assert {field.name for field in fields(Job)} - {"parameters"} <= options


def test_what_is_not_given_is_left_to_the_defaults() -> None:
    assert cell("", {}).job == {}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("90s", 90), ("15m", 900), ("2h", 7200), ("1d", 86400), ("0", 0)],
)
def test_durations_have_units(text: str, seconds: float) -> None:
    assert cell(f"--timeout {text}", {}).job["timeout"] == seconds


@pytest.mark.parametrize("text", ["soon", "-1", "5 weeks", "h", "", "1h30", "nan", "inf"])
def test_a_duration_that_is_none_is_refused_with_examples(text: str) -> None:
    message = refusal(f"--timeout={shlex.quote(text)}")
    assert message.startswith("timeout: ")
    assert "15m" in message


def test_a_misspelt_option_is_answered_with_the_right_one() -> None:
    assert "did you mean --nodes" in refusal("--node 2")
    assert "did you mean --job-dir" in refusal("--job_dir x")


def test_an_option_of_the_script_is_told_to_go_after_two_dashes() -> None:
    message = refusal("--nodes 2 --epochs 5 --name-of-data 'a b'")
    assert message.startswith("--epochs: ")
    assert "`-- --epochs 5 --name-of-data 'a b'`" in message


def test_an_option_is_never_guessed_from_its_beginning() -> None:
    assert refusal("--rep").startswith("--rep: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("--nodes", "--nodes: expected one argument"),
        ("--env A", "env: `A` sets nothing"),
        ("--env =1", "env: `=1` sets nothing"),
        ("--chief=yes", "--chief: ignored explicit argument"),
        ("--out 3x", "out: `3x` cannot be a variable"),
        ("--out class", "out: `class` cannot be a variable"),
        ("train.py", "`train.py`: neither an option nor the value of one; parameters of"),
        ("--nodes 2 # two", "there are no comments on this line"),
        ("--detach #two", "there are no comments on this line"),
        ("-- --data a # mine", "`#` looks like a comment"),
        ("-- --epochs 5 #five", "`#five` looks like a comment"),
        ("-- #", "quote it if it is meant: '#'"),
        ("-- #{", "`#{` looks like a comment"),
        ("--name my net --nodes 2", 'quote that: --name "my net"; parameters'),
        (
            "--nodes 2 --flavor GPU: 8*V100 | CPU: 72",
            'so quote it: --flavor "GPU: 8*V100 | CPU: 72"',
        ),
        ("—nodes 2", "two hyphens; write `--nodes`"),
        ("--nodes 2 –chief", "two hyphens; write `--chief`"),  # noqa: RUF001
        ("--nodes 2 — a", "two hyphens; write `--`"),
        ("--name 'x", "quote that is never closed"),
        ("-- it's", "quote that is never closed"),
        ("-- a\\", "ends in a backslash"),
    ],
)
def test_a_mistake_is_one_clear_sentence(text: str, says: str) -> None:
    assert says in refusal(text)


def test_parameters_are_quoted_as_in_a_shell() -> None:
    text = r"""'a b' "c 'd' \"e\"" f\ g '' --x='1 2' "" a#b '#1' \#2 ''#3 $HOME `id` * ~ \{n\}"""
    assert parameters(text) == [
        "a b", 'c \'d\' "e"', "f g", "", "--x=1 2", "", "a#b", "#1", "#2", "#3", "$HOME",
        "`id`", "*", "~", "{n}",
    ]  # fmt: skip


def test_a_second_pair_of_dashes_is_the_scripts() -> None:
    assert parameters("a -- --b") == ["a", "--", "--b"]


def test_no_parameters_after_the_dashes_are_none() -> None:
    assert cell("--", {}).job["parameters"] == []


def test_an_expression_stays_one_argument_whatever_it_holds() -> None:
    value = "a 'b' \"c\" $d \\ {e}"
    assert parameters("{value} --x={value} '{value}' \"{value}\"", value=value) == [
        value,
        f"--x={value}",
        value,
        value,
    ]


@given(st.lists(st.text()))
def test_any_values_arrive_as_they_are(values: list[str]) -> None:
    text = " ".join(f"{{values[{index}]}}" for index in range(len(values)))
    assert parameters(text, values=values) == values


@given(st.lists(st.text().filter(lambda text: "\0" not in text)))
def test_any_quoted_arguments_arrive_as_they_are(words: list[str]) -> None:
    text = " ".join(shlex.quote(word.replace("{", "{{").replace("}", "}}")) for word in words)
    assert parameters(text) == words


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{epochs + 1}", "6"),
        ("{ epochs }", "5"),
        ("{d['a b']}", "1"),
        ('{d["a b"]}', "1"),
        ('"{d[\\"a b\\"]}"', "1"),
        ("{ {1: 2}[1] }", "2"),
        ("{'}'}", "}"),
        ("{[n for n in range(epochs)]}", "[0, 1, 2, 3, 4]"),
        ("x{epochs}y{epochs}z", "x5y5z"),
        ("{''}", ""),
        ("{2 + 3}", "5"),
    ],
)
def test_an_expression_is_evaluated(text: str, value: str) -> None:
    assert parameters(text, epochs=5, d={"a b": 1}) == [value]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{}}", "{}"),
        ("{{epochs}}", "{epochs}"),
        (r"'\d{8}'", r"\d{8}"),
        ("a{2,5}", "a{2,5}"),
        ("a{2,}", "a{2,}"),
        ("{}", "{}"),
        ("""'{"a": {"b": [1, true, null]}}'""", '{"a": {"b": [1, true, null]}}'),
        ('''"{\\"a\\": 1}"''', '{"a": 1}'),
        ("""'{{"a": {{"b": 1}}}}'""", '{"a": {"b": 1}}'),
    ],
)
def test_braces_that_hold_no_expression_stay(text: str, value: str) -> None:
    assert parameters(text, epochs=5) == [value]


def test_an_undefined_name_is_named_with_the_nearest() -> None:
    message = refusal("-- --epochs {epohcs}", epochs=5)
    assert message.startswith("parameters: ")
    assert "`epohcs`" in message
    assert "did you mean epochs?" in message


def test_one_undefined_name_does_not_hide_among_defined_ones() -> None:
    assert "`nowhere`" in refusal("-- {epochs} {nowhere}", epochs=5)


@pytest.mark.parametrize("text", ["{a", "{a b}", "{lr:.2f}", "{lr:5}", "{import os}", "{x!r}"])
def test_braces_that_make_no_sense_are_refused(text: str) -> None:
    assert "is not a Python expression" in refusal(f"-- {text}", lr=1, x=1, a=1)


class Unspeakable(Exception):  # noqa: N818 - as a user may name it
    def __str__(self) -> str:
        raise ValueError


def throw(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{await x}", "`{await x}` could not be evaluated: SyntaxError: 'await' outside function"),
        ("{(yield)}", "SyntaxError: 'yield' outside function"),
        ('{__import__("sys").exit(3)}', "SystemExit: 3"),
        ("{throw(GeneratorExit())}", "GeneratorExit"),
        ("{throw(Unspeakable())}", "could not be evaluated: Unspeakable"),
        (f"{{{'+'.join(['1'] * 20_000)}}}", "`{1+1+1+1+1+"),
        (f"{{{'(' * 5_000}{')' * 5_000}}}", "`{((((((((((((("),
        (f"{{{'-' * 50_000}1}}", "`{-------------"),
    ],
    ids=range(8),
)
def test_whatever_an_expression_raises_is_a_refusal_that_names_it(text: str, says: str) -> None:
    message = refusal(f"-- {text}", x=1, throw=throw, Unspeakable=Unspeakable)
    assert message.startswith("parameters: ")
    assert says in message
    assert len(message) < 300


def test_an_interrupt_of_an_expression_is_an_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt):
        parameters("{throw(KeyboardInterrupt())}", throw=throw)


def test_a_value_that_begins_with_a_hash_is_no_comment() -> None:
    assert parameters("{colour} x{{#", colour="#fff") == ["#fff", "x{#"]


def test_an_expression_that_fails_says_how() -> None:
    assert "ZeroDivisionError: division by zero" in refusal("-- {1 / zero}", zero=0)


def test_nothing_is_expanded_before_the_dashes() -> None:
    command = cell("--name {n} --env A='{n} $n' -- $n", {"n": 1})
    assert command.job == {"name": "{n}", "env": {"A": "{n} $n"}, "parameters": ["$n"]}


def test_an_expression_leaves_the_notebook_as_it_is() -> None:
    namespace: dict[str, object] = {"n": 1}
    cell("-- {n} {(m := 2)}", namespace)
    assert namespace == {"n": 1}


def test_the_command_reads_what_a_shell_has_split() -> None:
    command = arguments(["run", "a b.py", "--nodes", "2", "--", "{x}", "$y", "a b"])
    assert command.verb == "run"
    assert command.file == "a b.py"
    assert command.job == {"nodes": "2", "parameters": ["{x}", "$y", "a b"]}


def test_options_may_stand_before_and_after_the_file() -> None:
    for argv in (["plan", "--nodes", "2", "t.py", "--json"], ["plan", "t.py", "--nodes", "2"]):
        assert arguments(argv).file == "t.py"
    assert arguments(["plan", "--nodes", "2", "--json"]).file is None


def test_the_line_magic_has_the_verbs_of_the_command() -> None:
    assert line("logs quick --task worker-0 --follow", {}) == arguments(
        ["logs", "quick", "--task", "worker-0", "--follow"]
    )
    assert line("stop --grace 0", {}).grace == 0
    assert line("list", {}).run == "last"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["lst"], "did you mean list?"),
        (["frobnicate"], "the commands are run, plan, list"),
        (["run"], "FILE"),
        (["rm"], "RUN"),
        (["list", "x"], "`x`: neither an option nor the value of one; leave it out"),
        (["logs", "--tsk", "a"], "did you mean --task?"),
        (["list", "--", "a"], "takes no job parameters"),
        (["run", "t.py", "--epochs", "5"], "`-- --epochs 5`"),
        (["plan", "--detach"], "--detach: `plan` starts nothing"),
        (["run", "t.py", "--code-dir", "c"], "--code-dir: `run` takes it from the FILE"),
        (["plan", "t.py", "--boot-file=x.py"], "--boot-file: `plan` takes it from the FILE"),
        (["run", "t.py", "--out", "r"], "--out: it is an option of a %%tfjob cell"),
        (["run", "—nodes", "2", "t.py"], "two hyphens; write `--nodes`"),
        (["show", "—json"], "two hyphens; write `--json`"),
    ],
)
def test_a_wrong_command_is_one_clear_sentence(argv: list[str], says: str) -> None:
    with pytest.raises(InvalidJobError) as caught:
        arguments(argv)
    assert says in str(caught.value)


@pytest.mark.parametrize("argv", [[], ["-h"], ["--help"], ["help"]])
def test_help_is_asked_for_in_the_usual_ways(argv: list[str]) -> None:
    assert arguments(argv).verb == "help"


def test_help_about_a_verb_is_asked_for_in_two_ways() -> None:
    assert arguments(["run", "-h"]) == arguments(["help", "run"])


def test_help_after_the_dashes_is_the_scripts() -> None:
    assert arguments(["run", "t.py", "--", "--help"]).job == {"parameters": ["--help"]}


def test_the_manual_names_every_option_and_verb() -> None:
    manual = grammar.manual()
    for rows in grammar._JOB.values():
        for name, _, _ in rows:
            assert f"{name} " in manual
    for name in (*grammar._VERBS, "--out VAR"):
        assert name in manual
    assert max(map(len, manual.splitlines())) <= 80


def test_every_verb_has_help_of_its_own() -> None:
    for name in grammar._VERBS:
        assert grammar.usage(name).startswith(f"usage: tfjob {name}")
        assert name in grammar.usage(None)
        assert max(map(len, grammar.usage(name).splitlines())) <= 80
    assert max(map(len, grammar.usage(None).splitlines())) <= 80
