"""Check what was asked: every field by its own rule, then all together; all problems at once.

A message reads after its field's name (`nodes: '0' is ...`) and names the option that would do.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence

from tfjob_magic.core import flavor, shares, sizes, variables
from tfjob_magic.core.flavor import Flavor
from tfjob_magic.errors import InvalidJobError, Problem

NAME_LENGTH = 40  # leaves room in a 63-character DNS label for a run's mark, a role and an index
MOST_NODES = 1000
MOST_TASKS = 5000  # each has a port of its own from 5000 to 10000
MOST_VARIABLES = 100
LONGEST_SHOWN = 60  # characters of a wrong value
LONGEST_PATH = 3500  # bytes; the system's limit is 4095, with the code dir and the boot file
LONGEST = 1e9  # seconds: three decades, and no clock overflows

_NAME = re.compile(rf"[a-z0-9](?:[-a-z0-9]{{0,{NAME_LENGTH - 2}}}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SURROGATE = re.compile("[\ud800-\udfff]")


class _WrongError(Exception):
    """A value that cannot be, with the rest of the sentence."""


def check(
    raw: Mapping[str, object], own: Mapping[str, Flavor]
) -> tuple[dict[str, object], list[Problem]]:
    """Return the values that are right, and what is wrong with the others."""
    values: dict[str, object] = {}
    problems: list[Problem] = []
    for field, value in raw.items():
        if value is None and (field in _RULES or field == "flavor"):
            continue
        try:
            values[field] = check_field(field, value, own)
        except InvalidJobError as wrong:
            problems.extend(wrong.problems)
    given = {field for field, value in raw.items() if value is not None}
    problems.extend(
        Problem(field, f"is missing; give {example}")
        for field, example in _REQUIRED.items()
        if field not in given
    )
    if not {problem.field for problem in problems} & {
        "nodes",
        "ps",
        "workers",
        "chief",
        "evaluator",
    }:
        problems.extend(_together(values))
    return values, problems


def check_field(field: str, value: object, own: Mapping[str, Flavor]) -> object:
    """Return the value of one field as a job holds it; InvalidJobError where it cannot be."""
    rule = _RULES.get(field)
    if rule is None and field != "flavor":
        near = difflib.get_close_matches(str(field), [*_RULES, "flavor"], n=1)
        hint = f"; did you mean {_option(near[0])}?" if near else ""
        raise InvalidJobError([Problem(str(field), f"is not an option{hint}")])
    try:
        if rule is not None:
            return rule(field, value)
        return value if isinstance(value, Flavor) else flavor.parse(_text(field, value), own)
    except _WrongError as wrong:
        raise InvalidJobError([Problem(field, str(wrong))]) from None


def _option(field: str) -> str:
    """Spell a field as the option that sets it."""
    return "--" + field.replace("_", "-")


def _shown(value: object) -> str:
    """A value as it may stand in a sentence."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4300 digits
        return "a number that long"
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


def _together(values: Mapping[str, object]) -> list[Problem]:
    """What is wrong with counts and flavor together, each being right alone."""
    nodes = _int(values.get("nodes", 1))
    chief = values.get("chief") is True
    ps, workers = shares.counts(
        nodes, _count(values.get("ps")), _count(values.get("workers")), chief=chief
    )
    evaluator = values.get("evaluator") is True
    if not workers and not chief:
        return [
            Problem(
                "workers",
                "a job needs a worker or a chief, whose end is the job's end; "
                "give --workers 1 or more, or --chief",
            )
        ]
    if chief and not workers and not ps:
        return [
            Problem(
                "chief", "a chief needs workers or PS; give --workers 1 or more, or leave it out"
            )
        ]
    total = ps + workers + chief + evaluator
    if total > MOST_TASKS:
        return [
            Problem(
                "workers",
                f"{total} tasks need more ports than there are from 5000 to 10000; "
                f"keep --ps and --workers below {MOST_TASKS} in all",
            )
        ]
    seats = shares.deal(nodes, ps, workers, chief=chief, evaluator=evaluator)
    sizes = [0] * nodes
    for seat in seats:
        sizes[seat.node] += 1
    empty = sizes.count(0)
    if empty:
        return [
            Problem(
                "nodes",
                f"{empty} of {nodes} nodes would have no task; "
                f"give --nodes {nodes - empty}, or more --workers",
            )
        ]
    asked = values.get("flavor")
    if isinstance(asked, Flavor) and min(asked.cpus, asked.memory_mib) < max(sizes):
        return [
            Problem(
                "flavor",
                f"{asked.name} has {_plural(asked.cpus, 'core')}, too few for the "
                f"{max(sizes)} tasks of a node; take a --flavor of {max(sizes)} cores or more",
            )
        ]
    return []


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise _WrongError(f"{_shown(value)} is not text; {_option(field)} takes a text")
    if "\0" in value:
        raise _WrongError(
            f"a NUL character cannot be passed to a program; take it out of {_option(field)}"
        )
    if _SURROGATE.search(value):
        raise _WrongError(
            f"{_shown(value)} is not valid Unicode; {_option(field)} takes valid text"
        )
    return value


def _name(field: str, value: object) -> str:
    text = _text(field, value)
    if not _NAME.fullmatch(text):
        raise _WrongError(
            f"{_shown(text)} cannot be part of a host's name; --name takes up to {NAME_LENGTH} of "
            "a-z, 0-9 and -, beginning and ending with a letter or digit"
        )
    return text


def _absolute(field: str, value: object) -> str:
    text = _text(field, value)
    if not text.startswith("/"):
        raise _WrongError(
            f"{_shown(text)} is not absolute; {_option(field)} takes a path that begins with /"
        )
    if sizes.size(text) > LONGEST_PATH:
        raise _WrongError(f"the path is longer than {LONGEST_PATH} bytes; give a shorter one")
    return text


def _component(field: str, value: object) -> str:
    text = _text(field, value)
    if not text or text in {".", ".."} or "/" in text:
        raise _WrongError(
            f"{_shown(text)} is not one folder's name; {_option(field)} takes a name without /"
        )
    if len(text.encode()) > 255:  # noqa: PLR2004 - what file systems hold
        raise _WrongError(f"the name is longer than 255 bytes; give a shorter {_option(field)}")
    return text


def _boot_file(field: str, value: object) -> str:
    text = _text(field, value)
    if "/" in text or not text.endswith(".py") or text == ".py" or text.startswith("-"):
        raise _WrongError(
            f"{_shown(text)} is not the name of a Python file; "
            "--boot-file takes a file's name inside the code dir that ends in .py"
        )
    return _component(field, text)


def _parameters(field: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _WrongError(
            f"{_shown(value)} is not a list; give the job parameters as a list of texts"
        )
    parameters = tuple(_scalar(field, item) for item in value)
    for number, parameter in enumerate(parameters, 1):
        if (size := sizes.size(parameter)) > sizes.LONGEST:
            raise _WrongError(
                f"parameter {number} has {size} bytes; a program takes at most {sizes.LONGEST} "
                "in one: write it to a file and pass the file's name"
            )
    if sizes.total(parameters) > sizes.MOST:
        raise _WrongError(
            f"the parameters have more than {sizes.MOST} bytes in all; "
            "write them to a file and pass the file's name"
        )
    return parameters


def _scalar(field: str, value: object) -> str:
    """A text, or a number as JSON has it."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return str(value)
        except ValueError:
            raise _WrongError(f"{_shown(value)} cannot be passed; give it as text") from None
    return _text(field, value)


def _env(field: str, value: object) -> dict[str, str]:
    """The user's variables. Their values may be secrets: no message shows one."""
    pairs = [_pair(field, number, item) for number, item in enumerate(_items(value), 1)]
    for name, text in pairs:
        if reason := variables.reason_to_refuse(name):
            raise _WrongError(f"{name} {reason}; give --env another name")
        if sizes.size(f"{name}={text}") > sizes.LONGEST:
            raise _WrongError(
                f"{name} and its value have more than {sizes.LONGEST} bytes, the most of one "
                "variable; write the value to a file and pass the file's name"
            )
    if len(dict(pairs)) > MOST_VARIABLES:
        raise _WrongError(
            f"{len(dict(pairs))} variables are too many; --env can be given {MOST_VARIABLES} times"
        )
    if sizes.total(f"{name}={text}" for name, text in pairs) > sizes.MOST:
        raise _WrongError(
            f"the variables have more than {sizes.MOST} bytes in all; "
            "write them to a file and pass the file's name with --env"
        )
    return dict(pairs)


def _items(value: object) -> list[object]:
    """The variables one by one, as NAME=value or as a pair."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    raise _WrongError("give the variables as NAME=value, one --env for each")


def _pair(field: str, number: int, item: object) -> tuple[str, str]:
    try:
        if isinstance(item, tuple) and len(item) == 2:  # noqa: PLR2004 - a pair
            name, text = _text(field, item[0]), _scalar(field, item[1])
            equals = "="
        else:
            name, equals, text = _text(field, item).partition("=")
    except _WrongError:
        raise _WrongError(
            f"variable {number} is not text that a program can be given; "
            "--env takes NAME=value, valid Unicode without NUL characters"
        ) from None
    if not equals:
        raise _WrongError(f"variable {number} has no value; --env takes NAME=value")
    if not _VARIABLE.fullmatch(name):
        raise _WrongError(
            f"variable {number} has a name that cannot be; --env takes NAME=value, where NAME has "
            "letters, digits and _ and does not begin with a digit"
        )
    return name, text


def _whole(value: object) -> int | None:
    """A whole number, written or as JSON has it; None if it is not one."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"\s*[-+]?[0-9]{1,15}\s*", value):
        return int(value)
    return value if isinstance(value, int) else None


def _number(least: int, most: int) -> Callable[[str, object], int]:
    def rule(field: str, value: object) -> int:
        number = _whole(value)
        if number is None or not least <= number <= most:
            raise _WrongError(
                f"{_shown(value)} is not possible; {_option(field)} takes {least} to {most}"
            )
        return number

    return rule


def _flag(field: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    raise _WrongError(
        f"{_shown(value)} is neither true nor false; {_option(field)} is given or left out"
    )


def _seconds(field: str, value: object) -> float:
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    least = 0 if field == "grace" else math.ulp(0.0)
    if not least <= seconds <= LONGEST:
        wanted = "0 or more" if field == "grace" else "more than 0"
        raise _WrongError(
            f"{_shown(value)} is not possible; {_option(field)} takes seconds, {wanted} "
            f"and at most {LONGEST:.0f}"
        )
    return seconds


def _one_of(*choices: str) -> Callable[[str, object], str]:
    def rule(field: str, value: object) -> str:
        if value in choices:
            return str(value)
        near = difflib.get_close_matches(str(value), choices, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise _WrongError(
            f"{_shown(value)} is not one of its choices; "
            f"{_option(field)} takes {', '.join(choices)}{hint}"
        )

    return rule


def _int(value: object) -> int:
    assert isinstance(value, int)  # noqa: S101 - checked by its own rule
    return value


def _count(value: object) -> int | None:
    return None if value is None else _int(value)


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_RULES: Mapping[str, Callable[[str, object], object]] = {
    "name": _name,
    "job_dir": _absolute,
    "code_dir": _component,
    "boot_file": _boot_file,
    "parameters": _parameters,
    "nodes": _number(1, MOST_NODES),
    "pool": _one_of("shared", "dedicated"),
    "nic": _one_of("auto", "none", "roce", "infiniband"),
    "network": _one_of("auto", "container", "host"),
    "python": _absolute,
    "env": _env,
    "ps": _number(0, MOST_TASKS),
    "workers": _number(0, MOST_TASKS),
    "chief": _flag,
    "evaluator": _flag,
    "timeout": _seconds,
    "grace": _seconds,
    "strict": _flag,
    "cluster_flags": _one_of("auto", "all", "none"),
}
_REQUIRED = {
    "name": "--name",
    "job_dir": "--job-dir",
    "code_dir": "--code-dir",
    "flavor": "--flavor v100x8, or --flavor cpu-4c8g",
    "python": "--python",
}
