"""Carries out what the ownership core wants: the `Outbox` of a connected process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from runtime._ownership.failures import ArgumentFailed, ObjectFailure
from runtime._ownership.outbox import AttemptEnded
from runtime._ownership.records import Entry
from runtime._transport.connection import Connection
from runtime._transport.failures import report
from runtime._wire import serialization
from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.node import StoreFree
from runtime._wire.messages.worker import Value
from runtime.object_ref import ObjectRef
from runtime.object_ref_generator import DynamicObjectRefGenerator

from .arguments import ArgumentPacker
from .errors import error_of, task_error_of
from .links import Links
from .lost_arguments import take_for_lost
from .objects import Objects
from .reading import Reader
from .store import Store
from .unhandled import UnhandledErrors
from .value_requests import ValueRequests


class Effects:
    """See `runtime._ownership.outbox.Outbox`. Everything here runs under the pump's lock."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._unhandled = UnhandledErrors()
        self.attempt_ended: AttemptEnded
        """`History.ended` itself, as it is called for every task."""
        self.reference: Callable[[Entry], ObjectRef]
        self._objects: Objects
        self._store: Store
        self._value_requests: ValueRequests
        self._packer: ArgumentPacker
        self._reader: Reader

    def attach(
        self,
        objects: Objects,
        store: Store,
        value_requests: ValueRequests,
        packer: ArgumentPacker,
        reader: Reader,
        attempt_ended: AttemptEnded,
    ) -> None:
        """Closes the circle: what carries effects out is itself made of parts of the core, which wants them."""
        self._objects = objects
        self.reference = objects.held_ref
        self._store = store
        self._value_requests = value_requests
        self._packer = packer
        self._reader = reader
        self.attempt_ended = attempt_ended

    @property
    def agent(self) -> Connection:
        return self._links.agent

    def peer(self, address: WorkerAddress, connect: bool = True) -> Connection | None:
        return self._links.peer(address, connect)

    def request_values(self, entries: Iterable[Entry]) -> None:
        self._value_requests.ask_all(entries)

    def free(self, object_ids: list[bytes], node_ids: list[bytes]) -> None:
        self._store.free(object_ids, node_ids)

    def forget(self, object_ids: list[bytes]) -> None:
        self._store.forget(object_ids)

    def drop_copies(self, object_id: bytes, node_ids: list[bytes], outdated: bool) -> None:
        if outdated:
            self._store.outdate(object_id)
        self._links.agent.send(StoreFree([object_id], node_ids, False))

    def error(self, failure: Any) -> Value:
        objects = self._objects
        if isinstance(failure, ObjectFailure):
            return objects.error_value(error_of(failure, self._links.address, objects.call_site))
        if isinstance(failure, ArgumentFailed):
            return self._packer.not_computed(failure)
        return objects.error_value(task_error_of(failure))

    def collected(self, references: Sequence[ObjectRef]) -> tuple[bytes, Sequence[Entry]]:
        serialized = serialization.serialize(DynamicObjectRefGenerator(references))
        return serialized.data, serialized.references

    def copies_lost(self, entry: Entry, node_ids: Sequence[bytes]) -> None:
        take_for_lost(self._objects, self._reader, entry, node_ids)

    def unhandled(self, value: Value) -> None:
        self._unhandled.report(value)

    def callback_failed(self, what: str) -> None:
        report(what)
