"""The cluster's key-value store: small values that all processes can read and write, by namespace."""

from __future__ import annotations

from runtime._process.core_worker import current, current_or_none
from runtime._wire.messages.control import (
    USER_KEYS,
    KvAdded,
    KvDelete,
    KvDeleted,
    KvGet,
    KvKeyList,
    KvKeys,
    KvPut,
    KvValue,
)

__all__ = [
    "_internal_kv_del",
    "_internal_kv_exists",
    "_internal_kv_get",
    "_internal_kv_initialized",
    "_internal_kv_list",
    "_internal_kv_put",
]


def _internal_kv_initialized() -> bool:
    """Whether this process is connected."""
    return current_or_none() is not None


def _internal_kv_put(
    key: str | bytes, value: str | bytes, overwrite: bool = True, *, namespace: str | bytes | None = None
) -> bool:
    """Stores `value` under `key`. It survives a restart of the control store.

    Args:
        overwrite: replace an existing value.

    Returns:
        Whether `key` already had a value.
    """
    reply = current().ask(KvPut(_namespace(namespace), _bytes(key), _bytes(value), overwrite))
    assert isinstance(reply, KvAdded)
    return not reply.added


def _internal_kv_get(key: str | bytes, *, namespace: str | bytes | None = None) -> bytes | None:
    """The value of `key`, or None."""
    reply = current().ask(KvGet(_namespace(namespace), _bytes(key)))
    assert isinstance(reply, KvValue)
    return reply.value


def _internal_kv_exists(key: str | bytes, *, namespace: str | bytes | None = None) -> bool:
    """Whether `key` has a value."""
    return _internal_kv_get(key, namespace=namespace) is not None


def _internal_kv_del(
    key: str | bytes, *, del_by_prefix: bool = False, namespace: str | bytes | None = None
) -> int:
    """Removes `key`, or with `del_by_prefix` all keys that begin with it; returns the number of removed keys."""
    reply = current().ask(KvDelete(_namespace(namespace), _bytes(key), del_by_prefix))
    assert isinstance(reply, KvDeleted)
    return reply.count


def _internal_kv_list(prefix: str | bytes, *, namespace: str | bytes | None = None) -> list[bytes]:
    """The keys that begin with `prefix`."""
    reply = current().ask(KvKeys(_namespace(namespace), _bytes(prefix)))
    assert isinstance(reply, KvKeyList)
    return reply.keys


def _bytes(text: str | bytes) -> bytes:
    if isinstance(text, str):
        return text.encode()
    if not isinstance(text, bytes):
        raise TypeError(f"The key-value store takes bytes and strings, not {text!r}.")
    return text


def _namespace(namespace: str | bytes | None) -> str:
    return USER_KEYS + _bytes(namespace or b"").decode()
