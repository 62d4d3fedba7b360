"""Locations of objects: nodes with a copy, size, and whether the object was spilled to disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime._process.core_worker import Core, current, current_or_none
from runtime._wire.messages.node import StoreStatus
from runtime._wire.messages.worker import Location
from runtime.object_ref import ObjectRef


def get_object_locations(
    obj_refs: Sequence[ObjectRef], timeout_ms: int = -1
) -> dict[ObjectRef, dict[str, Any]]:
    """Asks the owners of objects for their locations.

    Args:
        obj_refs: references of any owners. Objects whose owner has died are left out of the result.
        timeout_ms: how long to wait for the owners; negative: no limit.

    Returns:
        For each reference `node_ids` (hex; empty for a small value, which travels in messages, or a pending one),
        `object_size` (bytes; None while pending) and `did_spill`.

    Raises:
        RuntimeError: `init` was not called.
        GetTimeoutError: an owner did not answer in time.
    """
    core = _core(obj_refs)
    timeout_s = None if timeout_ms < 0 else timeout_ms / 1000
    return _described(core, core.object_admin.locations(obj_refs, timeout_s), True)


def get_local_object_locations(obj_refs: Sequence[ObjectRef]) -> dict[ObjectRef, dict[str, Any]]:
    """Like `get_object_locations`, from the knowledge of this process alone."""
    core = _core(obj_refs)
    return _described(core, core.object_admin.known_locations(obj_refs), False)


def _core(refs: Sequence[ObjectRef]) -> Core:
    if current_or_none() is None:
        raise RuntimeError("Ray hasn't been initialized: call init() first.")
    for ref in refs:
        if not isinstance(ref, ObjectRef):
            raise TypeError(
                f"get_object_locations() takes a list of references, but the list contains {ref!r}."
            )
    return current()


def _described(
    core: Core, found: dict[ObjectRef, Location], everywhere: bool
) -> dict[ObjectRef, dict[str, Any]]:
    stored = [ref.binary() for ref, location in found.items() if location.node_ids]
    spilled: set[bytes] = set()
    if stored:
        for store in core.ask(StoreStatus(stored, everywhere)).stores:
            spilled.update(store.on_disk)
    return {
        ref: {
            "node_ids": [node_id.hex() for node_id in location.node_ids],
            "object_size": location.size_bytes if location.size_bytes >= 0 else None,
            "did_spill": ref.binary() in spilled,
        }
        for ref, location in found.items()
    }
