"""The parts of the owner's side without a cluster: a process whose agent and peers are what a test makes of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from runtime._core import ids
from runtime._owner.arguments import ArgumentPacker, ArgumentReader
from runtime._owner.effects import Effects
from runtime._owner.object_admin import ObjectAdmin
from runtime._owner.objects import Objects
from runtime._owner.reading import Reader
from runtime._owner.value_requests import ValueRequests
from runtime._owner.waiting import Waiter
from runtime._ownership.borrowing import Borrowing
from runtime._ownership.released import Released
from runtime._wire import serialization
from runtime._wire.messages.base import WorkerAddress

US = WorkerAddress(b"u" * 28, b"n" * 28, "us")
OWNER = WorkerAddress(b"o" * 28, b"m" * 28, "owner")


class Peer:
    """A connection to another process: what it was told, and how it answers calls."""

    def __init__(self, address: WorkerAddress = OWNER) -> None:
        self.peer = address
        self.sent: list[Any] = []
        self.replies: list[tuple[Any, int]] = []
        self.answer: Callable[[Any], Any] = lambda _request: None

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def call(self, request: Any, callback: Callable[[Any], None]) -> None:
        self.sent.append(request)
        reply = self.answer(request)
        if reply is not None:
            callback(reply)

    def reply(self, message: Any, correlation: int) -> None:
        self.replies.append((message, correlation))


class MemoryStore:
    """A store with everything at hand."""

    ahead_limit_bytes = 100

    def __init__(self) -> None:
        self.objects: dict[bytes, tuple[Any, list[Any]]] = {}
        self.freed: list[bytes] = []
        self.said = 0

    def put(self, object_id: bytes, serialized: serialization.Serialized) -> int:
        self.objects[object_id] = serialized.data, list(map(bytes, serialized.buffers))
        return serialized.size_bytes

    def create(self, object_id: bytes, serialized: serialization.Serialized, *_: Any, **__: Any) -> Any:
        return self.put(object_id, serialized), -1

    def fetch(self, object_id: bytes, _locations: Any, _timeout_s: float | None) -> bytes:
        return object_id

    def read(self, pin: bytes) -> tuple[Any, list[Any]]:
        data, buffers = self.objects[pin]
        return serialization.deserialize(data, buffers)

    def say_all(self) -> None:
        self.said += 1

    def forget(self, object_ids: list[bytes]) -> None:
        self.freed += object_ids

    def empty(self, object_id: bytes, _locations: list[bytes]) -> None:
        self.freed.append(object_id)

    def free(self, object_ids: list[bytes], _locations: list[bytes]) -> None:
        self.freed += object_ids


class LoneProcess:
    """One process. As links, it knows the peers in `others`, by their worker's id."""

    def __init__(self) -> None:
        self.address = US
        self.lock = threading.RLock()
        self.session = SimpleNamespace(node_host="host", job_id=b"job1")
        self.agent = Peer()
        self.others: dict[bytes, Peer] = {OWNER.worker_id: Peer()}
        self.pump = SimpleNamespace(kick=lambda: None, failure=None, call=self._call, poll_once=lambda: None)
        self.released = Released(lambda: None)
        self.ids = ids.TaskIds(b"job1")
        self.store = MemoryStore()
        self.forgotten: list[bytes] = []
        self.lineage = SimpleNamespace(
            forget=lambda entry: self.forgotten.append(entry.object_id), rebuild=lambda _entry: None
        )
        us: Any = self
        effects = Effects(us)
        self.objects = Objects(us, self.released, self.ids, us.store, effects)
        self.borrowing = Borrowing(self.objects, self.released, effects)
        self.value_requests = ValueRequests(us, self.objects, self.borrowing, us.store)
        self.admin = ObjectAdmin(us, self.ids, self.objects, self.borrowing, us.store, us.lineage)
        self.reader = Reader(
            us, self.released, self.objects, self.borrowing, us.store, self.value_requests, us.lineage
        )
        self.waiter = Waiter(us, self.released, self.objects, us.store, self.value_requests, self.reader)
        self.packer = ArgumentPacker(us, self.objects, us.store)
        effects.attach(self.objects, us.store, self.value_requests, self.packer, self.reader, None)
        self.argument_reader = ArgumentReader(us, self.released, self.objects, self.borrowing, self.reader)

    def peer(self, address: WorkerAddress, connect: bool = True) -> Peer | None:
        return self.others.get(address.worker_id)

    def check(self) -> None:
        """Nothing has ended."""

    def wait(self, ready: Callable[[], Any], _timeout_s: float | None) -> bool:
        return bool(ready())

    def _call(self, connection: Peer, request: Any, _timeout_s: float | None = None) -> Any:
        box: list[Any] = []
        connection.call(request, box.append)
        return box[0]
