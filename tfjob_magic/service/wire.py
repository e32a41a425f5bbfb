"""The JSON in which the service's values and errors travel, the same through every door."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from tfjob_magic import errors
from tfjob_magic.core import plan as plans
from tfjob_magic.errors import InUseError, InvalidJobError, Problem, TfjobError, UnavailableError
from tfjob_magic.service.model import Batch, Run

if TYPE_CHECKING:
    from tfjob_magic.core.plan import Plan

T = TypeVar("T")

_ERRORS: dict[str, type[TfjobError]] = {
    cls.__name__: cls
    for cls in (errors.ConflictError, errors.NotFoundError, errors.UnavailableError)
}


class Hello(BaseModel):
    """Who answers: the user, the package's version, and where the runs are kept."""

    uid: int
    version: str
    home: str


class PollRequest(BaseModel):
    """Cursors are byte offsets by task; `wait` is in seconds. The service checks them."""

    model_config = ConfigDict(extra="forbid")

    cursors: dict[str, int] = {}
    wait: float = 0.0


class StopRequest(BaseModel):
    """`grace`, in seconds, takes the place of the job's own. The service checks it."""

    model_config = ConfigDict(extra="forbid")

    grace: float | None = None


class ErrorReply(BaseModel):
    """One of `tfjob_magic.errors`, by its class's name."""

    error: str
    message: str
    problems: list[Problem] = []
    run: str | None = None  # which one is in the way, of an InUseError


_adapters: dict[object, TypeAdapter[Any]] = {}  # one costs a millisecond to make


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


# Python's own JSON between pydantic and the bytes: a path or a variable that is not UTF-8 holds
# lone surrogates, which only Python's writes and reads.


def encode(kind: type[T], value: T) -> bytes:
    """Make the JSON of a value of this kind; InvalidJobError where JSON cannot hold it."""
    try:
        # NaN stays: it is refused where the value is checked, and as null would be the default.
        return json.dumps(_adapter(kind).dump_python(value, warnings=False)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidJobError([Problem("body", f"JSON cannot hold this: {error}")]) from None


def decode(kind: type[T], data: bytes) -> T:
    """Read a value; InvalidJobError with all that is wrong where the JSON is not of this kind."""
    try:
        return _adapter(kind).validate_python(json.loads(data))
    except ValidationError as error:
        problems = [
            Problem(".".join(map(str, item["loc"])) or "body", item["msg"])
            for item in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise InvalidJobError(problems) from None
    except (ValueError, RecursionError) as error:
        raise InvalidJobError([Problem("body", f"this is not JSON: {error}")]) from None


def encode_batch(batch: Batch) -> bytes:
    """Make the JSON of a batch; bytes are in standard Base64, as a browser's `atob` reads it."""
    run = _adapter(Run).dump_python(batch.run)
    chunks = [{**vars(chunk), "data": b64encode(chunk.data).decode()} for chunk in batch.chunks]
    return json.dumps({"run": run, "chunks": chunks}).encode()


def decode_batch(data: bytes) -> Batch:
    """Read the batch that `encode_batch` wrote."""
    raw = json.loads(data)
    chunks = [{**chunk, "data": b64decode(chunk["data"])} for chunk in raw["chunks"]]
    return _adapter(Batch).validate_python({**raw, "chunks": chunks})


def encode_plan(plan: Plan) -> bytes:
    """Make the JSON of a plan that `tfjob plan --json` prints, but with nothing masked."""
    return json.dumps(plans.to_json(plan, masked=False)).encode()


def decode_plan(data: bytes) -> Plan:
    """Read the plan that `encode_plan` wrote."""
    return plans.from_json(json.loads(data))


def encode_error(error: TfjobError) -> bytes:
    """Make the JSON of an error."""
    problems = list(error.problems) if isinstance(error, InvalidJobError) else []
    run = error.run if isinstance(error, InUseError) else None
    reply = ErrorReply(error=type(error).__name__, message=str(error), problems=problems, run=run)
    return encode(ErrorReply, reply)


def decode_error(data: bytes) -> TfjobError:
    """Read an error; one that is not ours becomes an UnavailableError."""
    try:
        reply = decode(ErrorReply, data)
    except InvalidJobError:
        return UnavailableError("the Jupyter server could not do that; its log says why")
    if reply.error == InvalidJobError.__name__:
        return InvalidJobError(reply.problems)
    if reply.error == InUseError.__name__ and reply.run is not None:
        return InUseError(reply.message, reply.run)
    return _ERRORS.get(reply.error, UnavailableError)(reply.message)
