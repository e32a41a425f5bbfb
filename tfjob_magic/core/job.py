"""A Job: what the user asked for, validated and immutable."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from tfjob_magic.core.flavor import Flavor

PoolName = Literal["shared", "dedicated"]
NicName = Literal["auto", "none", "roce", "infiniband"]
NetworkName = Literal["auto", "container", "host"]
ClusterFlags = Literal["auto", "all", "none"]


class Job(BaseModel):
    """One job. Field names are the options' names; `parse` makes one out of raw values."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
    env: dict[str, str] = {}
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
