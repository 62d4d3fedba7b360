"""Results of actors' calls whose torch tensors stay in the actor (`tensor_transport`).

`keep` puts a `Left` in place of each tensor, which is all that the result's object holds of it. An actor that gets the
object as an argument, or by `get`, fetches the tensor from its maker: over a collective group that both are in, or
through the object store (`get(_use_object_store=True)`). In the maker itself it is the same tensor.

Lifetime: each result contains a reference to a small object that the maker owns. When nobody needs the result any more
that object is freed, and the maker drops the tensors.
"""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from typing import Any

from runtime import exceptions
from runtime._api.tensor_transport import SYSTEM_GROUP, is_through_object_store
from runtime._extension.actors import results
from runtime._extension.objects import call_when_freed, put
from runtime.object_ref import ObjectRef
from runtime.runtime_context import get_runtime_context
from runtime.util.collective import groups
from runtime.util.collective.types import GroupError

_DEVICES = {"GLOO": "cpu", "NCCL": "cuda"}
_kept: dict[str, list[Any]] = {}
"""The tensors of this process's results, by the id of the object that lives as long as they do."""
_waits: dict[str, threading.Event] = {}
"""Set when they are dropped, for those that `wait_tensor_freed` waits for."""
_turns: dict[tuple[str, int], threading.Lock] = {}
"""One tensor at a time is fetched of a member: its tensors come in the order in which they were asked for."""


class TensorTransportError(exceptions.RayError, ValueError):
    """A tensor cannot come here by its transport; the message says why, and what to do."""


class Left:
    """Stands for a tensor that stays in its maker. What is unpickled is the tensor itself: see `_arrived`."""

    def __init__(self, *facts: Any) -> None:
        self._facts = facts

    def __reduce__(self) -> Any:
        return _arrived, self._facts


def keep(result: Any, transport: str) -> Any:
    """Keeps the tensors of a result here: the result itself, or those in its lists, tuples and dicts.

    Args:
        transport: "GLOO" or "NCCL".

    Raises:
        ValueError: this actor is in no collective group of that backend, or a tensor is on another device.
    """
    if "torch" not in sys.modules:
        return result  # so there is no tensor in it
    tensors: list[Any] = []
    token = put(b"")
    facts = token.hex(), transport, get_runtime_context().current_actor, token
    replaced = _replaced(result, tensors, facts)
    if not tensors:
        return result
    if not groups.has_backend(transport):
        raise ValueError(
            f"This actor does not have tensor transport {transport} available. Create a collective group of it and "
            "the actors that use its tensors with ray.experimental.collective.create_collective_group."
        )
    for tensor in tensors:
        if tensor.device.type != _DEVICES[transport]:
            raise ValueError(
                f"A tensor on {tensor.device} cannot travel by {transport.lower()}, which is for those on "
                f"{_DEVICES[transport]}."
            )
    _kept[token.hex()] = tensors
    call_when_freed(token, partial(_drop, token.hex()))
    return replaced


def _drop(key: str) -> None:
    _kept.pop(key, None)
    waited = _waits.pop(key, None)
    if waited is not None:
        waited.set()


def wait_tensor_freed(tensor: Any, timeout: float | None = None) -> None:
    """Waits until nobody can fetch a tensor any more that a method of this actor has returned by a transport: from then
    on it may be changed.

    Args:
        tensor: it, or another view of its memory.
        timeout: in seconds; None: as long as there are references to a result with it.

    Raises:
        TimeoutError: there still are.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    memory = tensor.untyped_storage().data_ptr()
    for key, tensors in list(_kept.items()):
        if memory not in [one.untyped_storage().data_ptr() for one in tensors]:
            continue
        freed = _waits.setdefault(key, threading.Event())
        if key not in _kept:
            _waits.pop(key, None)
        elif not freed.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
            raise TimeoutError(f"There still are references to results with the tensor after {timeout:g} s.")


def _replaced(value: Any, tensors: list[Any], facts: tuple[Any, ...]) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        dtype = str(value.dtype).removeprefix("torch.")
        return Left(len(tensors) - 1, tuple(value.shape), dtype, *facts)
    if isinstance(value, dict):
        return {name: _replaced(part, tensors, facts) for name, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [_replaced(part, tensors, facts) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _arrived(
    index: int, shape: tuple[int, ...], dtype: str, key: str, transport: str, maker: Any, _token: ObjectRef
) -> Any:
    """The tensor, in a process that reads a result.

    Raises:
        TensorTransportError: no group has both the maker and this process.
        RayActorError: the maker is dead.
    """
    here = _kept.get(key)
    if here is not None:
        return here[index]
    call = maker.__ray_call__.options(concurrency_group=SYSTEM_GROUP)
    if is_through_object_store():
        return results([call.remote(_fetched, key, index)])[0]
    shared = groups.shared_with(maker._actor_id.hex(), transport)
    if shared is None:
        raise TensorTransportError(
            f"The tensor stays in {maker!r}, whose method has tensor_transport={transport.lower()!r}, and no "
            "collective group of that backend has both this process and that actor. Create one with "
            "ray.experimental.collective.create_collective_group, or use ray.get(ref, _use_object_store=True)."
        )
    import torch

    group, rank = shared
    tensor = torch.empty(shape, dtype=getattr(torch, dtype), device=_DEVICES[transport])
    with _turns.setdefault((group.group_name, rank), threading.Lock()):
        sent = call.remote(_sent, key, index, group.group_name, group.rank)
        try:
            group.receive(tensor, rank)
        except (GroupError, TimeoutError) as error:
            results([sent])  # raises what the maker died of, or why it did not send
            raise TensorTransportError(f"The tensor did not come from {maker!r}: {error}") from error
    return tensor


# ---------------------------------------------------------------- what the maker is asked


def _sent(_actor: Any, key: str, index: int, group_name: str, rank: int) -> None:
    groups.find_or_join(group_name).send(_kept[key][index], rank)


def _fetched(_actor: Any, key: str, index: int) -> Any:
    return _kept[key][index]
