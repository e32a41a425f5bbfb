"""Check what was asked: every field by its own rule, then all together; all problems at once.

A message reads after its field's name (`nodes: '0' is ...`) and names the option that would do.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence

from tfjob_magic.core import flavor, shares
from tfjob_magic.core.flavor import Flavor
from tfjob_magic.errors import InvalidJobError, Problem

NAME_LENGTH = 40  # leaves room in a 63-character DNS label for a run's mark, a role and an index
MOST_NODES = 1000
MOST_TASKS = 5000  # each has a port of its own from 5000 to 10000
MOST_VARIABLES = 100
LONGEST_SHOWN = 60  # characters of a wrong value
LONGEST = 1e9  # seconds: three decades, and no clock overflows

_NAME = re.compile(rf"[a-z0-9](?:[-a-z0-9]{{0,{NAME_LENGTH - 2}}}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = ("MA_", "VC_")
_SET_BY_US = ("TF_CONFIG", "TF_PS_HOSTS", "TF_WORKER_HOSTS", "TFJOB_RUN")
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
        if field not in _RULES and field != "flavor":
            near = difflib.get_close_matches(field, [*_RULES, "flavor"], n=1)
            problems.append(
                Problem(
                    field, "is no option" + (f"; did you mean {_option(near[0])}?" if near else "")
                )
            )
        elif value is None:
            continue
        else:
            try:
                values[field] = (
                    _flavor(value, own) if field == "flavor" else _RULES[field](field, value)
                )
            except _WrongError as wrong:
                problems.append(Problem(field, str(wrong)))
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
                "without a worker or a chief nobody decides when the job is done; "
                "give --workers 1 or more, or --chief",
            )
        ]
    if chief and not workers and not ps:
        return [
            Problem(
                "chief", "a chief alone has nobody to lead; leave --chief out, or give --workers 1"
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


def _flavor(value: object, own: Mapping[str, Flavor]) -> Flavor:
    return value if isinstance(value, Flavor) else flavor.parse(_text("flavor", value), own)


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
    return tuple(_scalar(field, item) for item in value)


def _scalar(field: str, value: object) -> str:
    """A text, or a number as JSON has it."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return str(value)
        except ValueError:
            raise _WrongError(f"{_shown(value)} cannot be passed; give it as text") from None
    return _text(field, value)


def _env(field: str, value: object) -> dict[str, str]:
    if isinstance(value, Mapping):
        pairs = [(_text(field, name), _scalar(field, text)) for name, text in value.items()]
    elif isinstance(value, Sequence) and not isinstance(value, str):
        pairs = []
        for item in value:
            name, equals, text = _text(field, item).partition("=")
            if not equals:
                raise _WrongError(f"{_shown(item)} has no value; --env takes NAME=value")
            pairs.append((name, text))
    else:
        raise _WrongError("give the variables as NAME=value, one --env for each")
    for name, _ in pairs:
        if not _VARIABLE.fullmatch(name):
            raise _WrongError(
                f"{_shown(name)} is no variable's name; --env takes letters, digits and _, "
                "beginning with no digit"
            )
        if name.startswith(_OURS):
            raise _WrongError(
                f"{name} begins with {name[:3]}, which belongs to the service; "
                "give --env another name"
            )
        if name in _SET_BY_US:
            raise _WrongError(
                f"{name} is set by the service for every task; give --env another name"
            )
    if len(dict(pairs)) > MOST_VARIABLES:
        raise _WrongError(
            f"{len(dict(pairs))} variables are too many; --env can be given 100 times"
        )
    return dict(pairs)


def _whole(value: object) -> int | None:
    """A whole number, written or as JSON has it; None if it is not one."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"\s*[-+]?[0-9]{1,15}\s*", value):
        return int(value)
    return value if isinstance(value, int) else None


def _nodes(field: str, value: object) -> int:
    number = _whole(value)
    if number is None or not 1 <= number <= MOST_NODES:
        raise _WrongError(
            f"{_shown(value)} is not possible; {_option(field)} takes 1 to {MOST_NODES}"
        )
    return number


def _tasks(field: str, value: object) -> int:
    number = _whole(value)
    if number is None or not 0 <= number <= MOST_TASKS:
        raise _WrongError(
            f"{_shown(value)} is not possible; {_option(field)} takes 0 to {MOST_TASKS}"
        )
    return number


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
            f"{_shown(value)} is not possible; {_option(field)} takes seconds, {wanted}"
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
    "nodes": _nodes,
    "pool": _one_of("shared", "dedicated"),
    "nic": _one_of("auto", "none", "roce", "infiniband"),
    "network": _one_of("auto", "container", "host"),
    "python": _absolute,
    "env": _env,
    "ps": _tasks,
    "workers": _tasks,
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
