"""Arguments and results of handle calls as the bodies of messages.

A small value is its pickle. A value over `INLINE_BYTES`, or with object references in it, is put into the object store
and its body is the address of that object: the receiver reads it in place.

Who sends the address must keep the object until the receiver has it: of a `Call` until the request has ended; of a
`Result`, `Item` or `Failure` until a `Window` of the receiver has counted the body (see `Kept`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from runtime import exceptions
from runtime._extension import handover
from runtime._extension.objects import value_of
from runtime._extension.process import connected_or_none
from runtime._extension.serialization import (
    PLAIN,
    aligned,
    deserialize,
    dump_plain,
    dumps,
    not_serializable,
    serialize,
)
from runtime.object_ref import ObjectRef

INLINE_BYTES = 1 << 20

_BUFFERS = 1  # [pickle, its buffers]; a plain pickle begins with 0x80
_ADDRESS = 2  # (object id, owner)
_ADDRESS_BYTE = bytes((_ADDRESS,))

_encode = msgspec.msgpack.Encoder().encode
_decode_buffers = msgspec.msgpack.Decoder(tuple[bytes, list[bytes]]).decode
_decode_address = msgspec.msgpack.Decoder(tuple[bytes, bytes]).decode


class Dumped(NamedTuple):
    """A value to send: `kept` is None, or what its sender must keep until the receiver has it."""

    body: bytes
    kept: ObjectRef | None


def dump(value: Any, what: str = "the value of a call") -> Dumped:
    """A value as a body.

    Args:
        what: names it in the error.

    Raises:
        TypeError: it cannot be pickled.
        RayError: it is large, and the object store cannot take it.
    """
    try:
        pickled = serialize(value)
    except TypeError as error:
        raise not_serializable(what, error) from error
    size_bytes = len(pickled.data) + sum(memoryview(buffer).nbytes for buffer in pickled.buffers)
    if (pickled.references or size_bytes > INLINE_BYTES) and connected_or_none() is not None:
        ref = handover.put(pickled)
        return Dumped(_ADDRESS_BYTE + _encode(handover.address_of(ref)), ref)
    if pickled.buffers:
        return Dumped(bytes((_BUFFERS,)) + _encode((pickled.data, pickled.buffers)), None)
    return Dumped(pickled.data, None)


def dump_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Dumped:
    """The arguments of a `Call`.

    Raises: see `dump`.
    """
    if not kwargs and all(type(arg) in PLAIN for arg in args):
        body = dump_plain((args, kwargs))
        if len(body) <= INLINE_BYTES:
            return Dumped(body, None)
    return dump((args, kwargs), "the arguments of a call")


def is_address(body: bytes) -> bool:
    """Whether the value is in the object store, so that loading it may take long."""
    return body[:1] == _ADDRESS_BYTE


def accept(body: bytes, registered: Callable[[], None] | None = None) -> ObjectRef:
    """The reference to the value of a body that `is_address`.

    Args:
        registered: see `runtime._extension.handover.accept`.
    """
    return handover.accept(*_decode_address(memoryview(body)[1:]), registered)


def load(body: bytes) -> Any:
    """The value. Arrays in it are read-only.

    Raises:
        Exception: what classes of the value raise as they are unpickled.
        RayError: of one in the object store: it is lost.
    """
    if body[0] == _BUFFERS:
        data, buffers = _decode_buffers(memoryview(body)[1:])
        return deserialize(data, [aligned(buffer) for buffer in buffers])[0]
    if body[0] == _ADDRESS:
        return value_of(accept(body))
    return deserialize(body)[0]


def load_arguments(body: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a `Call`: object references among them are replaced by their values, those within lists and
    other values are not. Waits for those values.

    Raises:
        Exception: see `load`, and what those objects hold instead of a value.
    """
    args, kwargs = load(body)
    if body[0] == _ADDRESS:  # references are in no other
        args = tuple(value_of(arg) if isinstance(arg, ObjectRef) else arg for arg in args)
        kwargs = {key: value_of(arg) if isinstance(arg, ObjectRef) else arg for key, arg in kwargs.items()}
    return args, kwargs


def dump_failure(error: BaseException) -> bytes:
    """An exception as the body of a `Failure`; one of user code should be a `RayTaskError`, see
    `runtime._extension.actors.task_error`. An exception that cannot be pickled becomes one with its text."""
    try:
        return dumps(error)
    except Exception as problem:
        text = f"{type(error).__name__}: {error} (the exception itself cannot be pickled: {problem})"
        return dumps(exceptions.RaySystemError(text))


def load_failure(body: bytes) -> BaseException:
    """The exception to raise: one of user code is an instance of its class as well as of `RayTaskError`."""
    try:
        error = load(body)
    except Exception as problem:
        return exceptions.RaySystemError(
            f"A request failed with an exception that cannot be unpickled here: {type(problem).__name__}: {problem}"
        )
    return error.as_instanceof_cause() if isinstance(error, exceptions.RayTaskError) else error


class _Stream:
    """Bodies of one request: what was sent of them, what the receiver has, and what it does not have yet."""

    __slots__ = ("has_ended", "kept", "sent", "used")

    def __init__(self) -> None:
        self.sent = self.used = 0  # bytes
        self.kept: deque[tuple[int, ObjectRef]] = deque()  # (bytes sent up to its end, what to keep)
        self.has_ended = False


class Kept:
    """What the sender of bodies keeps until the receiver has them, for the requests of one connection."""

    def __init__(self) -> None:
        self._streams: dict[int, _Stream] = {}

    def sent(self, number: int, dumped: Dumped) -> None:
        """A body of a request was sent. All items of a stream count, also those which keep nothing; a single result or
        failure matters only if it keeps something."""
        stream = self._streams.setdefault(number, _Stream())
        stream.sent += len(dumped.body)
        if dumped.kept is not None:
            stream.kept.append((stream.sent, dumped.kept))

    def used(self, number: int, size: int) -> None:
        """A `Window` came: the receiver has so many more bytes of the bodies, in the order in which they were sent."""
        stream = self._streams.get(number)
        if stream is not None:
            stream.used += size
            while stream.kept and stream.used >= stream.kept[0][0]:
                stream.kept.popleft()
            if stream.has_ended and not stream.kept:
                del self._streams[number]

    def ended(self, number: int) -> None:
        """The last body of a request was sent."""
        stream = self._streams.get(number)
        if stream is not None:
            stream.has_ended = True
            if not stream.kept:
                del self._streams[number]

    def __len__(self) -> int:
        """How many requests send a stream, or have something kept."""
        return len(self._streams)
