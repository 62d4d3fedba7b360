"""The option `tensor_transport`: which names there are, and how a call's result is left in its actor.

The work is done by `runtime.experimental.tensors`, a library above the API, which is imported by its name on first use.
"""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from runtime._core.bound_method import bound_method

SYSTEM_GROUP = "_ray_system"
"""The concurrency group in which an actor hands its tensors out, whatever else it does."""
_reading = threading.local()


def normalized(transport: Any) -> str:
    """The transport of the option: "GLOO" or "NCCL"; "" for the object store.

    Raises:
        ValueError: there is no such transport.
    """
    if transport is None:
        return ""
    chosen = str(transport).upper()
    if chosen not in ("OBJECT_STORE", "GLOO", "NCCL"):
        raise ValueError(
            f"Unsupported tensor transport protocol: {transport!r}. There are: 'object_store', 'gloo' and 'nccl'."
        )
    return "" if chosen == "OBJECT_STORE" else chosen


def check_call(what: str, transport: str, num_returns: int, groups: list[str]) -> None:
    """Raises ValueError unless a method can be called with a transport."""
    if not transport:
        return
    if num_returns != 1:
        raise ValueError(
            f"{what}: methods with tensor_transport={transport!r} only support 1 return value, not {num_returns}."
        )
    if SYSTEM_GROUP not in groups:
        raise ValueError(
            f"{what}: tensor_transport={transport!r} needs @ray.remote(enable_tensor_transport=True) on the actor's "
            "class."
        )


def call_and_keep(actor: Any, method: str, transport: str, /, *args: Any, **kwargs: Any) -> Any:
    """Runs in the actor's process in place of a method with a transport."""
    keep = importlib.import_module("runtime.experimental.tensors").keep
    result = bound_method(actor, method)(*args, **kwargs)
    if not inspect.iscoroutine(result):
        return keep(result, transport)

    async def awaited() -> Any:
        return keep(await result, transport)

    return awaited()


@contextmanager
def through_object_store() -> Iterator[None]:
    """Values that are read meanwhile, by this thread, get their tensors through the object store."""
    before = is_through_object_store()
    _reading.is_through_store = True
    try:
        yield
    finally:
        _reading.is_through_store = before


def is_through_object_store() -> bool:
    """Whether `through_object_store` is in effect."""
    return getattr(_reading, "is_through_store", False)
