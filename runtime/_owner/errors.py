"""The errors that readers see, from what the ownership core says of a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from runtime import exceptions
from runtime._core import ids
from runtime._ownership.failures import (
    ActorDied,
    ActorUnavailable,
    Cancelled,
    CannotSend,
    ConstructorFailed,
    EnvironmentFailed,
    Freed,
    GroupRemoved,
    Lost,
    NodeDied,
    NotCreated,
    NotRebuilt,
    ObjectFailure,
    OutOfMemory,
    OwnerDied,
    ReplayDiffers,
    StaleHandle,
    StreamEnded,
    TaskFailure,
    Unschedulable,
    WorkerCrashed,
)
from runtime._wire.messages.base import WorkerAddress

from .actor_errors import UnreadDeath, death_of

# The same bytes each time: pickle writes them once, however many references to objects of one owner it meets.
encode_address = lru_cache(1024)(msgspec.msgpack.Encoder().encode)
decode_address = lru_cache(1024)(msgspec.msgpack.Decoder(WorkerAddress).decode)


def _of_object(
    cls: type[exceptions.ObjectLostError],
) -> Callable[[ObjectFailure, bytes, str], exceptions.ObjectLostError]:
    return lambda failure, owner, site: cls(failure.object_id.hex(), owner, site)


def _not_rebuilt(failure: NotRebuilt, owner: bytes, site: str) -> exceptions.ObjectLostError:
    return exceptions.ObjectReconstructionFailedError(
        failure.object_id.hex(), failure.reason, failure.detail, owner, site
    )


_OBJECT_ERRORS: Final[Mapping[type, Callable[[Any, bytes, str], exceptions.ObjectLostError]]] = {
    OwnerDied: _of_object(exceptions.OwnerDiedError),
    Lost: _of_object(exceptions.ObjectLostError),
    Freed: _of_object(exceptions.ObjectFreedError),
    NotRebuilt: _not_rebuilt,
}


def error_of(
    failure: ObjectFailure, us: WorkerAddress, site_of: Callable[[bytes], str]
) -> exceptions.ObjectLostError:
    """The error of a failure.

    Args:
        us: the address of this process, which owns what has no other owner.
        site_of: where the reference to one of our objects was made, see `TaskIds.site_of`.
    """
    address = encode_address(failure.owner or us)
    return _OBJECT_ERRORS[failure.__class__](failure, address, site_of(failure.object_id))


def _crashed(failure: WorkerCrashed) -> exceptions.RayError:
    error = exceptions.WorkerCrashedError()
    reason = failure.reason or "its worker is gone"
    error.add_note(f"Task {failure.function_name} ({failure.task_id.hex()}): {reason}.")
    return error


def _stale(failure: StaleHandle) -> exceptions.RayError:
    return exceptions.ActorHandleNotFoundError(
        f"ActorHandle objects are not valid across Ray sessions: actor {failure.actor_id.hex()} is from a "
        "previous session after calling ray.shutdown() and ray.init(). Create a new one."
    )


_TASK_ERRORS: Final[Mapping[type, Callable[[Any], exceptions.RayError]]] = {
    ActorDied: lambda failure: death_of(failure.info),
    ActorUnavailable: lambda failure: exceptions.ActorUnavailableError(
        f"The actor is temporarily unavailable: {failure.reason}", failure.actor_id
    ),
    ConstructorFailed: lambda failure: UnreadDeath(failure.error),
    NotCreated: lambda failure: exceptions.ActorDiedError(failure.reason),
    StaleHandle: _stale,
    Cancelled: lambda failure: exceptions.TaskCancelledError(ids.TaskID(failure.task_id)),
    CannotSend: lambda failure: cannot_send(failure.what, failure.reason),
    EnvironmentFailed: lambda failure: exceptions.RuntimeEnvSetupError(failure.reason),
    GroupRemoved: lambda _failure: exceptions.TaskPlacementGroupRemoved(),
    NodeDied: lambda failure: exceptions.NodeDiedError(
        f"Task {failure.function_name} failed: {failure.reason}"
    ),
    StreamEnded: lambda _failure: exceptions.ObjectRefStreamEndOfStreamError(
        "the generator has no more values"
    ),
    ReplayDiffers: lambda failure: exceptions.StreamingGeneratorReplayInconsistentError(
        f"Streaming generator task {failure.task_id.hex()} was re-executed for lost values and produced "
        f"{failure.given} objects, expected {failure.expected}. Its output must be the same each time it runs, "
        "or max_retries=0 must switch the re-execution off."
    ),
    OutOfMemory: lambda failure: exceptions.OutOfMemoryError(failure.reason),
    Unschedulable: lambda failure: exceptions.TaskUnschedulableError(failure.reason),
    WorkerCrashed: _crashed,
}


def task_error_of(failure: TaskFailure) -> exceptions.RayError:
    """The error of a failed task. `ArgumentFailed` is no error of its own: see `arguments.not_computed`."""
    return _TASK_ERRORS[failure.__class__](failure)


def cannot_send(what: str, reason: object) -> exceptions.RaySystemError:
    """What the results of a call get whose message could not be encoded."""
    return exceptions.RaySystemError(f"The {what} could not be sent: {reason}")


def session_over() -> exceptions.RaySystemError:
    """What has come from a session cannot be used after its end."""
    return exceptions.RaySystemError(
        "This belongs to a session that was shut down: nothing more can come of it. Call init() and start again."
    )
