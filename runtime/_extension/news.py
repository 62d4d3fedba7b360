"""What a `Subscription` tells of the things that it watches. Ids are hexadecimal, as in the public API."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from runtime._core.actors import ActorState
from runtime._core.nodes import NodeState
from runtime.object_ref import ObjectRef
from runtime.object_ref_generator import ObjectRefGenerator

__all__ = [
    "ActorChanged",
    "ActorState",
    "ItemReady",
    "KeyChanged",
    "News",
    "NodeChanged",
    "NodeState",
    "ObjectReady",
    "Posted",
]


class ObjectReady(msgspec.Struct, frozen=True):
    """An object has its value. Nothing was fetched or unpickled.

    `failed`: the value is an error. `size_bytes`: of the serialized value. `node_ids`: the nodes with a copy; none for
    a small value, which its owner keeps.
    """

    ref: ObjectRef
    failed: bool
    size_bytes: int
    node_ids: tuple[str, ...]


class ItemReady(msgspec.Struct, frozen=True):
    """A generator has a next item, or has ended."""

    generator: ObjectRefGenerator


class NodeChanged(msgspec.Struct, frozen=True):
    """A node has joined (ALIVE), drains (DRAINING), has resumed (ALIVE) or died (DEAD).

    `reason`: of its death. `resources`: in total, in units. `deadline_ms`: when the machine of a node that drains goes,
    in Unix time; None: nobody knows.
    """

    node_id: str
    state: NodeState
    reason: str
    host: str
    labels: Mapping[str, str]
    resources: Mapping[str, float]
    deadline_ms: int | None = None


class ActorChanged(msgspec.Struct, frozen=True):
    """An actor has another state. `reason`: of its death. `node_id`: where it is, or ""."""

    actor_id: str
    state: ActorState
    reason: str
    node_id: str
    restarts: int


class KeyChanged(msgspec.Struct, frozen=True):
    """A key of the key-value store has another value; None: it has none."""

    namespace: str
    key: bytes
    value: bytes | None


class Posted(msgspec.Struct, frozen=True):
    """What the program itself has told (`Subscription.post`)."""

    what: object


News = ObjectReady | ItemReady | NodeChanged | ActorChanged | KeyChanged | Posted
