"""`wait`: which of several objects are ready.

Callers that take results one by one pass the remaining list of one call to the next. So a call scans up to the first
ready reference, and does not check a list again that an earlier call returned.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any

from runtime import exceptions
from runtime._ownership.records import STORED, Entry
from runtime._ownership.released import Released
from runtime._wire.messages.base import ErrorKind, ErrorReply

from .links import Links
from .objects import Objects
from .reading import Reader
from .store import Store
from .value_requests import ValueRequests

if TYPE_CHECKING:
    from runtime.object_ref import ObjectRef

LOOKS = 16
"""So often a waiting thread looks at all its objects; then it asks each of them to call back."""
BRINGS = 64
"""A list that was looked through for values to bring here is looked through again when 1/BRINGS as many have come."""
_NEVER = -(1 << 62)


def split(refs: Sequence[Any], found: list[int]) -> tuple[list[Any], list[Any]]:
    """The references at these positions, which ascend, and the others."""
    rest = list(refs)
    if len(found) == 1:
        return [rest.pop(found[0])], rest
    ready = [refs[position] for position in found]
    others = bytearray(b"\1") * len(refs)
    for position in found:
        others[position] = 0
    return ready, list(compress(rest, others))


class Waiter:
    """Waits for some of the objects that `Objects` knows."""

    def __init__(
        self,
        links: Links,
        released: Released,
        objects: Objects,
        store: Store,
        value_requests: ValueRequests,
        reader: Reader,
    ) -> None:
        self._links = links
        self._released = released
        self._objects = objects
        self._store = store
        self._value_requests = value_requests
        self._reader = reader
        # A copy of what `remember` was given last, for the user may change the list. One, or none.
        self._known: deque[list[ObjectRef]] = deque(maxlen=1)
        self._fetching: dict[bytes, list[Callable[[], None]]] = {}  # who wants to know when it is here
        self._ahead_bytes = 0  # on their way here though nobody waits for them
        self._is_full = False  # no more may be on their way until one has come
        self._brought = _NEVER  # `Objects.elsewhere` when all that was ready was here or on its way

    # ------------------------------------------------------------ lists that were checked before

    def known(self, refs: Sequence[Any]) -> list[ObjectRef] | None:
        """Takes the list of these references, if it is the one that was remembered last."""
        try:
            known = self._known.pop()
        except IndexError:
            return None
        return known if refs.__class__ is list and known == refs else None

    def remember(self, rest: list[ObjectRef], known: list[ObjectRef] | None, found: list[int]) -> None:
        """These are references, each of them once. `known` is what `known` gave for them and those at `found`."""
        if known is None or len(found) > 1:
            known = rest.copy()
        elif found:
            del known[found[0]]  # a copy would cost as much as all the rest
        self._known.append(known)
        released = self._released
        if released.resting:
            released.wake()  # so that a tick will come

    def tick(self) -> bool:
        """What is remembered must not keep objects that the user has let go of. Whether there was anything."""
        if not self._known:
            return False
        self._known.clear()
        return True

    # ------------------------------------------------------------ waiting

    def wait(
        self,
        refs: Sequence[ObjectRef],
        num_returns: int,
        timeout_s: float | None,
        fetch: bool = False,
        known: bool = False,
    ) -> list[int]:
        """The positions of at most `num_returns` ready ones.

        Args:
            fetch: a value in an object store is ready only when this node has it. Brings here what exists, also beyond
                `num_returns`, without waiting for that.
            known: the last call has returned all of them.
        """
        found = self._wait(refs, num_returns, timeout_s, fetch)
        if not fetch:
            self._brought = _NEVER
        elif len(found) < len(refs) and self._objects.elsewhere:
            self._bring(refs, known)
        return found

    def _wait(
        self, refs: Sequence[ObjectRef], num_returns: int, timeout_s: float | None, fetch: bool
    ) -> list[int]:
        objects = self._objects
        settled = objects.settled
        found = self._ready(refs, num_returns, fetch)
        if len(found) == num_returns:
            return found
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        in_time = True
        while in_time and len(found) < num_returns:  # one that was there may be lost by now
            due = settled + num_returns - len(found)
            in_time = self._wait_for(refs, num_returns, timeout_s, fetch, due)
            settled = objects.settled
            found = self._ready(refs, num_returns, fetch)
            timeout_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        return found

    def _ready(self, refs: Sequence[ObjectRef], most: int, fetch: bool) -> list[int]:
        found = []
        for position, ref in enumerate(refs):
            value = ref._entry.value
            if value is not None and (value.kind < STORED or not fetch or self._is_here(ref._entry)):
                found.append(position)
                if len(found) == most:
                    break
        return found

    def _is_here(self, entry: Entry) -> bool:
        value = entry.value
        return value is not None and (
            value.kind < STORED or self._links.address.node_id in value.locations or entry.fetched
        )

    def _wait_for(
        self, refs: Sequence[ObjectRef], num_returns: int, timeout_s: float | None, fetch: bool, due: int
    ) -> bool:
        """Whether there were so many, at one time or another, before the time was over. There cannot be before
        `Objects.settled` is `due`."""
        if timeout_s != 0 and self._come_by_themselves(refs, fetch):
            deadline = None if timeout_s is None else time.monotonic() + timeout_s
            enough = self._look_now_and_then(refs, num_returns, timeout_s, due)
            if enough is not None:
                return enough
            timeout_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        return self._be_called(refs, num_returns, timeout_s, fetch)

    def _come_by_themselves(self, refs: Sequence[ObjectRef], fetch: bool) -> bool:
        """Whether nobody must be asked for any of them."""
        for ref in refs:
            entry = ref._entry
            if entry.value is None:
                if entry.owner is not None:
                    return False
            elif fetch and not self._is_here(entry):
                return False
        return True

    def _look_now_and_then(
        self, refs: Sequence[ObjectRef], num_returns: int, timeout_s: float | None, due: int
    ) -> bool | None:
        """Looks again whenever so many objects, be they ours or not, got values that it may be enough. That costs less
        than to enter and remove a callback at each, if it is soon over. None: it was not."""
        objects = self._objects
        looks, enough = 0, False

        def look() -> bool:
            nonlocal looks, due, enough
            settled = objects.settled
            if settled < due:
                return False
            missing = num_returns - len(self._ready(refs, num_returns, False))
            looks, due, enough = looks + 1, settled + missing, not missing
            return enough or looks > LOOKS

        if not self._links.wait(look, timeout_s):
            return False
        self._links.check()  # what is "ready" then is the news that nothing will be
        return enough or None

    def _be_called(
        self, refs: Sequence[ObjectRef], num_returns: int, timeout_s: float | None, fetch: bool
    ) -> bool:
        """Asks for what is elsewhere, and has each object call back."""
        count = 0
        pending: dict[Entry, Callable[[], None]] = {}

        def look(entry: Entry) -> None:
            nonlocal count
            callback = pending.pop(entry, None)
            if self._is_here(entry) if fetch else entry.value is not None:
                count += 1
                return
            pending[entry] = callback = callback or partial(look, entry)
            if entry.value is None:
                if entry.callbacks is None:
                    entry.callbacks = []
                entry.callbacks.append(callback)
                self._value_requests.ask(entry)
            else:
                self._await_copy(entry, callback)

        with self._links.lock:
            self._value_requests.ask_all(ref._entry for ref in refs)
            for ref in refs:
                look(ref._entry)
        try:
            if timeout_s == 0:
                self._links.pump.poll_once()
            else:
                self._links.wait(lambda: count >= num_returns, timeout_s)
                self._links.check()
        finally:
            with self._links.lock:
                for entry, callback in pending.items():
                    for waiting in (entry.callbacks, self._fetching.get(entry.object_id)):
                        if waiting is not None and callback in waiting:
                            waiting.remove(callback)
        return count >= num_returns

    def _bring(self, refs: Sequence[ObjectRef], known: bool) -> None:
        """Starts to bring here what exists elsewhere, as far as there is room. `known`: see `wait`."""
        elsewhere = self._objects.elsewhere
        # Long lists are looked through more rarely, so that the cost for each value does not grow with the list.
        if self._is_full or (known and elsewhere - self._brought <= len(refs) // BRINGS):
            return
        self._brought = elsewhere
        missing = [
            entry
            for ref in refs
            if (entry := ref._entry).value is not None
            and not self._is_here(entry)
            and entry.object_id not in self._fetching
        ]
        if not missing:
            return
        with self._links.lock:
            for entry in missing:
                value = entry.value
                if value is None or self._is_here(entry) or entry.object_id in self._fetching:
                    continue
                if self._ahead_bytes and self._ahead_bytes + value.size_bytes > self._store.ahead_limit_bytes:
                    self._is_full = True
                    break
                self._fetch(entry, [], value.size_bytes)

    def _await_copy(self, entry: Entry, callback: Callable[[], None]) -> None:
        """Brings a copy to this node, and calls back when there is news of it. Under the lock."""
        waiting = self._fetching.get(entry.object_id)
        if waiting is not None:
            waiting.append(callback)
        else:
            self._fetch(entry, [callback])

    def _fetch(self, entry: Entry, waiting: list[Callable[[], None]], ahead_bytes: int = 0) -> None:
        """Brings a copy to this node, and keeps the object until then. Under the lock.

        Args:
            waiting: who is called back when there is news of it.
            ahead_bytes: its size, if nobody waits for it yet.
        """
        self._fetching[entry.object_id] = waiting
        self._ahead_bytes += ahead_bytes
        entry.hold()
        value, reader = entry.value, self._reader
        assert value is not None

        def fetched(error: ErrorReply | None) -> None:
            if error is None:
                reader.note_copy(entry, value)
            elif error.kind == ErrorKind.LOST:
                lost = exceptions.ObjectLostError(entry.object_id.hex(), b"", "")
                refusal = reader.rebuild_lost(entry, value, lost)
                if refusal is not None:
                    entry.value = self._objects.error_value(refusal)
            del self._fetching[entry.object_id]
            # Those who wait are told of other errors by `get`. Without them a later try may do better.
            entry.fetched = error is None or (error.kind != ErrorKind.LOST and bool(waiting))
            if ahead_bytes:
                self._ahead_bytes -= ahead_bytes
                if self._is_full:
                    self._is_full, self._brought = False, _NEVER
            for callback in waiting:
                callback()
            self._objects.release(entry)

        self._store.prefetch(entry.object_id, value.locations, fetched)
