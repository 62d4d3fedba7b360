"""What a `Subscription` tells of the things that it watches. Ids are hexadecimal, as in the public API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class ObjectReady:
    """An object has its value. Nothing was fetched or unpickled.

    `failed`: the value is an error. `size_bytes`: of the serialized value. `node_ids`: the nodes with a copy; none for
    a small value, which its owner keeps.
    """

    ref: ObjectRef
    failed: bool
    size_bytes: int
    node_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ItemReady:
    """A generator has a next item, or has ended."""

    generator: ObjectRefGenerator


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node has joined (ALIVE), drains (DRAINING), has resumed (ALIVE) or died (DEAD).

    `reason`: of its death. `resources`: in total, in units.
    """

    node_id: str
    state: NodeState
    reason: str
    host: str
    labels: Mapping[str, str]
    resources: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ActorChanged:
    """An actor has another state. `reason`: of its death. `node_id`: where it is, or ""."""

    actor_id: str
    state: ActorState
    reason: str
    node_id: str
    restarts: int


@dataclass(frozen=True, slots=True)
class KeyChanged:
    """A key of the key-value store has another value; None: it has none."""

    namespace: str
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Posted:
    """What the program itself has told (`Subscription.post`)."""

    what: object


News = ObjectReady | ItemReady | NodeChanged | ActorChanged | KeyChanged | Posted
