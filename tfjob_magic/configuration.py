"""The user's own flavors, from `$XDG_CONFIG_HOME/tfjob/config.toml` (`~/.config` by default).

[flavors.mine]
accelerator = "A100"  # neither of the two on a CPU flavor
accelerators = 4
cpus = 32
memory = "256 GB"
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import tomllib

from tfjob_magic.core.flavor import Flavor, is_kind, mib
from tfjob_magic.errors import InvalidJobError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_KEYS = ("accelerator", "accelerators", "cpus", "memory")


def path(environ: Mapping[str, str]) -> Path:
    """Say where the configuration is; a relative XDG_CONFIG_HOME counts as none, as XDG has it."""
    home = environ.get("XDG_CONFIG_HOME", "")
    if not home.startswith("/"):
        home = str(Path(environ["HOME"] if environ.get("HOME") else Path.home()) / ".config")
    return Path(home) / "tfjob" / "config.toml"


def flavors(environ: Mapping[str, str]) -> dict[str, Flavor]:
    """Read the user's own flavors by their names; none where there is no configuration.

    Raises InvalidJobError that names the file and every key that is wrong.
    """
    file = path(environ)
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise _wrong(file, [f"cannot be read ({error.strerror}); make it readable"]) from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise _wrong(file, [f"is not valid TOML ({error})"]) from None
    problems = [
        f"{key} is not known; only [flavors.NAME] is read" for key in raw if key != "flavors"
    ]
    tables = raw.get("flavors", {})
    own: dict[str, Flavor] = {}
    if not isinstance(tables, dict):
        problems.append("flavors must be a table, written as [flavors.NAME]")
        tables = {}
    for name, table in tables.items():
        found = _flavor(name, table)
        if isinstance(found, Flavor):
            own[name] = found
        else:
            problems += [f"flavors.{name}{problem}" for problem in found]
    if problems:
        raise _wrong(file, problems)
    return own


def _flavor(name: str, table: object) -> Flavor | list[str]:
    """Read one flavor, or say what is wrong with its keys."""
    if not isinstance(table, dict):
        return [" must be a table with cpus and memory"]
    problems = [
        f".{key} is not known; a flavor has {', '.join(_KEYS)}" for key in table if key not in _KEYS
    ]
    if not _NAME.fullmatch(name):
        problems.append(" must be named by small letters, digits, ., _ and -")
    kind, count = table.get("accelerator"), table.get("accelerators", 0)
    cpus, memory = table.get("cpus"), table.get("memory")
    if kind is not None and not (isinstance(kind, str) and is_kind(kind)):
        problems.append(f'.accelerator must be a kind such as "A100", not {kind!r}')
    if not _counts(count, least=0):
        problems.append(f".accelerators must be a whole number, not {count!r}")
    elif (kind is None) == (count > 0):
        problems.append(" must have both accelerator and accelerators, or neither")
    if not _counts(cpus, least=1):
        problems.append(f".cpus must be a whole number from 1, not {cpus!r}")
    size = mib(memory) if isinstance(memory, str) else None
    if not size:
        problems.append(f'.memory must be written as "256 GB", not {memory!r}')
    if problems:
        return problems
    return Flavor(name, kind, count, cpus or 0, size or 0)


def _counts(value: object, *, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _wrong(file: Path, problems: list[str]) -> InvalidJobError:
    return InvalidJobError([Problem(str(file), problem) for problem in problems])
