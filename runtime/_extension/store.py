"""Where objects are, and what the object stores of the nodes hold, as structures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from runtime._owner.context import chosen_tag
from runtime._wire.messages.node import NodeStore, StoreStatus
from runtime.object_ref import ObjectRef

from .process import connected


class ObjectLocation(msgspec.Struct, frozen=True):
    """`node_ids`: the nodes with a copy; none for a small value, which its owner keeps, and for a pending one.
    `size_bytes`: of the serialized value; None while it is pending."""

    node_ids: tuple[str, ...]
    size_bytes: int | None


class Held(msgspec.Struct, frozen=True):
    """What some objects take on a node. An object that is both in memory and in a file counts as both."""

    memory_bytes: int
    disk_bytes: int
    objects: int


class StoreUse(msgspec.Struct, frozen=True):
    """The object store of one node.

    `reserved_bytes`: set aside by processes for objects to come, and not used. `evictable_bytes`: of what is used, what
    can go at once without a loss. `spilled_...` and `restored_...`: to and from disk since the node came up. `jobs`: by
    job id. `tags`: the thousand largest; see `tagged`. Copies of objects that were made on other nodes have none.
    """

    node_id: str
    capacity_bytes: int
    used_bytes: int
    reserved_bytes: int
    evictable_bytes: int
    objects_in_memory: int
    spilled_bytes: int
    spilled_objects: int
    restored_bytes: int
    restored_objects: int
    jobs: Mapping[str, Held]
    tags: Mapping[str, Held]

    @property
    def free_bytes(self) -> int:
        """What is neither used nor set aside."""
        return self.capacity_bytes - self.used_bytes - self.reserved_bytes


def locations(refs: Sequence[ObjectRef], timeout_s: float | None = None) -> dict[ObjectRef, ObjectLocation]:
    """Asks the owners of objects where they are, each once for all of its objects. Objects whose owner has died are
    left out.

    Raises:
        GetTimeoutError: an owner did not answer in time.
    """
    return {
        ref: ObjectLocation(
            tuple(map(bytes.hex, found.node_ids)), found.size_bytes if found.size_bytes >= 0 else None
        )
        for ref, found in connected().object_admin.locations(refs, timeout_s).items()
    }


@contextmanager
def tagged(tag: str) -> Iterator[None]:
    """Objects that this thread or coroutine puts or yields in the block are counted under the tag. All others are
    counted under the name of the task that makes them (`.options(name=)`), and under "" in a driver. Tasks that are
    started in the block keep their names."""
    before = chosen_tag.set(tag)
    try:
        yield
    finally:
        chosen_tag.reset(before)


def stores(everywhere: bool = True) -> list[StoreUse]:
    """The object stores of all nodes that answer in time, or that of this node alone; this one first.

    Raises:
        RaySystemError: the node agent is gone.
    """
    return [_use(store) for store in connected().ask(StoreStatus([], everywhere)).stores]


def _use(store: NodeStore) -> StoreUse:
    return StoreUse(
        store.node_id.hex(),
        store.capacity_bytes,
        store.used_bytes,
        store.reserved_bytes,
        store.evictable_bytes,
        store.objects,
        store.spilled_bytes,
        store.spilled_objects,
        store.restored_bytes,
        store.restored_objects,
        {job.job_id.hex(): Held(job.memory_bytes, job.disk_bytes, job.objects) for job in store.jobs},
        {tag.tag: Held(tag.memory_bytes, tag.disk_bytes, tag.objects) for tag in store.tags},
    )
