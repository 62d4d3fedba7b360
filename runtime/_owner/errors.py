"""The errors that readers see, from what the ownership core says of a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from runtime import exceptions
from runtime._ownership.failures import Freed, Lost, NotRebuilt, ObjectFailure, OwnerDied
from runtime._wire.messages.base import WorkerAddress

# The same bytes each time: pickle writes them once, however many references to objects of one owner it meets.
encode_address = lru_cache(1024)(msgspec.msgpack.Encoder().encode)
decode_address = lru_cache(1024)(msgspec.msgpack.Decoder(WorkerAddress).decode)


def _of_object(
    cls: type[exceptions.ObjectLostError],
) -> Callable[[ObjectFailure, bytes], exceptions.ObjectLostError]:
    return lambda failure, owner: cls(failure.object_id.hex(), owner, "")


def _not_rebuilt(failure: NotRebuilt, owner: bytes) -> exceptions.ObjectLostError:
    return exceptions.ObjectReconstructionFailedError(
        failure.object_id.hex(), failure.reason, failure.detail, owner
    )


_ERRORS: Final[Mapping[type, Callable[[Any, bytes], exceptions.ObjectLostError]]] = {
    OwnerDied: _of_object(exceptions.OwnerDiedError),
    Lost: _of_object(exceptions.ObjectLostError),
    Freed: _of_object(exceptions.ObjectFreedError),
    NotRebuilt: _not_rebuilt,
}


def error_of(failure: ObjectFailure, us: WorkerAddress) -> exceptions.ObjectLostError:
    """The error of a failure. `us`: the address of this process, which owns what has no other owner."""
    return _ERRORS[failure.__class__](failure, encode_address(failure.owner or us))
