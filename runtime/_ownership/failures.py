"""Why an object has no value, as facts. The shell makes the errors from them that readers see (`_owner/errors.py`)."""

from __future__ import annotations

import msgspec

from runtime._wire.messages.base import WorkerAddress


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
