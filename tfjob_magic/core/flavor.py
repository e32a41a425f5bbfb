"""Flavors: named resources of one node (contract R7)."""

from __future__ import annotations

import difflib
import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from tfjob_magic.errors import InvalidJobError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

GIB = 1024  # MiB
LONGEST_SHOWN = 60  # characters of a wrong text


@dataclass(frozen=True)
class Flavor:
    """The resources of one node.

    `accelerators` counts devices of the kind `accelerator` (None on a CPU flavor, where the count
    is 0); `memory_mib` is in MiB (512 GB = 524288).
    """

    name: str
    accelerator: str | None
    accelerators: int
    cpus: int
    memory_mib: int


@dataclass(frozen=True)
class EightCards:
    """A public node with eight accelerators of one kind, and where its numbers are published."""

    kind: str
    cpus: int
    memory_mib: int
    source: str


NODES = (
    EightCards(
        "V100",
        72,
        512 * GIB,
        "ModelArts, Preparing Model Training Code, TensorFlow: "
        "GPU: 8*NVIDIA-V100 | CPU: 72 cores | Memory: 512 GB "
        "(support.huaweicloud.com/intl/en-us/docker-modelarts/docker-modelarts_0123.html)",
    ),
    EightCards(
        "snt9",
        192,
        768 * GIB,
        "ModelArts API, flavors of a notebook instance, example response: "
        "Ascend: 8*Ascend snt9|CPU: 192vCPUs 768GB (modelarts.bm.snt9.xlarge.8)",
    ),
    EightCards("T4", 96, 384 * GIB, "Amazon EC2 g4dn.metal (aws.amazon.com/ec2/instance-types)"),
    EightCards(
        "A10G", 192, 768 * GIB, "Amazon EC2 g5.48xlarge (aws.amazon.com/ec2/instance-types)"
    ),
    EightCards(
        "A100", 96, 1152 * GIB, "Amazon EC2 p4d.24xlarge (aws.amazon.com/ec2/instance-types)"
    ),
    EightCards(
        "H100", 192, 2048 * GIB, "Amazon EC2 p5.48xlarge (aws.amazon.com/ec2/instance-types)"
    ),
)


def eighths(node: EightCards, count: int) -> Flavor:
    """Make the flavor that is `count` eighths of a node: `v100x2`."""
    return Flavor(
        name=f"{node.kind.lower()}x{count}",
        accelerator=node.kind,
        accelerators=count,
        cpus=node.cpus * count // 8,
        memory_mib=node.memory_mib * count // 8,
    )


TABLE: dict[str, Flavor] = {
    flavor.name: flavor for node in NODES for flavor in (eighths(node, n) for n in (1, 2, 4, 8))
}

_KINDS = {node.kind.lower(): node for node in NODES}
_KIND_AND_COUNT = re.compile(r"([a-z0-9]+?)x(\d{1,9})")
_CPU_ONLY = re.compile(r"cpu-(\d{1,7})c(\d{1,7})g")
_NEARLY_CPU_ONLY = re.compile(r"cpu\D*(\d{1,7})\D+(\d{1,7})\D*")
_AMOUNT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([MGT])(?:i?B?)", re.IGNORECASE)
_MIB = {"M": 1, "G": GIB, "T": 1024 * GIB}
_CORES = re.compile(
    r"(\d{1,7})\s*(?:v?cpus?|v?cores?|核)?(?:[\s,]+(?P<memory>\S.*))?", re.IGNORECASE
)
_DEVICES = re.compile(r"(\d{1,4})\s*[*×xX]\s*(\S.*?)(?:\s*\([^()]*\))?")  # noqa: RUF001 - a times sign
_KIND = re.compile(r"[\w /().-]*\w[\w /().-]*")
_VENDOR = re.compile(r"^(?:nvidia|tesla|ascend)[-\s]+", re.IGNORECASE)
_CPU_KEYS = {"cpu", "vcpu", "vcpus"}
_MEMORY_KEYS = {"memory", "mem", "ram", "内存"}


def mib(text: str) -> int | None:
    """Memory as people write it (`512 GB`, `1.5TiB`, `800 MiB`) in MiB; None if it is not one."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        return None
    return int(Fraction(match[1]) * _MIB[match[2].upper()])


def is_kind(text: str) -> bool:
    """Whether an accelerator can be called so: letters, digits, spaces, and - _ . / ( )."""
    return _KIND.fullmatch(text) is not None


def parse(text: str, own: Mapping[str, Flavor]) -> Flavor:
    """Read a flavor: a name of the user's `own`, of the table, `cpu-8c32g`, or the console's text.

    Raises InvalidJobError with the nearest names for an unknown name (contract R7).
    """
    text = unicodedata.normalize("NFKC", text).strip()  # a full-width colon is a colon
    if text in own:
        return own[text]
    name = text.lower()
    if name in TABLE:
        return TABLE[name]
    if ":" in text:
        return _console(text)
    if match := _CPU_ONLY.fullmatch(name):
        return make(None, 0, int(match[1]), int(match[2]) * GIB)
    if (match := _KIND_AND_COUNT.fullmatch(name)) and match[1] in _KINDS:
        if 1 <= int(match[2]) <= 8:  # noqa: PLR2004 - a node's cards
            return eighths(_KINDS[match[1]], int(match[2]))
        raise _wrong(
            f"{_shown(text)} is not possible: a node has 8 of these accelerators; "
            f"--flavor takes {match[1]}x1 to {match[1]}x8, and --nodes the number of nodes"
        )
    if name.startswith("cpu"):
        raise _wrong(f"{_shown(text)} is not a flavor; {_cpu_remedy(name)}")
    near = difflib.get_close_matches(name, [*own, *TABLE], n=3, cutoff=0.5)
    remedy = (
        f"did you mean {', '.join(near)}?"
        if near
        else "the known ones begin with "
        + ", ".join([*own, *sorted(f"{kind}x" for kind in _KINDS)])
    )
    raise _wrong(
        f"there is no flavor {_shown(text)}; {remedy} (--flavor also takes cpu-8c32g, and the "
        "console's GPU: 8*NVIDIA-V100 | CPU: 72 cores | Memory: 512 GB)"
    )


def _cpu_remedy(name: str) -> str:
    """Say how a CPU flavor is written, with the numbers of a text that is nearly one."""
    if match := _NEARLY_CPU_ONLY.fullmatch(name):
        return f"did you mean cpu-{match[1]}c{match[2]}g?"
    return "--flavor takes a node of 8 cores and 32 GB as cpu-8c32g"


def make(accelerator: str | None, accelerators: int, cpus: int, memory_mib: int) -> Flavor:
    """Make a flavor with the name by which `parse` finds the same one again."""
    if cpus < 1 or memory_mib < 1:
        raise _wrong("a node needs at least one core and some memory: --flavor cpu-1c1g or more")
    if not accelerators:
        accelerator = None
    if accelerator and accelerator.lower() in _KINDS and accelerators <= 8:  # noqa: PLR2004
        known = eighths(_KINDS[accelerator.lower()], accelerators)
        if (cpus, memory_mib) == (known.cpus, known.memory_mib):
            return known
    if accelerator is None and memory_mib % GIB == 0:
        name = f"cpu-{cpus}c{memory_mib // GIB}g"
    else:
        memory = f"{memory_mib // GIB} GB" if memory_mib % GIB == 0 else f"{memory_mib} MB"
        devices = f"GPU: {accelerators}*{accelerator} | " if accelerator else ""
        name = f"{devices}CPU: {cpus} cores | Memory: {memory}"
    return Flavor(name, accelerator, accelerators, cpus, memory_mib)


def _console(text: str) -> Flavor:
    r"""Read a flavor as the console prints it; `\|`, as a table in Markdown has it, is a `|`."""
    accelerator: str | None = None
    accelerators = 0
    cpus: int | None = None
    memory: int | None = None
    for part in text.replace("\\|", "|").split("|"):
        key, colon, value = part.partition(":")
        key, value = key.strip().lower(), value.strip()
        if not colon or not value:
            raise _wrong(f"cannot read {_shown(part.strip())} of {_shown(text)}; {_EXAMPLE}")
        if key in _MEMORY_KEYS:
            memory = mib(value)
            if memory is None:
                raise _wrong(f"cannot read the memory {_shown(value)}; --flavor takes it as 512 GB")
        elif key in _CPU_KEYS:
            match = _CORES.fullmatch(value)
            if match is None:
                raise _wrong(
                    f"cannot read the cores {_shown(value)}; --flavor takes them as 72 cores"
                )
            cpus = int(match[1])
            if match["memory"] is not None:  # as some lists print it: CPU: 192vCPUs 768GB
                memory = mib(match["memory"])
        else:
            accelerators, accelerator = _devices(value)
    if cpus is None or memory is None:
        missing = "CPU" if cpus is None else "memory"
        raise _wrong(f"{_shown(text)} does not say its {missing}; {_EXAMPLE}")
    return make(accelerator, accelerators, cpus, memory)


def _devices(text: str) -> tuple[int, str]:
    """Read `8*NVIDIA-V100`: how many, of which kind."""
    match = _DEVICES.fullmatch(text)
    if match is None:
        raise _wrong(f"cannot read the accelerators {_shown(text)}; {_EXAMPLE}")
    kind = _VENDOR.sub("", match[2].strip())
    if not is_kind(kind):
        raise _wrong(
            f"{_shown(kind)} is not the name of an accelerator; write it with letters, digits,"
            " spaces and - _ . / ( )"
        )
    return int(match[1]), _known_spelling(kind)


_EXAMPLE = "--flavor takes it as GPU: 8*NVIDIA-V100 | CPU: 72 cores | Memory: 512 GB"


def _known_spelling(kind: str) -> str:
    return _KINDS[kind.lower()].kind if kind.lower() in _KINDS else kind


def _shown(text: str) -> str:
    return repr(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…")


def _wrong(message: str) -> InvalidJobError:
    return InvalidJobError([Problem("flavor", message)])
