"""Placement groups: what the control store answers, and what it asks node agents to reserve."""

from __future__ import annotations

from .base import Message, Ok, Request


class PlacementGroupInfo(Message, frozen=True, array_like=True, tag=161):
    pg_id: bytes  # 18 bytes
    name: str
    state: str  # PENDING | PREPARED | CREATED | RESCHEDULING | REMOVED
    strategy: str  # PACK | SPREAD | STRICT_PACK | STRICT_SPREAD
    bundles: list[dict[str, int]]  # 1/10 000 units
    nodes: list[bytes]  # node id per bundle, b"" while unplaced
    version: int
    job_id: bytes
    detached: bool
    reason: str = ""  # why it waits
    scheduling: str = "QUEUED"  # QUEUED | SCHEDULING_STARTED | NO_RESOURCES | INFEASIBLE | FINISHED | REMOVED
    attempts: int = 0  # to reserve its bundles
    creation_s: float = 0.0  # from the request until it was created
    scheduling_s: float = 0.0  # of it, the attempt that succeeded


class CreatePlacementGroup(Message, Request[PlacementGroupInfo], frozen=True, array_like=True, tag=160):
    """Idempotent by id. EXISTS when the name is taken."""

    pg_id: bytes
    name: str
    namespace: str
    strategy: str
    bundles: list[dict[str, int]]
    job_id: bytes
    detached: bool
    label_selectors: list[dict[str, str]] = []
    target: bytes = b""  # STRICT_PACK: the node that goes first
    domain: str = ""  # a label's key: all bundles go to nodes with the same value of it
    creator_actor: bytes = b""  # its id, if an actor made it
    shares_fate: bool = (
        False  # when one of its actors is dead for good, it is removed, and all end: see `CreateGang`
    )


class WatchPlacementGroup(Message, Request[PlacementGroupInfo], frozen=True, array_like=True, tag=162):
    pg_id: bytes
    after_version: int = -1
    timeout_s: float = 30.0


class RemovePlacementGroup(Message, Request[Ok], frozen=True, array_like=True, tag=163):
    """Kills what runs in the group and gives the bundles back. Unknown: Ok."""

    pg_id: bytes
    until_returned: bool = False  # answer when that is done, as far as nodes answer soon


class PlacementGroups(Message, frozen=True, array_like=True, tag=165):
    groups: list[PlacementGroupInfo]


class ListPlacementGroups(Message, Request[PlacementGroups], frozen=True, array_like=True, tag=164):
    """`name` "": all of them."""

    name: str = ""
    namespace: str = ""


class PrepareBundle(Message, Request[Ok], frozen=True, array_like=True, tag=166):
    """Control -> agent, phase 1: set the resources aside, or BUSY. Idempotent by (pg_id, index)."""

    pg_id: bytes
    index: int
    resources: dict[str, int]


class CommitBundle(Message, Request[Ok], frozen=True, array_like=True, tag=167):
    """Control -> agent, phase 2: offer them as `<R>_group_<index>_<pg hex>` and `<R>_group_<pg hex>`, plus 1000 units
    each of `bundle_group_<index>_<pg hex>` and `bundle_group_<pg hex>` (whole units)."""

    pg_id: bytes
    index: int


class WholeGroup(Message, frozen=True, array_like=True):
    """A group all of whose missing bundles one node shall hold."""

    pg_id: bytes
    bundles: list[tuple[int, dict[str, int]]]  # index and resources


class GroupsReserved(Message, frozen=True, array_like=True, tag=170):
    refused: list[bytes]  # the groups that the node has no room for now: of these it holds nothing new


class ReserveGroups(Message, Request[GroupsReserved], frozen=True, array_like=True, tag=169):
    """Control -> agent: both phases at once, for groups that need no other node. Each whole or not at all. Idempotent
    like `PrepareBundle` and `CommitBundle`."""

    groups: list[WholeGroup]


class ReturnBundles(Message, Request[Ok], frozen=True, array_like=True, tag=171):
    """Control -> agent: abort or remove. Workers inside are killed. Unknown ones are ignored."""

    bundles: list[tuple[bytes, int]]  # (pg_id, index)
