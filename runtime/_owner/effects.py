"""Carries out what the ownership core wants: the `Outbox` of a connected process."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from runtime._ownership.failures import ArgumentFailed, ObjectFailure
from runtime._ownership.outbox import AttemptEnded
from runtime._ownership.records import Entry
from runtime._transport.connection import Connection
from runtime._transport.failures import report
from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.node import StoreFree
from runtime._wire.messages.worker import Value

from .errors import error_of, task_error_of
from .lost_arguments import take_for_lost
from .unhandled import UnhandledErrors

if TYPE_CHECKING:
    from runtime._process.core_worker import Core

log = logging.getLogger("runtime")


class Effects:
    """See `runtime._ownership.outbox.Outbox`. Everything here runs under the pump's lock."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.attempt_ended: AttemptEnded
        """`History.ended` itself, as it is called for every task; set by the core."""
        self._unhandled = UnhandledErrors()

    @property
    def agent(self) -> Connection:
        return self._core.agent

    def peer(self, address: WorkerAddress, connect: bool = True) -> Connection | None:
        return self._core.peer(address, connect)

    def request_values(self, entries: Iterable[Entry]) -> None:
        self._core.value_requests.ask_all(entries)

    def free(self, object_ids: list[bytes], node_ids: list[bytes]) -> None:
        self._core.store.free(object_ids, node_ids)

    def forget(self, object_ids: list[bytes]) -> None:
        self._core.store.forget(object_ids)

    def drop_copies(self, object_id: bytes, node_ids: list[bytes], outdated: bool) -> None:
        if outdated:
            self._core.store.outdate(object_id)
        self._core.agent.send(StoreFree([object_id], node_ids, False))

    def error(self, failure: Any) -> Value:
        core = self._core
        if isinstance(failure, ObjectFailure):
            return core.objects.error_value(error_of(failure, core.address))
        if isinstance(failure, ArgumentFailed):
            return core.arguments.not_computed(failure)
        return core.objects.error_value(task_error_of(failure))

    def copies_lost(self, entry: Entry, node_ids: Sequence[bytes]) -> None:
        take_for_lost(self._core, entry, node_ids)

    def tasks_wait(self, name: str, count: int, reason: str) -> None:
        if self._core.is_driver:
            log.warning("%d task(s) of %s wait: %s", count, name, reason)

    def unhandled(self, value: Value) -> None:
        self._unhandled.report(value)

    def callback_failed(self, what: str) -> None:
        report(what)
