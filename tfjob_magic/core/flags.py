"""Which of the cluster flags a boot file would take (contract C4, C5, C6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfjob_magic.core.job import ClusterFlags
from tfjob_magic.core.parsers import Parser, parsers
from tfjob_magic.core.syntax import program


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
    read = program(boot_file, sources)
    if read is None:
        note = f"{boot_file} could not be read as Python 3: all four cluster flags are passed to it"
        return Flags(ALL.passed, (note,) if policy == "auto" and boot_file in sources else ())
    found = parsers(read)
    declared: set[str] = set().union(*(parser.declared for parser in found))
    wanted = tuple(
        "--PS_hosts" if flag == "--ps_hosts" and "--PS_hosts" in declared else flag
        for flag in (*ALL.passed, *(("--task_name",) if "--task_name" in declared else ()))
    )
    if policy == "all":
        return Flags(wanted, ())
    passed = tuple(flag for flag in wanted if all(parser.takes(flag) for parser in found))
    left_out = [flag for flag in wanted if flag not in passed]
    return Flags(passed, (_note(boot_file, left_out, found),) if left_out else ())


def _note(boot_file: str, left_out: list[str], found: list[Parser]) -> str:
    """One line: what is left out and why, and that the service would pass it."""
    by = " and ".join(
        dict.fromkeys(p.kind for p in found if not all(p.takes(flag) for flag in left_out))
    )
    last = f" and {left_out[-1]}" if len(left_out) > 1 else left_out[-1]
    names = ", ".join(left_out[:-1]) + last
    seems = " seems to" if any(parser.guessed for parser in found) else ""
    verb = "refuse" if seems else "refuses"
    return (
        f"{names} left out: {boot_file} ({by}){seems} {verb} "
        f"{'it' if len(left_out) == 1 else 'them'}; ModelArts passes all four there "
        "(--cluster-flags all does the same)"
    )
