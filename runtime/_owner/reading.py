"""Reading values: `get`. Values are rebuilt outside the pump's lock, by the thread that wants them."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any

from runtime import exceptions
from runtime._ownership.borrowing import Borrowing
from runtime._ownership.lineage import Lineage
from runtime._ownership.records import STORED, Entry
from runtime._ownership.released import Released
from runtime._wire import serialization
from runtime._wire.messages.worker import AddLocation, ObjectLost, Value
from runtime.object_ref import ObjectRef

from .errors import error_of
from .links import Links
from .loading_threads import LoadingThreads
from .objects import Objects
from .store import Store
from .unpickling import cannot_unpickle, unpickle
from .value_requests import ValueRequests

MAX_REBUILDS = 5
"""How often to ask the owner of a lost object for it again."""
_MAX_COUNTED = 10_000
"""For so many lost objects it is known how often their owners were asked, the latest."""


class Reader:
    """Waits for the objects that `Objects` knows, and rebuilds their values."""

    def __init__(
        self,
        links: Links,
        released: Released,
        objects: Objects,
        borrowing: Borrowing,
        store: Store,
        value_requests: ValueRequests,
        lineage: Lineage,
    ) -> None:
        self._links = links
        self._released = released
        self._objects = objects
        self._borrowing = borrowing
        self._store = store
        self._value_requests = value_requests
        self._lineage = lineage
        self._loaders = LoadingThreads()
        self._lost_again: dict[bytes, int] = {}

    def get(self, refs: Sequence[ObjectRef], timeout_s: float | None) -> list[Any]:
        """The values, in order.

        Raises:
            GetTimeoutError: not all are there in time.
            Exception: the error that an object holds instead of a value.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        objects = self._objects
        errors = -1  # how many there were when we looked whether one of ours is among them
        values = []
        for ref in refs:
            entry = ref._entry
            value = entry.value
            if value is None:
                if errors < 0:
                    self._ask_all(refs)
                while entry.value is None:
                    if errors != objects.errors:
                        errors = objects.errors
                        self._raise_first(refs)
                    self._await(entry, deadline, errors)
                value = entry.value
            if value is not None and not value.kind and not value.nested and not value.buffers:
                try:
                    values.append(pickle.loads(value.data))
                except Exception as error:
                    raise cannot_unpickle(error) from error
            else:
                if value is not None and value.kind & 1:
                    self._raise_first(refs)
                values.append(self.load(entry, deadline))
        return values

    def _raise_first(self, refs: Sequence[ObjectRef]) -> None:
        """Raises the first error that there is among the objects; the caller has then seen them all."""
        failed = [ref._entry for ref in refs if ref._entry.value is not None and ref._entry.value.kind & 1]
        for entry in failed:
            entry.seen = True
        if failed:
            self.load(failed[0], None)

    def get_one(self, ref: ObjectRef, timeout_s: float | None) -> Any:
        """See `get`."""
        return self.get((ref,), timeout_s)[0]

    def _ask_all(self, refs: Sequence[ObjectRef]) -> None:
        with self._links.lock:
            self._value_requests.ask_all(ref._entry for ref in refs)

    def _await(self, entry: Entry, deadline: float | None, errors: int | None = None) -> None:
        """Waits for an object, or until there are more errors than `errors`."""
        left = None if deadline is None else deadline - time.monotonic()
        objects = self._objects
        if errors is None:
            errors = objects.errors
        if not self._links.wait(lambda: entry.value is not None or objects.errors != errors, left):
            raise exceptions.GetTimeoutError(
                f"Get timed out: some object(s) not ready, among them {entry.object_id.hex()}. "
                "Its task may still run, or wait for resources; `wait` tells which objects are ready."
            )

    def load(self, entry: Entry, deadline: float | None) -> Any:
        """The value of one entry, made again if every copy is lost. See `get`."""
        return self._load(entry, deadline, self.load_value)

    def load_block(self, entry: Entry) -> memoryview:
        """What lies in an object store for an entry, made again if every copy is lost. It is pinned while the view
        lives. See `get`.
        """
        block: memoryview = self._load(entry, None, self._load_block)
        return block

    def _load(
        self, entry: Entry, deadline: float | None, take: Callable[[Entry, Value, float | None], Any]
    ) -> Any:
        while True:
            value = entry.value
            if value is None:
                self._await(entry, deadline)
                continue
            try:
                return take(entry, value, deadline)
            except exceptions.GetTimeoutError:
                raise
            except exceptions.ObjectLostError as error:
                if value.kind != STORED:
                    raise
                refusal = self.rebuild_lost(entry, value, error)
                if refusal is not None:
                    raise refusal from None

    def load_value(self, entry: Entry, value: Value, deadline: float | None) -> Any:
        """Rebuilds a value; raises it if it is an error. Its nested references are safe afterwards."""
        if value.kind < STORED:
            result, made = unpickle(value.data, list(map(serialization.aligned, value.buffers)))
        else:
            left = None if deadline is None else deadline - time.monotonic()
            pin = self._store.fetch(entry.object_id, value.locations, left)
            try:
                result, made = self._store.read(pin)
            finally:
                self._released.add(pin)
            self.note_copy(entry, value)
        if made:
            self.keep_until_registered(entry, made)
        if value.kind & 1:
            entry.seen = True
            try:
                raise (
                    result.as_instanceof_cause() if isinstance(result, exceptions.RayTaskError) else result
                )
            finally:
                # The traceback keeps this frame: a frame that names its error is a cycle, and all that the frames above
                # it refer to, the caller's references with their memory among it, would stay until it is collected.
                del result
        return result

    def _load_block(self, entry: Entry, value: Value, _deadline: float | None) -> memoryview:
        if value.kind < STORED:  # an error has taken the place of a value that is lost
            self.load_value(entry, value, None)
            raise exceptions.ObjectLostError(entry.object_id.hex(), b"", "")
        pin = self._store.fetch(entry.object_id, value.locations, None)
        try:
            block = self._store.view(pin)
        finally:
            self._released.add(pin)
        self.note_copy(entry, value)
        return block

    def keep_until_registered(self, container: Entry, made: Sequence[Entry]) -> None:
        """References came out of `container`: keep it until their owners know of us."""
        with self._links.lock:
            if all(entry.registered for entry in made):
                return
            container.hold()
            self._borrowing.when_registered(made, lambda: self._objects.release(container))

    def note_copy(self, entry: Entry, value: Value) -> None:
        """This node holds a copy now: the owner may send others here."""
        node_id = self._links.address.node_id
        if node_id in value.locations:
            return
        with self._links.lock:
            if entry.owner is None:
                self._objects.add_location(entry, node_id)
            else:
                connection = self._links.peer(entry.owner, connect=False)
                if connection is not None:
                    connection.send(AddLocation(entry.object_id, node_id))
                if entry.value is value:
                    self._objects.add_location(entry, node_id)

    def rebuild_lost(
        self, entry: Entry, lost: Value, error: exceptions.ObjectLostError
    ) -> exceptions.ObjectLostError | None:
        """No copy is left: have the value made again. Returns why nobody can, if so."""
        with self._links.lock:
            if entry.value is not lost:
                return None  # somebody else noticed first
            if entry.owner is None:
                refusal = self._lineage.rebuild(entry)
                if refusal is None:
                    return None
                return error_of(refusal, self._links.address, self._objects.call_site)
            tries = self._lost_again.get(entry.object_id, 0)
            connection = self._links.peer(entry.owner)
            if connection is None:
                owner = self._objects.owner_address(entry)
                return exceptions.OwnerDiedError(entry.object_id.hex(), owner, "")
            if tries >= MAX_REBUILDS:
                return error
            self._lost_again.pop(entry.object_id, None)  # to the end: the first goes first
            self._lost_again[entry.object_id] = tries + 1
            if len(self._lost_again) > _MAX_COUNTED:
                del self._lost_again[next(iter(self._lost_again))]
            entry.value = None
            entry.fetched = False
            entry.asked = True

            def told(_reply: Any) -> None:
                entry.asked = False
                self._value_requests.ask(entry)

            connection.call(ObjectLost(entry.object_id, list(lost.locations)), told)
            return None

    # ------------------------------------------------------------ off the pumping thread

    def is_inline(self, entry: Entry) -> bool:
        """Whether loading the value needs nothing from elsewhere."""
        return entry.value is not None and entry.value.kind < STORED

    def load_in_thread(self, job: Callable[[], None]) -> None:
        """Runs a job that loads a value, or calls the program back, off the pumping thread."""
        self._loaders.submit(job)

    def close(self) -> None:
        """Ends the loading threads."""
        self._loaders.close()
