"""User values <-> bytes: pickle protocol 5 with large buffers out of band, and the references met on the way.

Values that plain pickle rebuilds by value (builtins, numpy arrays) take C pickle; everything else takes cloudpickle,
which ships functions and classes of `__main__` by value. References inside values are collected through `Collector`:
`ObjectRef.__reduce__` reports to the one of its thread.
"""

from __future__ import annotations

import contextlib
import io
import marshal
import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

from . import serializers

PROTOCOL = 5
PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, bytearray, range, slice})
"""The types whose values `dump_plain` pickles."""


class Collector(threading.local):
    """Per thread: where references met while pickling go, and who made the ones met while unpickling."""

    pickled: list[Any] | None = None
    unpickled: list[Any] | None = None
    writable: Callable[[Any], Any] | None = None  # turns a buffer into one that may be written to
    after: Callable[[], None] | None = None  # what references want to happen once all of a value are made
    borrows: bool = True  # whether references made while unpickling are counted by their owners


collector = Collector()
_reducers: dict[type, Callable[[Any], Any]] = {}


def register_serializer(
    cls: type, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]
) -> None:
    """Makes every value of exactly this class travel as `deserializer(serializer(value))` in this process."""
    _reducers[cls] = lambda value: (deserializer, (serializer(value),))


def deregister_serializer(cls: type) -> None:
    """Undoes `register_serializer`; unknown classes are fine."""
    _reducers.pop(cls, None)


class Serialized:
    """A pickled value: `data`, out-of-band `buffers` (contiguous, any buffer type) and the `references` inside."""

    __slots__ = ("buffers", "data", "references")

    def __init__(self, data: bytes, buffers: Sequence[Any], references: list[Any]) -> None:
        self.data = data
        self.buffers = buffers
        self.references = references

    @property
    def size_bytes(self) -> int:
        return len(self.data) + sum(int(buffer.nbytes) for buffer in self.buffers)


class _ByValue(Exception):
    """Plain pickle met something it would pickle by reference."""


_NUMPY_MODULES = frozenset({"numpy", "numpy.dtypes", "numpy._core.numeric", "numpy._core.multiarray"})


def _is_numpy(cls: type) -> bool:
    return cls.__module__ in _NUMPY_MODULES


class _PlainPickler(pickle.Pickler):
    """Refuses whatever a receiver might be unable to import: anything but builtins, numpy's own and references."""

    def reducer_override(self, value: Any) -> Any:
        cls = type(value)
        if _reducers:
            raise _ByValue
        if _is_numpy(cls) or cls.__module__ == "runtime.object_ref":
            return NotImplemented
        if (cls is FunctionType or cls is BuiltinFunctionType or cls is type) and (
            value.__module__ in _NUMPY_MODULES or value.__module__ == "runtime.object_ref"
        ):
            return NotImplemented
        raise _ByValue


def dump_plain(value: Any) -> bytes:
    """Pickles a value of one of the types in `PLAIN`, or tuples of such values: it has no buffers and refers to
    nothing."""
    return pickle.dumps(value, PROTOCOL)


def serialize(value: Any) -> Serialized:
    """Pickles a value.

    Raises:
        TypeError: the value, or something inside it, cannot be pickled; the message names the type.
    """
    if type(value) in PLAIN:
        return Serialized(dump_plain(value), (), [])
    previous, collector.pickled = collector.pickled, []
    try:
        data, buffers = _dump(value)
        return Serialized(data, buffers, collector.pickled)
    finally:
        collector.pickled = previous


def _dump(value: Any) -> tuple[bytes, list[memoryview]]:
    cls = type(value)
    if cls is tuple or cls is list or cls is dict or _is_numpy(cls):
        try:
            return _dump_plain(value)
        except (_ByValue, pickle.PicklingError, AttributeError, TypeError, RecursionError):
            assert collector.pickled is not None
            collector.pickled.clear()
    return _dump_cloud(value)


def _dump_plain(value: Any) -> tuple[bytes, list[memoryview]]:
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    _PlainPickler(file, PROTOCOL, buffer_callback=buffers.append).dump(value)
    return file.getvalue(), [buffer.raw() for buffer in buffers]


def _dump_cloud(value: Any) -> tuple[bytes, list[memoryview]]:
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    cloud_pickler()(file, PROTOCOL, buffer_callback=buffers.append).dump(value)
    return file.getvalue(), [buffer.raw() for buffer in buffers]


ALIAS = "ray.exceptions"
"""The module of our errors where `ray` is this engine. It may be unknown where such a class is unpickled."""


_cloud_class: Any = None


def cloud_pickler() -> Any:
    """The class that pickles what plain pickle cannot."""
    global _cloud_class
    if _cloud_class is None:
        import cloudpickle

        class CloudPickler(cloudpickle.Pickler):  # type: ignore[misc]
            """cloudpickle, and what this process has registered, and the libraries it has imported."""

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                self._special = serializers.loaded()

            def reducer_override(self, value: Any) -> Any:
                if type(value) is CodeType:
                    return _reduce_code(value)
                reducer = _reducers.get(type(value))
                if reducer is not None:
                    return reducer(value)
                for special in self._special:
                    reduced = special(value)
                    if reduced is not NotImplemented:
                        return reduced
                if type(value) is type and value.__module__ == ALIAS:
                    return getattr, (sys.modules["runtime.exceptions"], value.__name__)
                return super().reducer_override(value)

        _cloud_class = CloudPickler
    return _cloud_class


def _reduce_code(code: CodeType) -> Any:
    """Code with the name of its file, which tracebacks need to show lines: cloudpickle leaves the name out since 3.1.3.
    Bytecode belongs to one minor version of Python anyway."""
    for version in (2, marshal.version):  # 2 has no references, so equal code gives equal bytes
        try:
            return marshal.loads, (marshal.dumps(code, version),)
        except ValueError:  # a constant that is new in this Python, or that somebody has put there
            continue
    return NotImplemented


def not_serializable(what: str, error: TypeError) -> TypeError:
    """The error to raise for `error`, which came of pickling `what`."""
    return TypeError(
        f"Could not serialize {what}: {error}. runtime.util.inspect_serializability() finds what is in the way. Make "
        "that where it is used, leave it out, or tell how it travels with runtime.util.register_serializer()."
    )


def deserialize(
    data: bytes | memoryview, buffers: Sequence[Any] = (), writable: Callable[[Any], Any] | None = None
) -> tuple[Any, list[Any]]:
    """Rebuilds a value. Returns it with the references made on the way.

    Args:
        writable: for values that must not be read in place: gives a buffer's bytes where they may be changed. Without
            it they are copied.

    Raises:
        Exception: whatever the classes inside raise, e.g. ModuleNotFoundError.
    """
    previous, collector.unpickled = collector.unpickled, []
    before, collector.writable = collector.writable, writable
    try:
        value = pickle.loads(data, buffers=buffers)
        return value, collector.unpickled
    finally:
        collector.unpickled = previous
        collector.writable = before
        _finish()


@contextlib.contextmanager
def not_borrowing() -> Iterator[None]:
    """For values that are rebuilt to be read and dropped, in this thread. No owner is told of the references in them:
    what kept their objects while the values were on their way may be gone."""
    before, collector.borrows = collector.borrows, False
    try:
        yield
    finally:
        collector.borrows = before


def aligned(buffer: bytes) -> memoryview:
    """A buffer of a message, read-only, at an address that is a multiple of `ALIGNMENT`: vector instructions want that.
    In the object store buffers have such addresses already."""
    if not buffer:
        return memoryview(buffer)
    place = aligned_room(len(buffer))
    place[:] = buffer
    return place.toreadonly()


def aligned_room(size_bytes: int) -> memoryview:
    """New memory at an address that is a multiple of `ALIGNMENT`."""
    import ctypes  # programs without arrays do not load it

    room = bytearray(size_bytes + ALIGNMENT - 1)
    skipped = -ctypes.addressof(ctypes.c_char.from_buffer(room)) % ALIGNMENT
    return memoryview(room)[skipped : skipped + size_bytes]


def deserialize_all(pickles: Iterable[bytes]) -> tuple[list[Any], list[Any]]:
    """`deserialize` for many values without buffers. Returns them with all references made on the way."""
    previous, collector.unpickled = collector.unpickled, []
    before, collector.writable = collector.writable, None
    try:
        return list(map(pickle.loads, pickles)), collector.unpickled
    finally:
        collector.unpickled = previous
        collector.writable = before
        _finish()


def _finish() -> None:
    after = collector.after
    if after is not None:
        collector.after = None
        after()


def dumps(value: Any) -> bytes:
    """cloudpickles a value in one piece, with the registered serializers. For values that travel inside others, such as
    the cause of an error: references are collected by the pickling that is under way."""
    file = io.BytesIO()
    cloud_pickler()(file, PROTOCOL).dump(value)
    return file.getvalue()


def dumps_function(function: Any) -> tuple[bytes, list[Any]]:
    """cloudpickles a function or class in one piece; returns it with the references in its closure."""
    previous, collector.pickled = collector.pickled, []
    try:
        return dumps(function), collector.pickled
    finally:
        collector.pickled = previous


# ---------------------------------------------------------------- layout in shared memory

ALIGNMENT = 64
LONG_COPY_BYTES = 4 << 20
_HEAD_WORDS = 2  # data length, buffer count; then (offset, length) per buffer


def layout(data: bytes, buffers: Sequence[memoryview]) -> tuple[int, list[int]]:
    """Where the parts go in one block: total size in bytes, and the offset of each buffer (64-byte aligned)."""
    position = 8 * (_HEAD_WORDS + 2 * len(buffers)) + len(data)
    offsets = []
    for buffer in buffers:
        position = -(-position // ALIGNMENT) * ALIGNMENT
        offsets.append(position)
        position += buffer.nbytes
    return position, offsets


def write_block(
    target: memoryview, data: bytes, buffers: Sequence[memoryview], offsets: Sequence[int]
) -> None:
    """Writes the parts into a block of the size that `layout` gave."""
    words = [len(data), len(buffers)]
    for buffer, offset in zip(buffers, offsets, strict=True):
        words += (offset, buffer.nbytes)
    head = b"".join(word.to_bytes(8, "little") for word in words)
    target[: len(head)] = head
    _copy(target[len(head) : len(head) + len(data)], data)
    for buffer, offset in zip(buffers, offsets, strict=True):
        if buffer.nbytes:
            _copy(target[offset : offset + buffer.nbytes], buffer.cast("B"))


def _copy(target: memoryview, source: bytes | memoryview) -> None:
    """Other threads, such as the one that answers other processes, go on while numpy copies what is large."""
    if len(target) >= LONG_COPY_BYTES and (numpy := sys.modules.get("numpy")) is not None:
        numpy.copyto(numpy.frombuffer(target, numpy.uint8), numpy.frombuffer(source, numpy.uint8))
    else:
        target[:] = source


def read_block(block: memoryview) -> tuple[memoryview, list[memoryview]]:
    """The parts of a block, in place."""
    data_length = int.from_bytes(block[:8], "little")
    count = int.from_bytes(block[8:16], "little")
    start = 8 * (_HEAD_WORDS + 2 * count)
    buffers = []
    for index in range(count):
        at = 16 + 16 * index
        offset = int.from_bytes(block[at : at + 8], "little")
        length = int.from_bytes(block[at + 8 : at + 16], "little")
        buffers.append(block[offset : offset + length])
    return block[start : start + data_length], buffers
