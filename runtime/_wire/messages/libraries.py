"""What libraries ask of the control store: watches, which are long polls as in `control`, and gangs. Drivers and
workers send these requests to their node agent, which forwards them unread.
"""

from __future__ import annotations

from .base import Message, NodeInfo, Request
from .control import ActorInfo, ActorSpec
from .groups import CreatePlacementGroup, PlacementGroupInfo


class NodeChanges(Message, frozen=True, array_like=True, tag=221):
    """`nodes` as they are now, in the order of their last changes."""

    version: int
    nodes: list[NodeInfo]


class WatchNodes(Message, Request[NodeChanges], frozen=True, array_like=True, tag=220):
    """The nodes that have joined, begun to drain, resumed or died since `after_version`; -1: those that are there."""

    after_version: int = -1
    timeout_s: float = 30.0


class KeyValue(Message, frozen=True, array_like=True, tag=223):
    value: bytes | None


class WatchKey(Message, Request[KeyValue], frozen=True, array_like=True, tag=222):
    """The value of a key of `control.KvPut`, once its digest is not `known`: a key has no version, as the control store
    would have to keep that of every key. b"": the value of now. A value that changes and changes back between two polls
    is not noticed."""

    namespace: str
    key: bytes
    known: bytes = b""
    timeout_s: float = 30.0


NO_VALUE = b"-"
"""`digest_of` a key that is not there."""


def digest_of(value: bytes | None) -> bytes:
    """What `WatchKey.known` says of a value."""
    import hashlib  # few processes watch a key

    return NO_VALUE if value is None else hashlib.blake2b(value, digest_size=16).digest()


class Gang(Message, frozen=True, array_like=True, tag=225):
    group: PlacementGroupInfo
    actors: list[ActorInfo]


class CreateGang(Message, Request[Gang], frozen=True, array_like=True, tag=224):
    """A placement group and actors in it, all entered or none. Idempotent by their ids. If the group shares their fate,
    all actors are dead once one is dead for good; the reasons of the others name the first."""

    group: CreatePlacementGroup
    actors: list[ActorSpec]


FROM_LIBRARIES: tuple[type[Message], ...] = (WatchNodes, WatchKey, CreateGang)
"""The requests that a node agent forwards, besides `control.FROM_WORKERS`."""
