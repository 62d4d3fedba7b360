"""Freeing objects explicitly, and reports on the object stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime._process.core_worker import current
from runtime._wire.messages.node import NodeStore, StoreStatus
from runtime.object_ref import ObjectRef

_MIB = 1 << 20


def free(object_refs: ObjectRef | Sequence[ObjectRef], local_only: bool = False) -> None:
    """Frees values of objects despite existing references: reading one then raises `ObjectFreedError`. A
    pending object is freed when it is ready.

    Args:
        object_refs: a reference or a list of them.
        local_only: without effect; the copies on all nodes are freed.

    Raises:
        TypeError: the argument is not a reference or a list of them.
    """
    refs = [object_refs] if isinstance(object_refs, ObjectRef) else object_refs
    if not isinstance(refs, list | tuple):
        raise TypeError(f"free() takes a list of references, not {type(refs).__name__}.")
    for ref in refs:
        if not isinstance(ref, ObjectRef):
            raise TypeError(f"free() takes references, but the list contains {ref!r}.")
    if refs:
        current().object_admin.free(refs)


def memory_summary(
    address: str | None = None,
    group_by: str = "NODE_ADDRESS",
    sort_by: str = "OBJECT_SIZE",
    units: str = "B",
    line_wrap: bool = True,
    stats_only: bool = False,
    num_entries: int | None = None,
) -> str:
    """A report on the object stores of all nodes and, unless `stats_only`, on the references of this process.

    Args:
        address: without effect; the report is about the cluster of this program.
        group_by, line_wrap: without effect.
        sort_by: "OBJECT_SIZE"; otherwise sorted by id.
        units: units of sizes: B, KB, MB or GB.
        num_entries: the maximum number of references to show.
    """
    stores: list[NodeStore] = current().ask(StoreStatus([], True)).stores
    text = _stats(stores)
    if stats_only:
        return text
    return f"{_references(sort_by, units, num_entries)}\n{text}"


def _stats(stores: list[NodeStore]) -> str:
    used, capacity = sum(s.used_bytes for s in stores), sum(s.capacity_bytes for s in stores)
    lines = [
        f"--- Aggregate object store stats across all {len(stores)} nodes ---",
        f"Plasma memory usage {used // _MIB} MiB, {sum(s.objects for s in stores)} objects, "
        f"{100 * used / max(capacity, 1):.1f}% full",
    ]
    spilled = sum(s.spilled_bytes for s in stores)
    if spilled:
        lines.append(f"Spilled {spilled // _MIB} MiB, {sum(s.spilled_objects for s in stores)} objects")
    restored = sum(s.restored_bytes for s in stores)
    if restored:
        lines.append(f"Restored {restored // _MIB} MiB, {sum(s.restored_objects for s in stores)} objects")
    return "\n".join(lines) + "\n"


def _references(sort_by: str, units: str, num_entries: int | None) -> str:
    factor = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}[units]
    core = current()
    with core.lock:
        entries = list(core.objects.table.entries.values())
    rows: list[tuple[int, str, str]] = []
    for entry in entries:
        value: Any = entry.value
        size = -1 if value is None else value.size_bytes or value.inline_bytes
        kind = "LOCAL_REFERENCE" if entry.holds else "PINNED_IN_MEMORY"
        rows.append((size, entry.object_id.hex(), kind))
    rows.sort(key=(lambda row: -row[0]) if sort_by == "OBJECT_SIZE" else (lambda row: row[1]))
    lines = [
        "======== Object references of this process ========",
        f"{'Object Ref':<58}{'Reference Type':<20}Size",
    ]
    for size, object_id, kind in rows[:num_entries]:
        shown = "?" if size < 0 else f"{size / factor:.10g} {units}"
        lines.append(f"{object_id:<58}{kind:<20}{shown}")
    return "\n".join(lines) + "\n"
