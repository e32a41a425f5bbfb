"""Code dirs: the boot file is written there, and nothing of the user's is lost.

`.tfjob.json` in the code dir says which files we wrote and what they held then. A boot file that
holds anything else is the user's: somebody edited it, or it never was ours.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from tfjob_magic.errors import ConflictError, InvalidJobError, Problem
from tfjob_magic.store import locks, private
from tfjob_magic.store.rundir import reached

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TypeGuard

RECORD = ".tfjob.json"
_PATIENCE = 2.0  # seconds; a submit holds its code dir for a tenth of one
_PAUSE = 0.02
_ATTEMPTS = 20  # at a directory that others remove while we use it
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@contextmanager
def hold(path: Path, directory: Path) -> Iterator[CodeDir]:
    """Keep every other submit of this user out of a code dir, which need not exist yet.

    The lock is a file in `directory` (whose parent exists) and gone afterwards: code dirs may lie
    where nothing can be locked or written. What was staged and not committed at the end is taken
    back. ConflictError where another submit stays in the code dir, UnavailableError where
    `directory` cannot be used.
    """
    with reached(directory):
        private.make(directory)
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
    with ExitStack() as undo:
        undo.callback(os.close, descriptor)
        undo.callback(_remove, lock)  # while it is held
        undo.callback(code_dir.take_back)
        yield code_dir


def _lock(path: Path) -> int | None:
    with reached(path), ExitStack() as undo:
        descriptor = locks.open_to_lock(path)
        undo.callback(os.close, descriptor)
        with suppress(FileNotFoundError):  # its holder has just removed it
            if locks.take(descriptor) and os.path.samestat(os.fstat(descriptor), path.stat()):
                undo.pop_all()
                return descriptor
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
            if self._differs():
                self._aside = self._make_private() / boot_file
                _write_new(self._aside, self._data, durable=True)
                with suppress(FileNotFoundError):
                    shutil.copymode(self._target, self._aside)

    def commit(self) -> None:
        """Put the staged text in its place; the same errors as `stage`."""
        with _written(self._target):
            if self._aside is not None and self._differs():
                name, digest = self._target.name, _digest(self._data)
                record = self._record()
                ours = record.get(name, [])
                # Old and new text are ours while the one takes the place of the other.
                self._write_record({**record, name: [*ours, digest]})
                try:
                    self._put_in_place(self._aside, ours)
                except ConflictError:
                    self._write_record(record)
                    raise
                self._write_record({**record, name: [digest]})
        self._remove_aside()
        self._made.clear()

    def take_back(self) -> None:
        """Undo what was not committed, as far as that can be done."""
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
            _remove(self._aside)
            with suppress(OSError):  # something else has settled in it
                self._aside.parent.rmdir()
            self._aside = None

    def _make_private(self) -> Path:
        """Make the directory where the text is staged, and those above it."""
        attempts = _ATTEMPTS
        while True:
            directory = self._new_name()
            try:
                self._make_directories()
                directory.mkdir(mode=0o700)
            except FileNotFoundError:  # who had made one above it has just taken it back
                attempts -= 1
                if not attempts:
                    raise
            else:
                return directory

    def _make_directories(self) -> None:
        for directory in reversed([self.path, *self.path.parents]):
            if directory.is_dir():
                continue
            try:
                directory.mkdir()
            except FileExistsError:
                if not directory.is_dir():
                    raise
            else:
                self._made.append(directory)

    def _put_in_place(self, staged: Path, ours: list[str]) -> None:
        """Give the staged text its place, and replace nothing: what is there is moved away first.

        It may be another file than the one that was looked at, so it is looked at once more.
        """
        old = self._new_name()
        try:
            self._target.rename(old)
        except FileNotFoundError:
            self._link(staged)
            return
        try:
            self._check_moved(old, ours)
            self._link(staged)
        except BaseException:
            if not self._put_back(old) and _holds_one_of(old, ours):
                _remove(old)
            raise
        _remove(old)

    def _check_moved(self, old: Path, ours: list[str]) -> None:
        if not _holds_one_of(old, ours):
            raise self._not_ours("was changed since %%tfjob wrote it")

    def _link(self, staged: Path) -> None:
        try:
            try:
                os.link(staged, self._target)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                _write_new(self._target, self._data, durable=True)
                shutil.copymode(staged, self._target)
        except FileExistsError:
            raise self._not_ours("was written meanwhile, and not by %%tfjob") from None

    def _put_back(self, old: Path) -> bool:
        """Put what was moved away back; False where something else is in its place by now."""
        try:
            os.link(old, self._target, follow_symlinks=False)
        except FileExistsError:
            return False
        except OSError:  # a directory, or a file system without links
            if os.path.lexists(self._target):
                return False
            old.rename(self._target)
        else:
            _remove(old)
        return True

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
            record = json.loads(data)
        except (ValueError, RecursionError):
            record = None
        written = record.get("written") if isinstance(record, dict) else None
        if not _is_written(written):
            raise ConflictError(
                f"code_dir: {str(path)!r} is where tfjob keeps its record and holds something else;"
                f" move it away, or choose another folder with --code-dir"
            )
        return written

    def _write_record(self, written: dict[str, list[str]]) -> None:
        record = {"about": "what %%tfjob wrote here, as SHA-256", "written": written}
        aside = self._new_name()
        try:
            _write_new(aside, json.dumps(record).encode() + b"\n", durable=False)
            aside.replace(self.path / RECORD)
        except BaseException:
            _remove(aside)
            raise

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


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _holds_one_of(path: Path, digests: list[str]) -> bool:
    try:
        return not path.is_symlink() and path.is_file() and _digest(path.read_bytes()) in digests
    except OSError:  # not even readable
        return False


def _is_written(value: object) -> TypeGuard[dict[str, list[str]]]:
    return isinstance(value, dict) and all(
        isinstance(digests, list) and all(isinstance(digest, str) for digest in digests)
        for digests in value.values()
    )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
