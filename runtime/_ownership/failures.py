"""Why an object has no value, or a task no result, as facts. `_owner/errors.py` makes the errors that readers see."""

from __future__ import annotations

import msgspec

from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.control import ActorInfo


class ObjectFailure(msgspec.Struct, frozen=True):
    """An object is not there. `owner`: None for our own object."""

    object_id: bytes
    owner: WorkerAddress | None = None


class OwnerDied(ObjectFailure, frozen=True):
    """The owner's process is gone."""


class Lost(ObjectFailure, frozen=True):
    """The owner does not know it (any more), or no copy is left."""


class Freed(ObjectFailure, frozen=True):
    """It was freed."""


class NotRebuilt(ObjectFailure, frozen=True, kw_only=True):
    """Every copy is lost, and its task cannot make it again.

    Args:
        reason: Ray's name for it.
        detail: one more sentence, or None.
    """

    reason: str
    detail: str | None = None


class TaskFailure(msgspec.Struct, frozen=True):
    """A task has no result."""


class StreamEnded(TaskFailure, frozen=True):
    """A generator has no more values."""


class ReplayDiffers(TaskFailure, frozen=True):
    """A generator that ran again for lost values gave another number of values than the first time."""

    task_id: bytes
    given: int
    expected: int


class Cancelled(TaskFailure, frozen=True):
    """It was cancelled."""

    task_id: bytes


class WorkerCrashed(TaskFailure, frozen=True):
    """Its worker died. `reason`: what the node agent says of it, or ""."""

    task_id: bytes
    function_name: str
    reason: str


class NodeDied(TaskFailure, frozen=True):
    """Its worker's node died."""

    function_name: str
    reason: str


class OutOfMemory(TaskFailure, frozen=True):
    """Its worker was killed as memory was short."""

    reason: str


class Unschedulable(TaskFailure, frozen=True):
    """No node can ever run it."""

    reason: str


class EnvironmentFailed(TaskFailure, frozen=True):
    """Its runtime environment could not be set up."""

    reason: str


class GroupRemoved(TaskFailure, frozen=True):
    """Its placement group was removed."""


class CannotSend(TaskFailure, frozen=True):
    """Its message cannot be encoded. `what`: "task" or "call of", and its name."""

    what: str
    reason: str


class ArgumentFailed(TaskFailure, frozen=True):
    """An argument holds an error. `error`: its pickle."""

    error: bytes
    function_name: str


class ActorDied(TaskFailure, frozen=True):
    """Its actor is dead. `info`: what the control store says of it."""

    info: ActorInfo


class ConstructorFailed(TaskFailure, frozen=True):
    """Its actor was never made: an argument of the constructor holds an error. `error`: the pickled error."""

    error: bytes


class NotCreated(TaskFailure, frozen=True):
    """Its actor was never registered, or nobody knows it."""

    reason: str


class ActorUnavailable(TaskFailure, frozen=True):
    """Its actor is out of reach for the moment, and it has no retries left."""

    actor_id: bytes
    reason: str


class StaleHandle(TaskFailure, frozen=True):
    """Its actor belongs to a session that was shut down."""

    actor_id: bytes
