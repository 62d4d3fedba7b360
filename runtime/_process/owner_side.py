"""The owner's side of a worker, as its executor sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from runtime._executor.owner_side import Arguments
from runtime._owner.arguments import LostArguments
from runtime._owner.lost_arguments import CallArguments
from runtime._ownership.records import Entry, hold_all
from runtime._transport.connection import Connection
from runtime._wire.messages.worker import Push

from .core_worker import Core


class OwnerSide:
    """See `runtime._executor.owner_side.OwnerSide`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._table = core.objects.table.entries
        self.functions = core.functions
        self.released = core.released
        self.drain = core.objects.drain
        self.pack = core.objects.pack
        self.error_value = core.objects.error_value
        self.release = core.objects.release
        self.when_registered = core.borrowing.when_registered
        self.report_tasks = core.history.report
        self.cancel_children = core.outcomes.cancel_children
        self.unpack = core.argument_reader.unpack
        arguments = CallArguments(
            core.links, core.objects, core.borrowing, core.reader, core.argument_reader, self._end_process
        )
        self.unpack_or_send_back: Callable[[Push], Arguments] = arguments.unpack
        self.send_back: Callable[[Connection, Push, LostArguments], None] = arguments.send_back

    @property
    def forked(self) -> bool:
        return self._core.forked

    def _end_process(self, reason: str) -> None:
        assert self._core.executor is not None
        self._core.executor.terminate(reason)

    def hold(self, entries: Iterable[Entry]) -> None:
        self._core.store.say_all()
        hold_all(entries)

    def unregistered(self, entries: Iterable[Entry]) -> list[Entry]:
        table = self._table
        return [entry for entry in entries if not entry.registered and table.get(entry.object_id) is entry]

    def when_all_registered(self, callback: Callable[[], None]) -> None:
        self._core.borrowing.when_registered(list(self._table.values()), callback)

    def is_needed(self) -> bool:
        return bool(self._core.outcomes.pending) or self._core.objects.lends()
