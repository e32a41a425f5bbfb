"""Which of the cluster flags a boot file would take (contract C4, C5, C6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Flags:
    """The cluster flags to pass, in the order to pass them, and what to say about it.

    `passed` are spelled as on the command line (`--task_index`, `--PS_hosts`); `notes` are
    sentences for the plan.
    """

    passed: tuple[str, ...]
    notes: tuple[str, ...]


ALL = Flags(("--task_index", "--ps_hosts", "--worker_hosts", "--job_name"), ())


def choose(
    policy: Literal["auto", "all", "none"],
    boot_file: str,  # noqa: ARG001
    sources: Mapping[str, str],  # noqa: ARG001
) -> Flags:
    """Choose the flags to pass to `boot_file`; `sources` maps relative paths to texts."""
    return Flags((), ()) if policy == "none" else ALL
