"""What this machine has: cores, memory, accelerators, fast network cards. It only looks."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psutil

from tfjob_magic.core.node import Device, Machine, Nic
from tfjob_magic.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

MIB = 1024 * 1024


def look(root: str | os.PathLike[str] = "/") -> Machine:
    """Say what this machine has for this process.

    Cores are those the process may run on, no more than a cgroup's quota pays for; memory is the
    machine's or, if less, the cgroup's limit, in MiB. `root` is where /proc and /sys lie. Raises
    UnavailableError where the system does not tell.
    """
    base = Path(root)
    try:
        return Machine(
            cores=_cores(base),
            memory_mib=_memory(base) // MIB,
            devices=devices(),
            nics=tuple(_nics(base)),
        )
    except OSError as error:
        raise UnavailableError(
            f"what this machine has cannot be read ({error}); see to /proc and `ulimit -n`"
        ) from error


def _cores(root: Path) -> tuple[int, ...]:
    if hasattr(os, "sched_getaffinity"):
        cores = sorted(os.sched_getaffinity(0))
    else:
        cores = list(range(os.cpu_count() or 1))
    quotas = [*_quotas_v2(root), *_quotas_v1(root)]
    return tuple(cores[: max(1, int(min(quotas)))] if quotas else cores)


def _memory(root: Path) -> int:
    limits = [psutil.virtual_memory().total]
    for directory in _cgroups(root, ""):
        limits += _numbers(_read(directory / "memory.max"))
    for directory in _cgroups(root, "memory"):
        limits += _numbers(_read(directory / "memory.limit_in_bytes"))
    return min(limits)


def _quotas_v2(root: Path) -> Iterator[float]:
    for directory in _cgroups(root, ""):
        numbers = _numbers(_read(directory / "cpu.max"))
        if len(numbers) == 2 and numbers[1]:  # noqa: PLR2004 - quota and period; "max" is no quota
            yield numbers[0] / numbers[1]


def _quotas_v1(root: Path) -> Iterator[float]:
    for directory in _cgroups(root, "cpu"):
        quota = _numbers(_read(directory / "cpu.cfs_quota_us"))  # -1 is no quota
        period = _numbers(_read(directory / "cpu.cfs_period_us"))
        if quota and period and period[0]:
            yield quota[0] / period[0]


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """The directories of this process's cgroup and those above it: each may limit.

    The controller is empty for version 2. In a container the path may be the host's; what is not
    there is skipped, and the mount's own directory comes last.
    """
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / controllers
        if controller and not mount.is_dir():
            mount = root / "sys/fs/cgroup" / controller
        directory = mount / path.lstrip("/")
        while directory != mount and mount in directory.parents:
            yield directory
            directory = directory.parent
        yield mount


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split() if word.isdecimal()]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # not there, or not ours to read
        return ""


def _nics(root: Path) -> Iterator[Nic]:
    """The cards with an active port, with their fastest port's bandwidth (contract N6)."""
    directory = root / "sys/class/infiniband"
    if not directory.is_dir():
        return
    for card in sorted(directory.iterdir()):
        ports = [port for port in sorted(card.glob("ports/*")) if _active(port)]
        if not ports:
            continue
        best = max(ports, key=lambda port: _gbps(port) or 0)
        kind: Literal["infiniband", "roce"] = (
            "infiniband" if _read(best / "link_layer").strip() == "InfiniBand" else "roce"
        )
        yield Nic(kind, card.name, _gbps(best))


def _active(port: Path) -> bool:
    """Whether the port has a link; `state` reads `4: ACTIVE`."""
    return "ACTIVE" in _read(port / "state").upper().split()


def _gbps(port: Path) -> int | None:
    """The port's rate, from `100 Gb/sec (4X EDR)`."""
    match = re.match(r"([0-9.]+)\s*Gb/sec", _read(port / "rate"))
    return int(float(match[1])) if match else None


def devices() -> tuple[Device, ...]:
    """The NVIDIA accelerators of this machine, in the driver's order; MIG slices one by one.

    Without the library, the driver or the permission there are none. A CUDA_VISIBLE_DEVICES of
    this process limits them: whoever set it (a batch system, say) gave the others to somebody else.
    """
    try:
        import pynvml  # noqa: PLC0415 - slow, and of no use on most machines
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        found = tuple(_each_device(pynvml))
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()
    return _visible(found, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _visible(found: tuple[Device, ...], listed: str | None) -> tuple[Device, ...]:
    """The devices that CUDA would see: by position or by an id's beginning, up to a wrong entry."""
    if listed is None:
        return found
    seen: list[Device] = []
    for entry in (part.strip() for part in listed.split(",")):
        if entry.isdecimal():
            match = found[int(entry) : int(entry) + 1]
        else:
            match = tuple(device for device in found if entry and device.id.startswith(entry))[:1]
        if not match:
            break
        seen += match
    return tuple(seen)


def _each_device(nvml: ModuleType) -> Iterator[Device]:
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        slices = list(_slices(nvml, handle))
        for part in slices or [handle]:
            yield Device(
                id=_text(nvml.nvmlDeviceGetUUID(part)),
                kind=_text(nvml.nvmlDeviceGetName(handle)),
                memory_mib=_device_memory(nvml, part),
            )


def _slices(nvml: ModuleType, handle: Any) -> Iterator[Any]:  # noqa: ANN401 - NVML's own handles
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if current else 0
    except nvml.NVMLError:  # most devices know no slices
        return
    for index in range(count):
        with contextlib.suppress(nvml.NVMLError):  # an empty place
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)


def _device_memory(nvml: ModuleType, handle: Any) -> int | None:  # noqa: ANN401
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total) // MIB
    except nvml.NVMLError:  # not supported here: unknown, not 0
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
