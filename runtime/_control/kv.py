"""Key-value pairs: functions and classes, packages, the autoscaler's intents."""

from __future__ import annotations

from collections.abc import Callable

from runtime._control.context import Context, Handlers
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


class KvService:
    """Reads and writes the storage directly; every namespace is a table. `on_change` is called after requests that
    changed a namespace.
    """

    def __init__(self, context: Context) -> None:
        self._journal = context.journal
        self._storage = context.journal.storage
        self.on_change: dict[str, Callable[[], None]] = {}

    def handlers(self) -> Handlers:
        return {KvGet: self.get, KvPut: self.put, KvDelete: self.delete, KvKeys: self.keys}

    def get(self, _: Channel, message: KvGet) -> KvValue:
        return KvValue(self._storage.get(_table(message.namespace), message.key))

    async def put(self, _: Channel, message: KvPut) -> KvAdded:
        table = _table(message.namespace)
        is_new = self._storage.get(table, message.key) is None
        if is_new or message.overwrite:
            self._journal.put(table, message.key, message.value)
            self._changed(message.namespace)
        await self._journal.durable()
        return KvAdded(is_new)

    async def delete(self, _: Channel, message: KvDelete) -> KvDeleted:
        table = _table(message.namespace)
        keys = self._storage.keys(table, message.key) if message.is_prefix else [message.key]
        count = sum(self._journal.delete(table, key) for key in keys)
        self._changed(message.namespace)
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

    def _changed(self, namespace: str) -> None:
        listener = self.on_change.get(namespace)
        if listener is not None:
            listener()


def _table(namespace: str) -> str:
    return "kv:" + namespace
