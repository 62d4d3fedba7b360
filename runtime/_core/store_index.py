"""Which objects a node holds, in shared memory or on disk, who pins them, and what may be evicted or spilled. Pure.

An object is CREATED while its writer fills it and SEALED afterwards. The primary copy (written here) stays
until its owner frees it; a secondary copy (pulled from another node) is evicted when space is short and
nobody pins it. A primary copy that nobody pins can be spilled: once it is in a file too, its memory may go, and
readers then map the file. "Holder" is whatever key the caller uses for a process (its
connection).
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator

import msgspec

from .allocator import Allocator
from .allotments import Allotments
from .fsm import Edge, Transitions

Holder = Hashable
ALLOTTED_SHARE = 0.75
"""When more of the memory is used, writers ask for each object."""


class IdClash(Exception):
    """Objects of different owners have one id."""

    def __init__(self, object_id: bytes) -> None:
        super().__init__(
            f"Two processes have made different objects with the id {object_id.hex()}: neither can be read by its id. "
            "Run the tasks that made them again."
        )


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


class StoredObject(msgspec.Struct, eq=False):
    """One object of this node. The writer pins it from the start.

    `offset` is None when it has no memory: then it lies in its `file`. With both, either may be read.
    """

    object_id: bytes
    offset: int | None
    size_bytes: int
    owner_worker: bytes
    owner_node: bytes
    primary: bool
    creator: Holder
    state: ObjectState = ObjectState.CREATED
    pins: dict[Holder, int] = msgspec.field(default_factory=dict)
    file: str = ""
    tag: str = ""
    disputed: bool = False  # another owner has made an object with this id: nobody can say which one is meant

    @property
    def expendable(self) -> bool:
        """Whether its memory may go without the object being lost."""
        return not self.primary or bool(self.file)


class StoreIndex:
    """Objects, pins and space of one node.

    Args:
        capacity_bytes: of the shared memory.
        on_file: called with each file that is no longer needed.
    """

    def __init__(self, capacity_bytes: int, on_file: Callable[[str], None] = lambda _path: None) -> None:
        self.allocator = Allocator(capacity_bytes)
        self.allotments = Allotments(self.allocator, ALLOTTED_SHARE)
        self._on_file = on_file
        self._objects: dict[bytes, StoredObject] = {}
        self._doomed: dict[bytes, list[StoredObject]] = {}
        # In memory and without pins, the one that was used longest ago first.
        self._evictable: OrderedDict[bytes, StoredObject] = OrderedDict()
        self._spillable: OrderedDict[bytes, StoredObject] = OrderedDict()
        self._spilling: set[StoredObject] = set()
        self._held: dict[Holder, set[StoredObject]] = {}
        self._by_owner: dict[bytes, dict[StoredObject, None]] = {}  # what nobody has freed
        self.primary_count = 0
        self.evictable_bytes = 0
        self.spilling_bytes = 0
        self.spilled_bytes = 0  # written to files so far, ever
        self.spilled_count = 0

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, object_id: bytes) -> bool:
        return object_id in self._objects

    def knows(self, object_id: bytes) -> bool:
        """Whether it is here, or was freed and is still pinned."""
        return object_id in self._objects or object_id in self._doomed

    def sealed(self, object_id: bytes) -> StoredObject | None:
        """The object when it can be read."""
        entry = self._objects.get(object_id)
        return entry if entry is not None and entry.state is ObjectState.SEALED else None

    def owner_of(self, object_id: bytes) -> bytes:
        """The process that owns an object that is here."""
        return self._objects[object_id].owner_worker

    def is_on_disk(self, object_id: bytes) -> bool:
        """Whether there is a file of it."""
        entry = self._objects.get(object_id)
        return entry is not None and bool(entry.file)

    @property
    def used_bytes(self) -> int:
        return self.allocator.used_bytes

    @property
    def kept_bytes(self) -> int:
        """Memory of what could not simply be evicted, now or when the spilling under way is done."""
        return self.allocator.used_bytes - self.evictable_bytes - self.spilling_bytes

    def create(
        self,
        object_id: bytes,
        size_bytes: int,
        creator: Holder,
        *,
        owner_worker: bytes = b"",
        owner_node: bytes = b"",
        primary: bool = True,
        tag: str = "",
    ) -> StoredObject | None:
        """Takes memory, evicting what is elsewhere too if that makes room. None when there is none now.

        Raises:
            ValueError: the object is here already.
        """
        if object_id in self._objects:
            raise ValueError("the object exists")
        offset = self.allocator.allocate(size_bytes)
        if offset is None and size_bytes <= self.allocator.capacity:
            while offset is None and self._evictable:
                self._evict(next(iter(self._evictable.values())))
                offset = self.allocator.allocate(size_bytes)
        if offset is None:
            return None
        return self._enter(
            StoredObject(object_id, offset, size_bytes, owner_worker, owner_node, primary, creator, tag=tag),
            creator,
        )

    def create_in_file(
        self,
        object_id: bytes,
        size_bytes: int,
        creator: Holder,
        file: str,
        *,
        owner_worker: bytes = b"",
        owner_node: bytes = b"",
        primary: bool = True,
        tag: str = "",
    ) -> StoredObject:
        """Enters an object that will be written to a file, as there is no memory for it.

        Raises:
            ValueError: the object is here already.
        """
        if object_id in self._objects:
            raise ValueError("the object exists")
        self.spilled_bytes += size_bytes
        self.spilled_count += 1
        return self._enter(
            StoredObject(
                object_id, None, size_bytes, owner_worker, owner_node, primary, creator, file=file, tag=tag
            ),
            creator,
        )

    def place(
        self,
        object_id: bytes,
        offset: int,
        size_bytes: int,
        creator: Holder,
        keeper: Holder | None,
        *,
        owner_worker: bytes = b"",
        owner_node: bytes = b"",
        tag: str = "",
    ) -> None:
        """Enters a sealed object that its creator has written to space it was allotted. What its owner had by this
        id goes: it was made again.

        Args:
            keeper: who pins it from the start, if anybody.

        Raises:
            ValueError: the space was not allotted to the creator.
            IdClash: another owner has an object with this id. That one stays, and from now on nobody can pin either;
                `keeper` has its pin.
        """
        self.allotments.take(creator, offset, size_bytes)
        entry = StoredObject(
            object_id,
            offset,
            size_bytes,
            owner_worker,
            owner_node,
            True,
            creator,
            ObjectState.SEALED,
            tag=tag,
        )
        known = self._objects.get(object_id)
        if known is not None and known.owner_worker != owner_worker:
            known.disputed = True
            entry.state = ObjectState.FREED
            self._doomed.setdefault(object_id, []).append(entry)
            self._begin(entry, keeper)
            raise IdClash(object_id)
        self.free([object_id])
        self._list(entry)
        self._begin(entry, keeper)

    def _begin(self, entry: StoredObject, keeper: Holder | None) -> None:
        """Gives a sealed object its first pin, if any."""
        if keeper is None:
            self._unpinned(entry)
        else:
            self._keep(entry, keeper)

    def _enter(self, entry: StoredObject, keeper: Holder) -> StoredObject:
        self._list(entry)
        self._keep(entry, keeper)
        return entry

    def _list(self, entry: StoredObject) -> None:
        self._objects[entry.object_id] = entry
        self._by_owner.setdefault(entry.owner_worker, {})[entry] = None
        self.primary_count += entry.primary

    def _keep(self, entry: StoredObject, holder: Holder) -> None:
        entry.pins[holder] = entry.pins.get(holder, 0) + 1
        self._held.setdefault(holder, set()).add(entry)

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
        """Keeps a sealed object for `holder`; None when there is none.

        Raises:
            IdClash: another owner has made an object with the same id.
        """
        entry = self._objects.get(object_id)
        if entry is None or entry.state is not ObjectState.SEALED:
            return None
        if entry.disputed:
            raise IdClash(object_id)
        self._keep(entry, holder)
        self._not_idle(entry)
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

    def free(self, object_ids: Iterable[bytes], unpinning: Holder | None = None) -> bool:
        """Nobody refers to these any more, and `unpinning` takes all its pins away. True when memory came back at
        once."""
        released = False
        for object_id in object_ids:
            entry = self._objects.get(object_id)
            if entry is None:
                continue
            if entry.disputed:  # perhaps the other one is meant: it stays until its owner ends
                if unpinning is not None:
                    released |= self.unpin(object_id, unpinning)
                continue
            if unpinning is not None and unpinning in entry.pins and entry.state is not ObjectState.CREATED:
                self._drop_pin(entry, unpinning)
            released |= self._free(entry)
        return released

    def _free(self, entry: StoredObject) -> bool:
        """True when memory came back at once."""
        if entry.pins or entry in self._spilling:
            self._forget(entry)
            self._doomed.setdefault(entry.object_id, []).append(entry)
            return False
        self._discard(entry)
        return True

    def drop_holder(self, holder: Holder) -> bool:
        """A process is gone: its unsealed objects and its pins vanish. True when space may have come back."""
        released = self.allotments.drop(holder)
        for entry in self._held.pop(holder, set()):
            del entry.pins[holder]
            if entry.state is ObjectState.CREATED:
                self._discard(entry)
                released = True
            else:
                released |= self._unpinned(entry)
        return released

    def take_spillable(self, size_bytes: int) -> list[StoredObject]:
        """Primary copies that nobody pins, the longest unused first, of at least `size_bytes` together if there are so
        many. Each stays where it is until `spilled` or `not_spilled` is called for it."""
        taken: list[StoredObject] = []
        while size_bytes > 0 and self._spillable:
            entry = next(iter(self._spillable.values()))
            self._not_idle(entry)
            self._spilling.add(entry)
            self.spilling_bytes += entry.size_bytes
            size_bytes -= entry.size_bytes
            taken.append(entry)
        return taken

    def spilled(self, entry: StoredObject, file: str) -> None:
        """It is in `file` as well: its memory may go when it is wanted."""
        self._end_spilling(entry)
        entry.file = file
        self.spilled_bytes += entry.size_bytes
        self.spilled_count += 1
        if entry.state is ObjectState.FREED:
            self._on_file(file)
        self._unpinned(entry)

    def not_spilled(self, entry: StoredObject) -> None:
        """It could not be written to disk."""
        self._end_spilling(entry)
        self._unpinned(entry)

    def _end_spilling(self, entry: StoredObject) -> None:
        self._spilling.discard(entry)
        self.spilling_bytes -= entry.size_bytes

    def unsealed_of(self, holder: Holder) -> list[bytes]:
        """What a process has not finished writing."""
        held = self._held.get(holder, ())
        return [e.object_id for e in held if e.creator == holder and e.state is not ObjectState.SEALED]

    def drop_owners(self, worker_ids: Iterable[bytes]) -> bool:
        """Frees what dead processes owned. True when memory came back at once."""
        return self._free_all(entry for owner in worker_ids for entry in self._by_owner.get(owner, ()))

    def drop_node(self, node_id: bytes) -> bool:
        """The same for all processes of a node."""
        return self._free_all(
            entry
            for owned in self._by_owner.values()
            if next(iter(owned)).owner_node == node_id
            for entry in owned
        )

    def drop_where(self, condition: Callable[[StoredObject], bool]) -> bool:
        """Frees the objects for which `condition` holds: those of finished jobs."""
        return self._free_all(entry for entry in self._objects.values() if condition(entry))

    def _free_all(self, entries: Iterable[StoredObject]) -> bool:
        released = False
        for entry in list(entries):
            released |= self._free(entry)
        return released

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
        """True when memory came back, or can be had from this object now."""
        if entry.pins or entry in self._spilling:
            return False
        if entry.state is ObjectState.FREED:
            doomed = self._doomed[entry.object_id]
            doomed.remove(entry)
            if not doomed:
                del self._doomed[entry.object_id]
            self._give_back(entry)
            return True
        if entry.offset is None:
            if not entry.primary:
                self._discard(entry)  # a copy of no use as a cache: it is no nearer than the original
            return False
        if entry.expendable:
            self._evictable[entry.object_id] = entry
            self.evictable_bytes += entry.size_bytes
        else:
            self._spillable[entry.object_id] = entry
        return True

    def _not_idle(self, entry: StoredObject) -> None:
        if self._evictable.pop(entry.object_id, None) is not None:
            self.evictable_bytes -= entry.size_bytes
        else:
            self._spillable.pop(entry.object_id, None)

    def _evict(self, entry: StoredObject) -> None:
        if entry.primary:
            self._not_idle(entry)
            self._give_back(entry)
        else:
            self._discard(entry)

    def _forget(self, entry: StoredObject) -> None:
        entry.state = ObjectState.FREED
        del self._objects[entry.object_id]
        owned = self._by_owner[entry.owner_worker]
        del owned[entry]
        if not owned:
            del self._by_owner[entry.owner_worker]
        self._not_idle(entry)
        self.primary_count -= entry.primary
        if entry.file:
            self._on_file(entry.file)  # readers that have mapped it keep it until then

    def _discard(self, entry: StoredObject) -> None:
        self._forget(entry)
        self._give_back(entry)

    def _give_back(self, entry: StoredObject) -> None:
        if entry.offset is not None:
            self.allocator.free(entry.offset)
            entry.offset = None
