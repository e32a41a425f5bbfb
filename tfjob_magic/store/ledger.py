"""The ledger: which cores and devices of this machine a user's runs have (contract R9).

One file per host and user, and locks on bytes of it: a run has a device when its byte is locked
for it alone, and uses a core when it has a share of its byte. The open file is handed to the
supervisor, so the locks end exactly when the run does, however it does.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfjob_magic.errors import UnavailableError
from tfjob_magic.store import locks, private

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Self

    from tfjob_magic.core.node import Machine

TURN = 0  # the byte whose holder chooses now
CORES = 1 << 20  # core n is byte CORES + n
DEVICES = 1 << 40  # a device's byte is a hash of its id above this one
PATIENCE = 10.0  # seconds to wait for one's turn


def places() -> list[Path]:
    """Where the ledger of this user on this host may be: the first that can be used is the one.

    The first depends on no variable, since a terminal's and a service's differ and every face must
    find the same ledger. Another user may be in its way, or it may be on a read-only disk: then it
    is beside this user's runs, under the host's name, since hosts may share that directory.
    """
    shared = "/tmp" if sys.platform == "linux" else tempfile.gettempdir()  # noqa: S108
    found = [Path(shared, f"tfjob-{os.geteuid()}")]
    with suppress(RuntimeError):  # this user has no home directory
        found.append(private.state_home() / f"ledger-{os.uname().nodename}")
    return found


class Ledger:
    """One run's hold on the ledger.

    From opening to `end_turn` or `close` it is this run's turn: another that wants to choose waits,
    so two runs never choose by the same state of things.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._fd, path = _open([directory] if directory else places())
        self._await_turn(path)

    def _await_turn(self, path: Path) -> None:
        deadline = time.monotonic() + PATIENCE
        while not locks.take(self._fd, TURN, 1):
            if time.monotonic() > deadline:
                self.close()
                raise UnavailableError(
                    f"another submission has held the ledger {str(path)!r} for {PATIENCE:g} s; "
                    "end the process that `lsof` names for it, or try again"
                )
            time.sleep(0.005)

    @property
    def fd(self) -> int:
        """The open file that has the locks: hand it to the supervisor."""
        return self._fd

    def order(self, machine: Machine) -> Machine:
        """Give the machine as this run may have it: free cores first, no devices of others."""
        if sys.platform != "linux":
            return machine
        cores = sorted(machine.cores, key=lambda core: locks.is_taken(self._fd, CORES + core, 1))
        devices = tuple(
            device
            for device in machine.devices
            if not locks.is_taken(self._fd, _device_byte(device.id), 1)
        )
        return replace(machine, cores=tuple(cores), devices=devices)

    def take(self, cores: Iterable[int], devices: Iterable[str]) -> None:
        """Enter what this run was granted; `order` has left out what cannot be had."""
        if sys.platform != "linux":
            return
        for core in cores:
            locks.take(self._fd, CORES + core, 1, shared=True)
        for device in devices:
            locks.take(self._fd, _device_byte(device), 1)

    def end_turn(self) -> None:
        """Let others choose; what was taken stays taken."""
        locks.release(self._fd, TURN, 1)

    def close(self) -> None:
        """Let go, as far as this process is concerned."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _device_byte(device: str) -> int:
    digest = hashlib.blake2b(device.encode(), digest_size=5).digest()
    return DEVICES + int.from_bytes(digest, "big")


def _open(directories: Sequence[Path]) -> tuple[int, Path]:
    """Open the ledger in the first of the directories that can be used."""
    reasons = []
    for directory in directories:
        path = directory / "ledger"
        try:
            directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            private.make(directory)
            return _open_file(path), path
        except OSError as error:
            reasons.append(f"{str(path)!r} ({error.strerror})")
    raise UnavailableError(
        f"the ledger of cores and devices cannot be opened: {', '.join(reasons)};"
        f" remove what is in its place, or make it writable"
    )


def _open_file(path: Path) -> int:
    fd = locks.open_to_lock(path)
    try:
        # Cleaners of temporary directories leave a file alone that has the sticky bit
        # (XDG base directory specification).
        if sys.platform == "linux":
            os.fchmod(fd, 0o600 | stat.S_ISVTX)
    except OSError:
        os.close(fd)
        raise
    return fd
