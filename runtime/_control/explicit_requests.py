"""What programs asked to be kept ready, by owner: each owner's last word, until it takes it back, its time is over, or
the program that it ends with has ended. Kept on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from runtime._control.context import Context
from runtime._core.resources import describe
from runtime._transport.channel import CallError
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.control import Requester, RequestResources

TABLE = "requested"


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One owner's request. Column by column, one value for each different bundle."""

    bundles: list[dict[str, int]]
    expires_s: float  # unix time; 0: never
    selectors: list[dict[str, str]] = []
    counts: list[int] = []
    job_id: bytes = b""

    @classmethod
    def of(cls, message: RequestResources, now_s: float) -> Entry:
        """Checks a request.

        Raises:
            CallError: INVALID, it makes no sense.
        """
        size = len(message.bundles)
        selectors = message.selectors or [{} for _ in range(size)]
        counts = message.counts or [1] * size
        if any(amount < 0 for bundle in message.bundles for amount in bundle.values()):
            raise CallError(ErrorKind.INVALID, "requested resources must not be negative")
        if len(selectors) != size:
            raise CallError(ErrorKind.INVALID, "one selector is needed for each requested bundle")
        if len(counts) != size or any(count <= 0 for count in counts):
            raise CallError(ErrorKind.INVALID, "one count above zero is needed for each requested bundle")
        expires_s = now_s + message.ttl_s if message.ttl_s else 0.0
        return cls(message.bundles, expires_s, selectors, counts, message.job_id)


class ExplicitRequests:
    """The requests of all owners.

    Args:
        changed: called when there are others than before.
    """

    def __init__(self, context: Context, changed: Callable[[], None]) -> None:
        self._context = context
        self._changed = changed
        self._entries: dict[str, Entry] = {}

    def load(self) -> None:
        """Takes those of an earlier life."""
        for name, row in self._context.journal.storage.scan(TABLE):
            entry = msgspec.msgpack.decode(row, type=Entry)
            if not entry.counts:  # an earlier version wrote every bundle down
                entry = msgspec.structs.replace(entry, counts=[1] * len(entry.bundles))
            owner = name.decode()
            self._entries[owner] = entry
            self._expire(owner, entry)

    def take(self, message: RequestResources) -> None:
        """Replaces what the owner asked for; no bundles: it asks for nothing any more.

        Raises:
            CallError: INVALID, the request makes no sense.
        """
        entry = Entry.of(message, self._context.wall_time())
        if not entry.bundles:
            self._drop(message.owner)
            return
        self._entries[message.owner] = entry
        self._context.journal.put(TABLE, message.owner.encode(), msgspec.msgpack.encode(entry))
        self._expire(message.owner, entry)
        self._changed()

    def job_finished(self, job_id: bytes) -> None:
        """What a program asked for ends with it, unless it was meant to outlive it."""
        for owner in [owner for owner, entry in self._entries.items() if entry.job_id == job_id]:
            self._drop(owner)

    def everything(self) -> tuple[list[Requester], list[Entry]]:
        """Who asks, and for what, in the same order."""
        requesters = [
            Requester(owner, len(entry.bundles), entry.expires_s, entry.job_id)
            for owner, entry in self._entries.items()
        ]
        return requesters, list(self._entries.values())

    def of_programs(self) -> Iterator[tuple[bytes, str, int]]:
        """(job, what, how many of it) for all that ends with a program."""
        for entry in self._entries.values():
            if entry.job_id:
                for bundle, selector, count in zip(entry.bundles, entry.selectors, entry.counts, strict=True):
                    yield entry.job_id, describe(bundle, selector), count

    def _expire(self, owner: str, entry: Entry) -> None:
        """Forgets the entry when its time is over."""
        if not entry.expires_s or self._entries.get(owner) is not entry:
            return
        left_s = entry.expires_s - self._context.wall_time()
        if left_s > 0:
            self._context.after(left_s + 0.01, lambda: self._expire(owner, entry))
        else:
            self._drop(owner)

    def _drop(self, owner: str) -> None:
        if self._entries.pop(owner, None) is not None:
            self._context.journal.delete(TABLE, owner.encode())
            self._changed()
