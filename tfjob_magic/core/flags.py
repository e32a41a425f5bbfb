"""Which of the cluster flags a boot file would take (contract C4, C5, C6)."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfjob_magic.core import parsers, syntax

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfjob_magic.core.job import ClusterFlags
    from tfjob_magic.core.parsers import Parser
    from tfjob_magic.core.syntax import Program


@dataclass(frozen=True)
class Flags:
    """The cluster flags to pass, in the order to pass them, and what to say about it.

    `passed` are spelled as on the command line (`--task_index`, `--PS_hosts`, `--task_name`);
    `notes` are sentences for the plan.
    """

    passed: tuple[str, ...]
    notes: tuple[str, ...]


ALL = Flags(("--task_index", "--ps_hosts", "--worker_hosts", "--job_name"), ())


def choose(policy: ClusterFlags, boot_file: str, sources: Mapping[str, str]) -> Flags:
    """Choose the cluster flags to pass to `boot_file`.

    `sources` maps relative paths to texts: the boot file and the local modules that it imports.
    `auto` leaves out what the program's own parser would refuse and says so (contract C6); a
    program with no parser, or one that cannot be read, gets all four. `all` passes all four. Both
    spell `--PS_hosts` and add `--task_name` where the program declares them (contract C5).
    """
    if policy == "none":
        return Flags((), ())
    program = syntax.program(boot_file, sources)
    if program is None:
        unread = policy == "auto" and boot_file in sources
        note = f"{boot_file} could not be read as Python 3: all four cluster flags are passed"
        return Flags(ALL.passed, (note,) if unread else ())
    found = parsers.find(program)
    declared: set[str] = set().union(*(parser.declared for parser in found))
    wanted = [*ALL.passed, *(["--task_name"] if "--task_name" in declared else [])]
    if "--PS_hosts" in declared:
        wanted[wanted.index("--ps_hosts")] = "--PS_hosts"
    if policy == "all":
        return Flags(tuple(wanted), ())
    if not found and _by_position(program):
        note = (
            f"{boot_file} reads sys.argv by position and has no parser: the cluster flags come"
            " first there, as on ModelArts; --cluster-flags none leaves them out"
        )
        return Flags(tuple(wanted), (note,))
    passed = [flag for flag in wanted if all(parser.takes(flag) for parser in found)]
    left_out = [flag for flag in wanted if flag not in passed]
    return Flags(tuple(passed), (_note(boot_file, left_out, found),) if left_out else ())


def _note(boot_file: str, left_out: list[str], found: list[Parser]) -> str:
    """Say in one line what is left out and why, and that the service would pass it."""
    refusing = [parser for parser in found if not all(parser.takes(flag) for flag in left_out)]
    kinds = " and ".join(parser.kind for parser in refusing)
    names = " and ".join([", ".join(left_out[:-1]), left_out[-1]] if left_out[1:] else left_out)
    verb = "seems not to take" if any(parser.guessed for parser in refusing) else "does not take"
    return (
        f"{boot_file} ({kinds}) {verb} {names}, which ModelArts passes there: left out"
        " (--cluster-flags all passes them here too)"
    )


def _by_position(program: Program) -> bool:
    """Say whether the program reads arguments as `sys.argv[1]`."""
    return any(
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and node.slice.value != 0
        and program.resolve(module, node.value) == "sys.argv"
        for module, node in program.nodes()
    )
