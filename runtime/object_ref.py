"""`ObjectRef`: a reference to a value that exists somewhere in the cluster or is still being computed."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import pickle
import types
from collections.abc import Callable, Generator
from typing import Any, Protocol

from runtime import exceptions
from runtime._core import ids
from runtime._ownership.records import INLINE_ERROR, Entry
from runtime._ownership.released import NOWHERE, Released
from runtime._system import settings
from runtime._wire.messages.worker import Value
from runtime._wire.serialization import collector


class KnownObjects(Protocol):
    """The objects that a process knows."""

    def hold_known(self, binary: bytes) -> Entry | None:
        """The entry of an object, with one more hold, if it is known."""

    def borrow(self, binary: bytes, owner: bytes) -> ObjectRef:
        """A reference that came from elsewhere. `register_borrows` must follow soon."""

    def register_borrows(self) -> None:
        """Tells the owners of all that `borrow` has brought."""

    def leak(self, entry: Entry) -> None:
        """Keeps an object for ever."""

    def owner_address(self, entry: Entry) -> bytes:
        """The encoded address of the owner."""

    def call_site(self, object_id: bytes) -> str:
        """Where this process made the reference, if that is recorded."""

    def when_ready(self, entry: Entry, callback: Callable[[], None]) -> None:
        """Calls back, under the engine's lock, when the value is there."""


class Loader(Protocol):
    """Loads values."""

    def get_one(self, ref: ObjectRef, timeout_s: float | None) -> Any:
        """The value; raises the error that the object holds instead."""

    def is_inline(self, entry: Entry) -> bool:
        """Whether loading the value needs nothing from elsewhere."""

    def load_in_thread(self, job: Callable[[], None]) -> None:
        """Runs a loading job on another thread."""


class Process(Protocol):
    """A connected process, as references see it."""

    @property
    def objects(self) -> KnownObjects: ...

    @property
    def reader(self) -> Loader: ...

    @property
    def released(self) -> Released: ...


def _not_connected() -> Process:
    raise exceptions.RaySystemError("Ray has not been started yet: call init() first.")


_current: Callable[[], Process] = _not_connected
_current_or_none: Callable[[], Process | None] = lambda: None  # noqa: E731


def belong_to(current: Callable[[], Process], current_or_none: Callable[[], Process | None]) -> None:
    """Sets how references find the process that they are in.

    Args:
        current: connects first, if the program is not connected.
        current_or_none: does not.
    """
    global _current, _current_or_none
    _current, _current_or_none = current, current_or_none


class ObjectRef:
    """A reference to an object of the cluster. The object lives as long as any reference to it.

    Returned by `.remote()` and `put`. Await it, or pass it to `get`, `wait` or another task.
    """

    __slots__ = ("__weakref__", "_binary", "_entry")

    _binary: bytes
    _entry: Entry

    def __init__(self, binary: bytes) -> None:
        if not isinstance(binary, bytes):
            raise TypeError(f"Unsupported type: {type(binary)}, expected bytes")
        if len(binary) != ids.OBJECT_BYTES:
            raise ValueError(f"ID string needs to have length {ids.OBJECT_BYTES}, got {len(binary)}")
        process = _current_or_none()
        entry = process.objects.hold_known(binary) if process is not None else None
        self._binary = binary
        self._entry = entry or _unknown(binary, process.released if process is not None else NOWHERE)

    def __class_getitem__(cls, item: Any) -> types.GenericAlias:
        """`ObjectRef[int]`, in annotations."""
        return types.GenericAlias(cls, item)

    def __del__(self) -> None:
        try:
            entry = self._entry
        except AttributeError:
            return
        released = entry.released
        released.append(entry)
        if released.resting:
            released.wake()

    def binary(self) -> bytes:
        """The 28 bytes of the id."""
        return self._binary

    def hex(self) -> str:
        """The id as 56 hexadecimal digits."""
        return self._binary.hex()

    def task_id(self) -> ids.TaskID:
        """The task that makes the object."""
        return ids.TaskID(ids.task_id_of(self._binary))

    def job_id(self) -> ids.JobID:
        """The job whose task makes the object."""
        return self.task_id().job_id()

    def owner_address(self) -> bytes:
        """The encoded address of the process that owns the object."""
        return _current().objects.owner_address(self._entry)

    def call_site(self) -> str:
        """Where this process made the reference: "(task call) | file:function:line | ...". Empty unless
        RAY_record_ref_creation_sites is set."""
        return _current().objects.call_site(self._binary)

    def is_nil(self) -> bool:
        """Whether it refers to nothing."""
        return self._binary == b"\xff" * ids.OBJECT_BYTES

    @classmethod
    def size(cls) -> int:
        """The length of an id in bytes."""
        return ids.OBJECT_BYTES

    @classmethod
    def nil(cls) -> ObjectRef:
        """A reference to nothing."""
        return cls(b"\xff" * ids.OBJECT_BYTES)

    @classmethod
    def from_binary(cls, binary: bytes) -> ObjectRef:
        """The reference with this id. This process must already know the object."""
        return cls(binary)

    @classmethod
    def from_hex(cls, hex_id: str) -> ObjectRef:
        """The same for an id in hex."""
        return cls(bytes.fromhex(hex_id))

    @classmethod
    def from_random(cls) -> ObjectRef:
        """A reference with a random id, to no object."""
        return cls(os.urandom(ids.TASK_BYTES) + bytes(ids.OBJECT_BYTES - ids.TASK_BYTES))

    def tensor_transport(self) -> None:
        """The direct transport of the object: None, as objects only travel through the object store."""
        return None

    def future(self) -> concurrent.futures.Future[Any]:
        """A `concurrent.futures.Future` of the value or the error."""
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        core = _current()
        reader = core.reader

        def resolve() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(reader.get_one(self, None))
                except BaseException as error:
                    future.set_exception(error)

        # Loading may fetch from another node: not on the thread that pumps.
        core.objects.when_ready(self._entry, lambda: reader.load_in_thread(resolve))
        return future

    def as_future(self) -> asyncio.Future[Any]:
        """An asyncio future of the value, on the running loop."""
        return asyncio.ensure_future(self._wait())

    async def _wait(self) -> Any:
        return await asyncio.shield(self._loop_future())

    def _loop_future(self) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        core, entry = _current(), self._entry
        reader = core.reader
        future: asyncio.Future[Any] = loop.create_future()

        def load() -> None:
            if not future.done():
                try:
                    future.set_result(reader.get_one(self, None))
                except BaseException as error:
                    future.set_exception(_awaitable(error))

        def fetched(result: Any, error: BaseException | None) -> None:
            if not future.done():
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(_awaitable(error))

        def fetch() -> None:
            try:
                result, error = reader.get_one(self, None), None
            except BaseException as raised:
                result, error = None, raised
            post(fetched, result, error)

        def post(step: Callable[..., None], *args: Any) -> None:
            try:
                loop.call_soon_threadsafe(step, *args)
            except RuntimeError:
                if not loop.is_closed():
                    raise
                # The program's loop ended without waiting: nobody is left to tell.

        def ready() -> None:
            if reader.is_inline(entry):
                post(load)
            else:
                reader.load_in_thread(fetch)

        core.objects.when_ready(entry, ready)
        return future

    def __await__(self) -> Generator[Any, None, Any]:
        return self._loop_future().__await__()

    def _on_completed(self, callback: Callable[[Any], None]) -> None:
        """Calls `callback` with the value or the error once it is ready, on a thread of the engine."""
        process = _current()
        reader = process.reader

        def run() -> None:
            try:
                result = reader.get_one(self, None)
            except BaseException as error:
                result = error
            callback(result)

        process.objects.when_ready(self._entry, lambda: reader.load_in_thread(run))

    def __hash__(self) -> int:
        return hash(self._binary)

    def __eq__(self, other: object) -> bool:
        return type(other) is ObjectRef and self._binary == other._binary

    def __repr__(self) -> str:
        return f"ObjectRef({self._binary.hex()})"

    def __reduce__(self) -> tuple[Any, ...]:
        met, entry = collector.pickled, self._entry
        objects = _current().objects
        if met is not None:
            met.append(entry)
        elif is_forbidden_out_of_band(self._binary):
            raise exceptions.OufOfBandObjectRefSerializationException(
                f"It is not allowed to serialize {self!r} outside of calls, put() and return values, because "
                f"the engine cannot track the copy. {FORBIDS}=1 in the environment allows it; then the object is never "
                "freed."
            )
        else:
            objects.leak(entry)  # pickled by the program: the engine does not learn when the copy goes
        return rebuild, (self._binary, objects.owner_address(entry))


def _unknown(binary: bytes, released: Released) -> Entry:
    """The entry of a reference made from a bare id that this process does not know."""
    error = ValueError(
        f"The owner is unknown of object {binary.hex()}: its id was made up, or comes from another session or from "
        "outside of tasks. Get the reference from the call that made the object, or as an argument."
    )
    entry = Entry(binary, released=released)
    entry.hold()
    entry.value = Value(INLINE_ERROR, pickle.dumps(error))
    entry.seen = True
    return entry


def _awaitable(error: BaseException) -> BaseException:
    """The error as a future can raise it: StopIteration would end the coroutine that awaits instead."""
    if not isinstance(error, StopIteration):
        return error
    raised = RuntimeError("StopIteration cannot be raised into a future")
    raised.__cause__ = error
    return raised


FORBIDS = settings.OUT_OF_BAND_REFS.name
"""Environment variable: 0 forbids to pickle references where the engine cannot count the copies."""


def is_forbidden_out_of_band(object_id: bytes) -> bool:
    """Whether the environment forbids the program to pickle a reference to this object by itself.
    References that count an actor's handles are always allowed."""
    return not settings.OUT_OF_BAND_REFS.get_or_default() and not object_id.startswith(ids.CREATION_PREFIX)


def rebuild(binary: bytes, owner: bytes) -> ObjectRef:
    """Unpickles a reference; the process becomes a borrower unless it owns the object (but see
    `serialization.not_borrowing`)."""
    if not collector.borrows:
        return ObjectRef(binary)
    core = _current()
    ref = core.objects.borrow(binary, owner)
    made = collector.unpickled
    if made is None:
        core.objects.register_borrows()
    else:
        made.append(ref._entry)
        if not ref._entry.registered:
            collector.after = core.objects.register_borrows  # of all at once
    return ref


ObjectID = ObjectRef
