"""The one grammar of `%%tfjob`, `%tfjob` and the `tfjob` command.

Standard library only: the magic's documentation is made of it when the extension is loaded.
Every mistake is an `InvalidJobError`; nothing here ends the interpreter.
"""

from __future__ import annotations

import argparse
import keyword
import re
import shlex
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import takewhile
from typing import TYPE_CHECKING, NoReturn

from tfjob_magic.errors import InvalidJobError, Problem
from tfjob_magic.expansion import halves, parameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_Rows = tuple[tuple[str, str, str], ...]  # name, what stands for its value, meaning

_JOB: dict[str, _Rows] = {
    "what the job gets": (
        ("--nodes", "N", "number of nodes; of several, each gets a PS and a worker (default 1)"),
        ("--flavor", "NAME", "required: one node's resources; v100x8, cpu-8c32g, console's text"),
        ("--pool", "shared|dedicated", "the resource pool (default shared)"),
        ("--nic", "auto|none|roce|infiniband", "the nodes' fast network card (default auto)"),
        ("--network", "auto|container|host", "the network mode (default auto: by pool and card)"),
        ("--strict", "", "refuse if this machine has less than asked; do not rehearse"),
    ),
    "which tasks it has": (
        ("--ps", "N", "parameter servers (default one per node; 0: workers only)"),
        ("--workers", "N", "workers (default one per node)"),
        ("--chief", "", "add a chief, which ParameterServerStrategy needs"),
        ("--evaluator", "", "add an evaluator"),
    ),
    "what it runs": (
        ("--name", "NAME", "the job's name; its run's id begins with it"),
        ("--job-dir", "DIR", "the folder that holds the code dir (MA_JOB_DIR)"),
        ("--code-dir", "NAME", "the folder in it where they run (default the notebook's name)"),
        ("--boot-file", "NAME", "the file in the code dir that they run (default train.py)"),
        ("--python", "PATH", "the interpreter that runs it"),
        ("--env", "K=V", "a variable for the tasks; may be given more than once"),
        ("--cluster-flags", "auto|all|none", "default auto: the flags that the file takes"),
    ),
    "how it goes": (
        ("--timeout", "TIME", "end the job after 90 (seconds), 15m, 2h, 1d (default never)"),
        ("--grace", "TIME", "time from SIGTERM to SIGKILL, written like --timeout (default 10)"),
        ("--replace", "", "first stop the run that uses the code dir"),
        ("--detach", "", "return as soon as the job is started"),
        ("--dry-run", "", "show the plan, the commands and the variables; start and write nothing"),
    ),
}  # fmt: skip
_BY_FILE = {"--job-dir", "--code-dir", "--boot-file"}  # a file that is named says them
_TO_START = {"--replace", "--detach", "--dry-run"}
_OUT = ("--out", "VAR", "put the Run into this variable of the notebook, however it ended")
_DASHES = "‐‑‒–—―−"  # noqa: RUF001 - what editors make of hyphens
_RUN = ("run", "RUN", "its id, the beginning of it, or `last`")
_JSON = ("--json", "", "print JSON")


@dataclass(frozen=True)
class _Verb:
    usage: str
    meaning: str
    rows: _Rows = ()
    takes_job: bool = False


_VERBS = {
    "run": _Verb(
        "run FILE --flavor NAME [OPTION …] [-- PARAMETER …]",
        "Run a Python file as a job, show its logs, exit with its code.",
        (("file", "FILE", "the boot file; its folder is the code dir"),),
        takes_job=True,
    ),
    "plan": _Verb(
        "plan [FILE] --flavor NAME [OPTION …] [-- PARAMETER …]",
        "Show how a job would run; start and write nothing.",
        (("file?", "FILE", "the boot file"), _JSON),
        takes_job=True,
    ),
    "list": _Verb("list [--json]", "List your runs, newest first.", (_JSON,)),
    "show": _Verb(
        "show [RUN] [--json]",
        "Show one run: its tasks, its directory, and how it ended.",
        (("run?", *_RUN[1:]), _JSON),
    ),
    "logs": _Verb(
        "logs [RUN] [--task TASK] [--follow]",
        "Show what the tasks of a run printed.",
        (
            ("run?", *_RUN[1:]),
            ("--task", "TASK", "only this one's, without a prefix: worker-0"),
            ("--follow", "", "go on until the run is over"),
        ),
    ),
    "stop": _Verb(
        "stop [RUN] [--grace TIME]",
        "Ask a run to stop, and return at once.",
        (
            ("run?", *_RUN[1:]),
            ("--grace", "TIME", "instead of the job's grace; 0 kills at once"),
        ),
    ),
    "rm": _Verb("rm RUN", "Remove the directory of a run that is over; never a code dir.", (_RUN,)),
    "flavors": _Verb("flavors", "List the flavors that have a name."),
}


@dataclass(frozen=True)
class Command:
    """What one line asks for. `job` maps fields of `Job` to the values as they were written."""

    verb: str  # cell, help, or one of `_VERBS`
    job: dict[str, object] = field(default_factory=dict)
    file: str | None = None  # the boot file of `run` and `plan`
    run: str = "last"
    task: str | None = None
    follow: bool = False
    json: bool = False
    grace: float | None = None  # seconds that `stop` leaves the tasks, where not the job's
    replace: bool = False
    detach: bool = False
    dry_run: bool = False
    out: str | None = None
    topic: str | None = None  # the verb that `help` is asked about


class _Parser(argparse.ArgumentParser):
    """An argument parser that raises what it has to say."""

    @property
    def names(self) -> list[str]:
        """The options that it knows."""
        return list(self._option_string_actions)

    @property
    def with_value(self) -> set[str]:
        """Those of its options that take a value."""
        actions = self._option_string_actions
        return {name for name, action in actions.items() if action.nargs != 0}

    def error(self, message: str) -> NoReturn:
        named = re.fullmatch(r"argument (\S+): (.*)", message, re.DOTALL)
        if named:
            raise _mistake(named[1], named[2])
        raise _mistake("command", f"{message}; the usage is `{self.usage}`")


def _mistake(name: str, message: str) -> InvalidJobError:
    return InvalidJobError([Problem(name, message)])


def cell(line: str, namespace: Mapping[str, object]) -> Command:
    """Read the line of `%%tfjob`; `{expressions}` in its parameters see the `namespace`."""
    words, rest = halves(line)
    if {"-h", "--help"} & set(words):
        return Command("help")
    given = None if rest is None else parameters(rest, namespace)
    return _command("cell", _cell_parser(), words, given)


def line(text: str, namespace: Mapping[str, object]) -> Command:
    """Read the line of `%tfjob`: what the `tfjob` command takes, with `{expressions}`."""
    words, rest = halves(text)
    return _verb(words, None if rest is None else parameters(rest, namespace))


def arguments(argv: Sequence[str]) -> Command:
    """Read the arguments of the `tfjob` command, which a shell has split."""
    words = list(argv)
    if "--" not in words:
        return _verb(words, None)
    at = words.index("--")
    return _verb(words[:at], words[at + 1 :])


def _verb(words: list[str], job_parameters: list[str] | None) -> Command:
    if not words or words[0] in {"help", "-h", "--help"}:
        return Command("help", topic=words[1] if words[1:] and words[1] in _VERBS else None)
    name, *words = words
    if name not in _VERBS:
        near = get_close_matches(name, _VERBS, n=1)
        raise _mistake(
            name, f"no such command, {_or_near(near, 'the commands are ' + ', '.join(_VERBS))}"
        )
    if {"-h", "--help"} & set(words):
        return Command("help", topic=name)
    return _command(name, _verb_parser(name), words, job_parameters)


def _command(
    verb: str, parser: _Parser, words: list[str], job_parameters: list[str] | None
) -> Command:
    known, unknown = parser.parse_known_args(words)
    given = vars(known)
    _check_hyphens([*unknown, *(given[name] for name in ("file", "run") if name in given)])
    if unknown:
        raise _unknown(verb, parser, words, unknown)
    takes_job = verb == "cell" or _VERBS[verb].takes_job
    if job_parameters is not None and not takes_job:
        raise _mistake("--", f"`{verb}` takes no job parameters")
    for name in ("timeout", "grace"):
        if name in given:
            given[name] = _seconds(name, given[name])
    if "env" in given:
        given["env"] = dict(_variable(text) for text in given["env"])
    if "out" in given and (not given["out"].isidentifier() or keyword.iskeyword(given["out"])):
        raise _mistake("out", f"`{given['out']}` cannot be a variable; write a name like `run`")
    if not takes_job:
        return Command(verb, **given)
    if job_parameters is not None:
        given["parameters"] = job_parameters
    own = {"file", "json", "replace", "detach", "dry_run", "out"}
    return Command(
        verb,
        job={name: value for name, value in given.items() if name not in own},
        **{name: value for name, value in given.items() if name in own},
    )


def _check_hyphens(words: Sequence[str]) -> None:
    """Refuse words that begin with a dash: an editor made it of two hyphens."""
    for word in words:
        if word[:1] in set(_DASHES):
            written = "--" + word.lstrip(_DASHES + "-")
            message = f"it begins with a dash instead of two hyphens; write `{written}`"
            raise _mistake(f"`{word}`", message)


def _unknown(verb: str, parser: _Parser, words: list[str], unknown: list[str]) -> InvalidJobError:
    """Say what is wrong about the first word that no option took."""
    first = unknown[0]
    name = first.partition("=")[0]
    if not first.startswith("-"):
        return _stray(parser, words, first)
    if name in _BY_FILE and "file" in (row[0].rstrip("?") for row in _VERBS[verb].rows):
        return _mistake(name, f"`{verb}` takes it from the FILE that you name; leave it out")
    if name in _TO_START and verb == "plan":
        return _mistake(name, "`plan` starts nothing; leave it out")
    if name == _OUT[0] and verb != "cell":
        return _mistake(name, "it is an option of a %%tfjob cell; leave it out")
    near = get_close_matches(name, parser.names, n=1, cutoff=0.7)
    if "--nodes" not in parser.names:
        return _mistake(name, f"no such option, {_or_near(near, f'the usage is `{parser.usage}`')}")
    script = f"if it is for your script, write it after a lone `--`: `-- {shlex.join(unknown)}`"
    return _mistake(name, f"no such option; {_or_near(near, '', '? or, ')}{script}")


def _stray(parser: _Parser, words: list[str], word: str) -> InvalidJobError:
    """Say what is wrong about a word that stands where an option should."""
    if word.startswith("#"):
        remedy = "there are no comments on this line; remove it, or move it into the code"
        return _mistake(f"`{word}`", remedy)
    before = words[: words.index(word)]
    options = [at for at, earlier in enumerate(before) if earlier in parser.with_value]
    value: list[str] = []
    if options:
        at = options[-1]
        value = list(takewhile(lambda text: not text.startswith("-"), words[at + 1 :]))
    quoted = ""
    if value and at + 1 + len(value) > len(before) > at + 1:
        quoted = f'{words[at]} "{" ".join(value)}"'
        if words[at] == "--flavor" and value[0].endswith(":"):
            return _mistake("flavor", f"its text has spaces, so quote it: {quoted}")
    remedies = []
    if quoted:
        remedies.append(f"if it belongs to the value before it, quote that: {quoted}")
    if "--nodes" in parser.names:
        remedies.append("parameters of your script go after a lone `--`")
    return _mistake(
        f"`{word}`",
        f"neither an option nor the value of one; {'; '.join(remedies) or 'leave it out'}",
    )


def _or_near(near: list[str], otherwise: str, end: str = "?") -> str:
    return f"did you mean {near[0]}{end}" if near else otherwise


def _seconds(name: str, text: str) -> float:
    written = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([smhd]?)", text.strip())
    if written is None:
        raise _mistake(name, f"`{text}` is not a duration; write seconds (90), 90s, 15m, 2h or 1d")
    return float(written[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[written[2]]


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise _mistake("env", f"`{text}` sets nothing; write --env NAME=VALUE")
    return name, value


# ---- parsers and their help ------------------------------------------------------------------


def _cell_parser() -> _Parser:
    parser = _parser("%%tfjob --flavor NAME [OPTION …] [-- PARAMETER …]", "")
    for title, rows in _JOB.items():
        _add(parser, rows if title != "how it goes" else (*rows, _OUT), title)
    return parser


def _verb_parser(name: str) -> _Parser:
    verb = _VERBS[name]
    parser = _parser(f"tfjob {verb.usage}", verb.meaning)
    _add(parser, verb.rows, "what it takes")
    if verb.takes_job:
        useless = _BY_FILE if name == "run" else _BY_FILE | _TO_START
        for title, rows in _JOB.items():
            _add(parser, tuple(row for row in rows if row[0] not in useless), title)
    return parser


def _parser(usage: str, meaning: str) -> _Parser:
    return _Parser(
        usage=usage,
        description=meaning,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=35, width=80),
        allow_abbrev=False,
        add_help=False,
        argument_default=argparse.SUPPRESS,
    )


def _add(parser: _Parser, rows: _Rows, title: str) -> None:
    group = parser.add_argument_group(title)
    for name, value, meaning in rows:
        if not value:
            group.add_argument(name, action="store_true", help=meaning)
        elif name.endswith("?"):
            group.add_argument(name[:-1], metavar=value, nargs="?", help=meaning)
        else:
            action = "append" if name == "--env" else "store"
            group.add_argument(name, metavar=value, action=action, help=meaning)


# ---- what it all means, for people ------------------------------------------------------------

_EXAMPLES = """\
Run this cell as a distributed TensorFlow job, the way ModelArts does it.

The cell becomes <code dir>/train.py in `user-job-dir` beside the notebook. On
one node it runs as a single task. On several, each node gets a parameter
server and a worker, and every task is told which one it is: by --job_name,
--task_index, --ps_hosts and --worker_hosts, by TF_CONFIG and the MA_
variables. What the tasks print appears here; the whole logs stay on disk.

--flavor is required: the resources of one node. Two parameter servers and two
workers run this cell:

    %%tfjob --nodes 2 --flavor v100x8 -- --epochs 5 --data {data_dir}

Further examples, the first of which only shows the plan:

    %%tfjob --nodes 2 --flavor v100x8 --dry-run
    %%tfjob --ps 1 --workers 3 --chief --flavor cpu-8c32g --timeout 2h
    %%tfjob --flavor v100x1 --name mnist --env TF_CPP_MIN_LOG_LEVEL=2 --detach

What follows `--` goes to your script, quoted as in a shell. There, {name} is a
variable or expression of the notebook and always one argument; {{ and }} are
braces. If the machine has less than you ask for, the run is a rehearsal: the
same roles and variables, with what there is.

■ (interrupt) stops the job, ■ again kills it. A job that fails raises an
error, so that "Run All" stops."""


def manual() -> str:
    """Everything about `%%tfjob` and `%tfjob`, as plain text."""
    options = _cell_parser().format_help().partition("\n\n")[2]
    verbs = "\n".join(f"  %tfjob {verb.usage}\n        {verb.meaning}" for verb in _VERBS.values())
    return f"{_EXAMPLES}\n\n{options}\nAbout runs, from any notebook or terminal:\n{verbs}\n"


def usage(topic: str | None) -> str:
    """Help for the `tfjob` command, or for one of its verbs."""
    if topic is not None:
        return _verb_parser(topic).format_help()
    short = {re.sub(r" (--flavor|\[-).*", "", verb.usage): verb for verb in _VERBS.values()}
    width = max(map(len, short))
    verbs = "\n".join(f"  {name:<{width}}  {verb.meaning}" for name, verb in short.items())
    return f"""\
Run TensorFlow with parameter servers and workers, the way ModelArts does it.

  tfjob run train.py --nodes 2 --flavor v100x8 -- --epochs 5

{verbs}

`run` and `plan` need --flavor, the resources of one node. `tfjob COMMAND -h`
shows the options of a command, `tfjob --version` the version.
"""
