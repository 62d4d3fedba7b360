"""Which objects a node's shared memory holds, who pins them, and what may be evicted. Pure.

An object is CREATED while its writer fills it and SEALED afterwards. The primary copy (written here) stays
until its owner frees it; a secondary copy (pulled from another node) is evicted when space is short and
nobody pins it. "Holder" is whatever key the caller uses for a process (its connection).
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from .allocator import Allocator
from .fsm import Edge, Transitions

Holder = Hashable


class ObjectState(enum.Enum):
    CREATED = "CREATED"
    SEALED = "SEALED"
    FREED = "FREED"  # nobody refers to it; the memory goes with the last pin


TRANSITIONS: Transitions[ObjectState, ObjectState] = {
    (ObjectState.CREATED, ObjectState.SEALED): Edge(ObjectState.SEALED, "the writer sealed it"),
    (ObjectState.CREATED, ObjectState.FREED): Edge(
        ObjectState.FREED, "the writer aborted or died, or the owner freed it"
    ),
    (ObjectState.SEALED, ObjectState.FREED): Edge(
        ObjectState.FREED, "the owner freed it or died, or the copy was evicted"
    ),
}


@dataclass(slots=True, eq=False)
class StoredObject:
    """One object of this node. The writer pins it from the start."""

    object_id: bytes
    offset: int
    size_bytes: int
    owner_worker: bytes
    owner_node: bytes
    primary: bool
    creator: Holder
    state: ObjectState = ObjectState.CREATED
    pins: dict[Holder, int] = field(default_factory=dict)


class StoreFullError(Exception):
    """The object can never fit: it is larger than the store."""


class StoreIndex:
    """Objects, pins and space of one node."""

    def __init__(self, capacity_bytes: int) -> None:
        self.allocator = Allocator(capacity_bytes)
        self._objects: dict[bytes, StoredObject] = {}
        self._doomed: dict[bytes, list[StoredObject]] = {}
        self._evictable: OrderedDict[bytes, StoredObject] = OrderedDict()
        self._held: dict[Holder, set[StoredObject]] = {}
        self.primary_count = 0

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, object_id: bytes) -> bool:
        return object_id in self._objects

    def sealed(self, object_id: bytes) -> StoredObject | None:
        """The object when it can be read."""
        entry = self._objects.get(object_id)
        return entry if entry is not None and entry.state is ObjectState.SEALED else None

    @property
    def used_bytes(self) -> int:
        return self.allocator.used_bytes

    def create(
        self,
        object_id: bytes,
        size_bytes: int,
        creator: Holder,
        *,
        owner_worker: bytes = b"",
        owner_node: bytes = b"",
        primary: bool = True,
    ) -> StoredObject | None:
        """Takes space, evicting old secondary copies if that makes room. None when there is none now.

        Raises:
            StoreFullError: it can never fit.
            ValueError: the object is here already.
        """
        if object_id in self._objects:
            raise ValueError("the object exists")
        if size_bytes > self.allocator.capacity:
            raise StoreFullError
        offset = self.allocator.allocate(size_bytes)
        while offset is None and self._evictable:
            _, victim = self._evictable.popitem(last=False)
            self._discard(victim)
            offset = self.allocator.allocate(size_bytes)
        if offset is None:
            return None
        entry = StoredObject(object_id, offset, size_bytes, owner_worker, owner_node, primary, creator)
        entry.pins[creator] = 1
        self._objects[object_id] = entry
        self._held.setdefault(creator, set()).add(entry)
        self.primary_count += primary
        return entry

    def seal(self, object_id: bytes, creator: Holder) -> bool:
        """The writer is done and keeps its pin. False when the object is not there to be read (freed
        meanwhile)."""
        entry = self._objects.get(object_id)
        if entry is None or entry.state is not ObjectState.CREATED or entry.creator != creator:
            return False
        entry.state = ObjectState.SEALED
        return True

    def abort(self, object_id: bytes, creator: Holder) -> bool:
        """The writer gives an unsealed object up: nothing remains."""
        for entry in self._versions(object_id):
            if entry.creator == creator and entry.state is not ObjectState.SEALED and creator in entry.pins:
                self._drop_pin(entry, creator)
                if entry.state is ObjectState.CREATED:
                    self._discard(entry)
                else:
                    self._unpinned(entry)
                return True
        return False

    def pin(self, object_id: bytes, holder: Holder) -> StoredObject | None:
        """Keeps a sealed object for `holder`; None when there is none."""
        entry = self._objects.get(object_id)
        if entry is None or entry.state is not ObjectState.SEALED:
            return None
        entry.pins[holder] = entry.pins.get(holder, 0) + 1
        self._held.setdefault(holder, set()).add(entry)
        self._evictable.pop(object_id, None)
        return entry

    def unpin(self, object_id: bytes, holder: Holder) -> bool:
        """Takes one pin of `holder` away. True when that gave memory back or made the copy evictable."""
        for entry in self._versions(object_id):
            count = entry.pins.get(holder, 0)
            if count > 1:
                entry.pins[holder] = count - 1
                return False
            if count and entry.state is not ObjectState.CREATED:
                self._drop_pin(entry, holder)
                return self._unpinned(entry)
        return False

    def free(self, object_ids: Iterable[bytes]) -> bool:
        """Nobody refers to these any more. True when memory came back at once."""
        released = False
        for object_id in object_ids:
            entry = self._objects.get(object_id)
            if entry is None:
                continue
            if entry.pins:
                self._forget(entry)
                self._doomed.setdefault(object_id, []).append(entry)
            else:
                self._discard(entry)
                released = True
        return released

    def drop_holder(self, holder: Holder) -> bool:
        """A process is gone: its unsealed objects and its pins vanish. True when space may have come back."""
        released = False
        for entry in self._held.pop(holder, set()):
            del entry.pins[holder]
            if entry.state is ObjectState.CREATED:
                self._discard(entry)
                released = True
            else:
                released |= self._unpinned(entry)
        return released

    def drop_where(self, condition: Callable[[StoredObject], bool]) -> bool:
        """Frees the objects for which `condition` holds: those of dead owners and finished jobs."""
        return self.free([entry.object_id for entry in list(self._objects.values()) if condition(entry)])

    def biggest_holders(self, limit: int = 5) -> list[tuple[bytes, int, int]]:
        """`(owner worker, bytes, objects)` of those whose objects fill the store most, biggest first."""
        held: dict[bytes, tuple[int, int]] = {}
        for entry in self.entries():
            size, count = held.get(entry.owner_worker, (0, 0))
            held[entry.owner_worker] = (size + entry.size_bytes, count + 1)
        ranked = sorted(((owner, size, count) for owner, (size, count) in held.items()), key=lambda r: -r[1])
        return ranked[:limit]

    def entries(self) -> Iterator[StoredObject]:
        """Every object that takes space, the freed ones that are still pinned included."""
        yield from self._objects.values()
        for doomed in self._doomed.values():
            yield from doomed

    def _versions(self, object_id: bytes) -> list[StoredObject]:
        """The freed copies and the current one of an id: it may have been made again while an old copy is
        pinned."""
        entry = self._objects.get(object_id)
        doomed = self._doomed.get(object_id)
        if doomed is None:
            return [] if entry is None else [entry]
        return [*doomed] if entry is None else [*doomed, entry]

    def _drop_pin(self, entry: StoredObject, holder: Holder) -> None:
        del entry.pins[holder]
        held = self._held[holder]
        held.discard(entry)
        if not held:
            del self._held[holder]

    def _unpinned(self, entry: StoredObject) -> bool:
        if entry.pins:
            return False
        if entry.state is ObjectState.FREED:
            doomed = self._doomed[entry.object_id]
            doomed.remove(entry)
            if not doomed:
                del self._doomed[entry.object_id]
            self.allocator.free(entry.offset)
            return True
        if not entry.primary:
            self._evictable[entry.object_id] = entry
            return True
        return False

    def _forget(self, entry: StoredObject) -> None:
        entry.state = ObjectState.FREED
        del self._objects[entry.object_id]
        self._evictable.pop(entry.object_id, None)
        self.primary_count -= entry.primary

    def _discard(self, entry: StoredObject) -> None:
        self._forget(entry)
        self.allocator.free(entry.offset)
