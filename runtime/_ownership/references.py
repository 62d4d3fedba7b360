"""Reference counting of distributed objects, for one process: what it owns and what it borrows. Pure.

A process keeps an object for as long as it holds it: one hold per `ObjectRef` in the process, per submitted task that
has it as an argument, per owned object whose value contains it, and per reply that carries it. The owner also keeps it
while any other process borrows it. One rule makes this safe without weights or clocks: whoever sends a reference keeps
its own hold until the receiver's borrow is registered with the owner.

Source: Wang et al., "Ownership: A Distributed Futures System for Fine-Grained Tasks", NSDI 2021, section 4.
"""

from __future__ import annotations

from collections.abc import Iterable

from .records import Entry


class ReferenceTable:
    """All references of one process. Methods that may end a reference return the dead ones, containers first; the
    caller frees what it owned and tells the owners of what it borrowed."""

    __slots__ = ("_by_borrower", "entries")

    def __init__(self) -> None:
        self.entries: dict[bytes, Entry] = {}
        self._by_borrower: dict[bytes, dict[bytes, None]] = {}  # in order: what happens is the same each time

    def add(self, entry: Entry) -> Entry:
        """Enters a new reference (with its first holds already counted by the caller)."""
        self.entries[entry.object_id] = entry
        return entry

    def release(self, entry: Entry) -> Iterable[Entry]:
        """Takes one hold away."""
        return self.bury(entry) if entry.release() else ()

    def contain(self, entry: Entry, nested: Iterable[Entry]) -> None:
        """The value of `entry` contains these: hold them for as long as it lives."""
        if entry.nested is None:
            entry.nested = []
        for inner in nested:
            inner.hold()
            entry.nested.append(inner)

    def empty(self, entry: Entry) -> Iterable[Entry]:
        """The value of `entry` is gone (it will be made again): release what it contained."""
        nested, entry.nested = entry.nested, None
        dead: list[Entry] = []
        for inner in nested or ():
            dead.extend(self.release(inner))
        return dead

    def add_borrower(self, object_id: bytes, borrower: bytes) -> bool:
        """Another process holds one of ours. False: it is unknown, or not ours."""
        entry = self.entries.get(object_id)
        if entry is None or entry.owner is not None:
            return False
        if entry.borrowers is None:
            entry.borrowers = set()
        entry.borrowers.add(borrower)
        self._by_borrower.setdefault(borrower, {})[object_id] = None
        return True

    def remove_borrower(self, object_id: bytes, borrower: bytes) -> Iterable[Entry]:
        """The borrower holds it no longer. Repeating it does nothing."""
        held = self._by_borrower.get(borrower)
        if held is not None:
            held.pop(object_id, None)
            if not held:
                del self._by_borrower[borrower]
        entry = self.entries.get(object_id)
        if entry is None or entry.borrowers is None or borrower not in entry.borrowers:
            return ()
        entry.borrowers.discard(borrower)
        if entry.holds > 0 or entry.borrowers:
            return ()
        return self.bury(entry)

    def borrower_lost(self, borrower: bytes) -> Iterable[Entry]:
        """The borrower's process died."""
        dead: list[Entry] = []
        for object_id in tuple(self._by_borrower.get(borrower, ())):
            dead.extend(self.remove_borrower(object_id, borrower))
        return dead

    def bury(self, entry: Entry) -> Iterable[Entry]:
        """Ends a reference that nothing holds, with what only its value held."""
        if self.entries.get(entry.object_id) is not entry:
            return ()
        del self.entries[entry.object_id]
        if not entry.nested:
            return (entry,)
        dead: list[Entry] = [entry]
        queue: list[Entry] = list(entry.nested)
        entry.nested = None
        while queue:
            inner = queue.pop()
            if not inner.release() or self.entries.get(inner.object_id) is not inner:
                continue
            del self.entries[inner.object_id]
            dead.append(inner)
            if inner.nested:
                queue.extend(inner.nested)
                inner.nested = None
        return dead
