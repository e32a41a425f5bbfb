"""Code dirs: the boot file is written there, and nothing of the user's is lost.

`.tfjob.json` in the code dir says which files we wrote and what they held then. A boot file that
holds anything else is the user's: somebody edited it, or it never was ours.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tfjob_magic.errors import ConflictError, InvalidJobError, Problem
from tfjob_magic.store import locks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RECORD = ".tfjob.json"
_PATIENCE = 2.0  # seconds; a submit holds its code dir for a tenth of one
_PAUSE = 0.02


@contextmanager
def hold(path: Path, directory: Path) -> Iterator[CodeDir]:
    """Keep every other submit of this user out of a code dir, which need not exist yet.

    The lock is a file in `directory` (whose parent exists) and gone afterwards: code dirs may lie
    where nothing can be locked or written. What was staged and not committed at the end is taken
    back. ConflictError where another submit stays in the code dir.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    lock = directory / f"{_digest(os.fsencode(os.path.realpath(path)))[:32]}.lock"
    deadline = time.monotonic() + _PATIENCE
    while (descriptor := _lock(lock)) is None:
        if time.monotonic() > deadline:
            raise ConflictError(
                f"code_dir: another job is being started in {str(path)!r};"
                f" wait for it, or choose another folder with --code-dir"
            )
        time.sleep(_PAUSE)
    code_dir = CodeDir(path)
    try:
        yield code_dir
    finally:
        code_dir.take_back()
        lock.unlink()
        os.close(descriptor)


def _lock(path: Path) -> int | None:
    descriptor = locks.open_to_lock(path)
    with suppress(FileNotFoundError):  # its holder has just removed it
        if locks.take(descriptor) and os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    os.close(descriptor)
    return None


class CodeDir:
    """A code dir that is held: `stage` writes the boot file beside its place, `commit` into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._made: list[Path] = []
        self._aside: Path | None = None
        self._target = path
        self._data = b""

    def stage(self, boot_file: str, text: str) -> None:
        """Write the text aside, making the directory where there is none.

        Text that is in its place already is not written again. ConflictError where a file that is
        not ours is in that place, InvalidJobError where nothing can be written.
        """
        self._target = self.path / boot_file
        self._data = text.encode()
        with _written(self.path):
            self._make_directories()
            if self._differs():
                directory = self._new_name()
                directory.mkdir(mode=0o700)
                self._aside = directory / boot_file
                _write_new(self._aside, self._data, durable=True)
                with suppress(FileNotFoundError):
                    shutil.copymode(self._target, self._aside)

    def commit(self) -> None:
        """Put the staged text in its place; the same errors as `stage`."""
        with _written(self._target):
            if self._aside is not None and self._differs():
                name, digest = self._target.name, _digest(self._data)
                record = self._record()
                # Old and new text are ours while the one replaces the other.
                self._write_record({**record, name: [*record.get(name, []), digest]})
                self._aside.replace(self._target)
                self._write_record({**record, name: [digest]})
        self._remove_aside()
        self._made.clear()

    def take_back(self) -> None:
        """Undo what was not committed."""
        self._remove_aside()
        while self._made:
            with suppress(OSError):  # something else has settled in it
                self._made.pop().rmdir()

    @property
    def staged(self) -> Path:
        """The file that holds the staged text under the boot file's own name, committed or not."""
        return self._aside or self._target

    def _remove_aside(self) -> None:
        if self._aside is not None:
            self._aside.unlink(missing_ok=True)
            self._aside.parent.rmdir()
            self._aside = None

    def _make_directories(self) -> None:
        for directory in reversed([self.path, *self.path.parents]):
            if not directory.is_dir():
                directory.mkdir()
                self._made.append(directory)

    def _differs(self) -> bool:
        """Whether the text is not there yet; ConflictError where it would replace the user's."""
        if self._target.is_symlink():
            raise self._not_ours("is a symbolic link")
        if not self._target.exists():
            return True
        if not self._target.is_file():
            raise self._not_ours("is not a file")
        present = self._target.read_bytes()
        if present == self._data:
            return False
        written = self._record().get(self._target.name)
        if written is None:
            raise self._not_ours("was not written by %%tfjob")
        if _digest(present) not in written:
            raise self._not_ours("was changed since %%tfjob wrote it")
        return True

    def _not_ours(self, why: str) -> ConflictError:
        return ConflictError(
            f"boot_file: {str(self._target)!r} {why}, so it is not overwritten; choose another"
            f" folder with --code-dir or another name with --boot-file, or move that file away"
        )

    def _record(self) -> dict[str, list[str]]:
        path = self.path / RECORD
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return {}
        if not data:  # the machine went down while it was written
            return {}
        try:
            written: dict[str, list[str]] = json.loads(data)["written"]
        except (ValueError, KeyError, TypeError):
            raise ConflictError(
                f"code_dir: {str(path)!r} is where tfjob keeps its record and holds something else;"
                f" move it away, or choose another folder with --code-dir"
            ) from None
        return written

    def _write_record(self, written: dict[str, list[str]]) -> None:
        record = {"about": "what %%tfjob wrote here, as SHA-256", "written": written}
        aside = self._new_name()
        _write_new(aside, json.dumps(record).encode() + b"\n", durable=False)
        aside.replace(self.path / RECORD)

    def _new_name(self) -> Path:
        return self.path / f".tfjob-{secrets.token_hex(4)}.tmp"


@contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = os.fsdecode(error.filename or path)
        message = f"{where!r} cannot be written ({error.strerror}); choose a place with --job-dir"
        raise InvalidJobError([Problem("job_dir", message)]) from error


def _write_new(path: Path, data: bytes, *, durable: bool) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        if durable:
            os.fsync(file.fileno())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
