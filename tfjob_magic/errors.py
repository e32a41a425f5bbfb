"""What can go wrong for a user, one class per kind of answer.

Every message is one sentence that names the field and what would do. Faces show the message, the
server maps each class to an HTTP status, the client maps it back.
"""

from __future__ import annotations

from dataclasses import dataclass


class TfjobError(Exception):
    """A mistake or a misfortune that the user is told about in plain words."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong with one field of a job: the field's own name, and a sentence."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class InvalidJobError(TfjobError):
    """The job as asked for cannot be; all of its problems at once."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


class ConflictError(TfjobError):
    """Something of the user's is in the way: a file that is not ours, a run that is going on."""


class InUseError(ConflictError):
    """The code dir is in use by a live run, whose id is `run`."""

    def __init__(self, message: str, run: str) -> None:
        self.run = run
        super().__init__(message)


class NotFoundError(TfjobError):
    """No such run, task or log."""


class UnavailableError(TfjobError):
    """This machine, or what stands behind it, cannot do that now."""
