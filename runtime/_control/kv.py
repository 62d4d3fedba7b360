"""Key-value pairs: functions and classes, packages, the autoscaler's intents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from runtime._control.context import Context, Handlers
from runtime._control.waiters import Waiters
from runtime._transport.channel import Channel
from runtime._wire.messages.control import (
    KvAdded,
    KvDelete,
    KvDeleted,
    KvGet,
    KvKeyList,
    KvKeys,
    KvPut,
    KvValue,
)
from runtime._wire.messages.libraries import KeyValue, WatchKey, digest_of


class KvService:
    """Reads and writes the storage directly; every namespace is a table. `on_change` is called after requests that
    changed a namespace.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._journal = context.journal
        self._storage = context.journal.storage
        self.on_change: dict[str, Callable[[], None]] = {}
        self._watched: dict[tuple[str, bytes], Waiters] = {}

    def handlers(self) -> Handlers:
        return {
            KvGet: self.get,
            KvPut: self.put,
            KvDelete: self.delete,
            KvKeys: self.keys,
            WatchKey: self.watch,
        }

    def get(self, _: Channel, message: KvGet) -> KvValue:
        return KvValue(self._storage.get(_table(message.namespace), message.key))

    async def put(self, _: Channel, message: KvPut) -> KvAdded:
        table = _table(message.namespace)
        is_new = self._storage.get(table, message.key) is None
        if is_new or message.overwrite:
            self._journal.put(table, message.key, message.value)
            self._changed(message.namespace, [message.key])
        await self._journal.durable()
        return KvAdded(is_new)

    async def delete(self, _: Channel, message: KvDelete) -> KvDeleted:
        table = _table(message.namespace)
        keys = self._storage.keys(table, message.key) if message.is_prefix else [message.key]
        count = sum(self._journal.delete(table, key) for key in keys)
        self._changed(message.namespace, keys)
        await self._journal.durable()
        return KvDeleted(count)

    def keys(self, _: Channel, message: KvKeys) -> KvKeyList:
        return KvKeyList(self._storage.keys(_table(message.namespace), message.prefix))

    def all_keys(self, namespace: str) -> list[bytes]:
        """For other services: the keys of a namespace."""
        return self._storage.keys(_table(namespace), b"")

    def value(self, namespace: str, key: bytes) -> bytes | None:
        """For other services: what `get` answers."""
        return self._storage.get(_table(namespace), key)

    def drop(self, namespace: str, key: bytes) -> None:
        """For other services: deletes without telling of it."""
        self._journal.delete(_table(namespace), key)

    def watch(self, _: Channel, message: WatchKey) -> KeyValue | Awaitable[KeyValue]:
        """Answers once the value is not the one that the watcher knows."""
        value = self.value(message.namespace, message.key)
        if digest_of(value) != message.known:
            return KeyValue(value)
        return self._wait(message)

    async def _wait(self, message: WatchKey) -> KeyValue:
        place = message.namespace, message.key
        deadline = self._context.now() + message.timeout_s
        while True:
            value = self.value(*place)
            left = deadline - self._context.now()
            if left <= 0 or digest_of(value) != message.known:
                return KeyValue(value)
            waiters = self._watched.setdefault(place, Waiters())
            try:
                await waiters.wait(left)
            finally:
                if not waiters and self._watched.get(place) is waiters:
                    del self._watched[place]

    def _changed(self, namespace: str, keys: Iterable[bytes]) -> None:
        for key in keys if self._watched else ():
            waiters = self._watched.get((namespace, key))
            if waiters is not None:
                waiters.wake()
        listener = self.on_change.get(namespace)
        if listener is not None:
            listener()


def _table(namespace: str) -> str:
    return "kv:" + namespace
