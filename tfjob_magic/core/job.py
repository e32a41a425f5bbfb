"""A Job: what the user asked for, validated and immutable."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tfjob_magic.core import shares
from tfjob_magic.core.asked import NAME_LENGTH, check, check_field
from tfjob_magic.errors import InvalidJobError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfjob_magic.core.flavor import Flavor

PoolName = Literal["shared", "dedicated"]
NicName = Literal["auto", "none", "roce", "infiniband"]
NetworkName = Literal["auto", "container", "host"]
ClusterFlags = Literal["auto", "all", "none"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job. Field names are the options' names; `parse` makes one out of raw values."""

    name: str
    job_dir: str  # absolute; becomes MA_JOB_DIR
    code_dir: str  # the folder's name inside job_dir: one path component
    boot_file: str = "train.py"  # a file's name inside the code dir
    parameters: tuple[str, ...] = ()
    nodes: int = 1
    flavor: Flavor
    pool: PoolName = "shared"
    nic: NicName = "auto"
    network: NetworkName = "auto"
    python: str  # absolute path of the interpreter
    env: Mapping[str, str] = field(default_factory=dict)
    ps: int | None = None
    workers: int | None = None
    chief: bool = False
    evaluator: bool = False
    timeout: float | None = None  # seconds
    grace: float = 10.0  # seconds
    strict: bool = False
    cluster_flags: ClusterFlags = "auto"

    @property
    def cwd(self) -> str:
        """The directory where tasks run, `<job dir>/<code dir>` (contract C2)."""
        return f"{self.job_dir.rstrip('/')}/{self.code_dir}"

    @property
    def seats(self) -> tuple[shares.Seat, ...]:
        """The job's tasks and the nodes they are dealt to, in the order in which they start."""
        ps, workers = shares.counts(self.nodes, self.ps, self.workers, chief=self.chief)
        return shares.deal(self.nodes, ps, workers, chief=self.chief, evaluator=self.evaluator)


def parse(raw: Mapping[str, object], own: Mapping[str, Flavor]) -> Job:
    """Make a Job out of raw values: strings of a line or JSON's values, by the fields of `Job`.

    What is absent or None takes its default. `own` are the user's flavors. Raises InvalidJobError
    with all problems at once.
    """
    values, problems = check(raw, own)
    if problems:
        raise InvalidJobError(problems)
    checked: dict[str, Any] = values
    return Job(**checked)


def parse_grace(value: object) -> float:
    """Check a grace by itself, in seconds; the same errors as `parse`."""
    seconds = check_field("grace", value, {})
    assert isinstance(seconds, float)  # noqa: S101 - what its rule gives
    return seconds


def slug(text: str) -> str:
    """Turn any text into a name that a job may have (`My Net.ipynb` into `my-net-ipynb`)."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:NAME_LENGTH].strip("-") or "job"
