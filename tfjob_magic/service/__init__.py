"""The one entry for every face: preview, submit, list, get, stop, remove, poll."""

from tfjob_magic.service.model import (
    Batch,
    Cause,
    Chunk,
    Jobs,
    Run,
    Submission,
    TaskStatus,
)

__all__ = ["Batch", "Cause", "Chunk", "Jobs", "Run", "Submission", "TaskStatus"]
