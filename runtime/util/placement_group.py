"""Placement groups: bundles of resources that are reserved together, on one node or spread over several."""

from __future__ import annotations

import logging
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from runtime import exceptions
from runtime._core import bundles as _bundles
from runtime._core import ids, labels, resources
from runtime._owner import context
from runtime._owner.gathering import call_or_gather
from runtime._process.core_worker import Core, current
from runtime._wire import serialization
from runtime._wire.messages.base import ErrorKind, ErrorReply
from runtime._wire.messages.groups import (
    CreatePlacementGroup,
    ListPlacementGroups,
    PlacementGroupInfo,
    PlacementGroups,
    RemovePlacementGroup,
    WatchPlacementGroup,
)
from runtime._wire.messages.worker import Value

if TYPE_CHECKING:
    from runtime.object_ref import ObjectRef

log = logging.getLogger(__name__)
NO_STORE_ROOM = (
    "it keeps no room for them in the object store, which spills to disk when it is full "
    "(https://docs.ray.io/en/releases-2.60.0/ray-core/objects/object-spilling.html)."
)
"""What warnings about `object_store_memory` say."""
VALID_PLACEMENT_GROUP_STRATEGIES = frozenset(_bundles.STRATEGIES)
WATCH_S = 60.0
_MOST_KNOWN = 1000
_known: OrderedDict[bytes, list[dict[str, float]]] = OrderedDict()
"""The bundles of groups that this process asked about: they never change."""
_untouched: WeakValueDictionary[bytes, PlacementGroup] = WeakValueDictionary()
"""Groups that this process has made and run nothing in yet."""
_removing: set[bytes] = set()
"""Groups of these whose removal is not answered yet."""


class PlacementGroup:
    """A handle of a placement group; pass it to `PlacementGroupSchedulingStrategy`."""

    def __init__(self, id: ids.PlacementGroupID, bundle_cache: list[dict[str, float]] | None = None) -> None:
        self.id = id
        self.bundle_cache = bundle_cache

    @staticmethod
    def empty() -> PlacementGroup:
        """The empty placement group."""
        return PlacementGroup(ids.PlacementGroupID.nil())

    @property
    def is_empty(self) -> bool:
        """Whether this is the empty placement group."""
        return self.id.is_nil()

    @property
    def bundle_specs(self) -> list[dict[str, float]]:
        """The resources of each bundle.

        Raises:
            ValueError: the group does not exist.
        """
        if not self.bundle_cache:
            self.bundle_cache = [] if self.is_empty else _bundles_of(self.id.binary())
        return self.bundle_cache

    @property
    def bundle_count(self) -> int:
        """The number of bundles."""
        return len(self.bundle_specs)

    def ready(self) -> ObjectRef:
        """A reference that resolves (to this group) once all bundles are reserved.

        If the group is removed, `get` of the reference raises TaskPlacementGroupRemoved.
        """
        core = current()
        if self.is_empty:
            return core.objects.put(self)
        with core.lock:
            entry = core.objects.own(ids.object_id(core.ids.task(), 1))
            ref = core.objects.new_ref(entry)
        packed = core.objects.pack(entry.object_id, serialization.serialize(self), core.address)
        # A group that nothing has happened to yet has nothing to say: the first answer is for its first change.
        _watch(core, self.id.binary(), 0, entry, packed)
        return ref

    def wait(self, timeout_seconds: float = 30) -> bool:
        """Waits until all bundles are reserved. Returns False after `timeout_seconds`.

        Raises:
            RaySystemError: the group no longer exists.
        """
        core = current()
        try:
            core.reader.get_one(self.ready(), max(timeout_seconds, 0))
        except exceptions.GetTimeoutError:
            return False
        except exceptions.TaskPlacementGroupRemoved:
            raise exceptions.RaySystemError(
                f"Placement group {self.id} does not exist: it was removed. Make a new one."
            ) from None
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroup) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"PlacementGroup({self.id.hex()})"


def _bundles_of(pg_id: bytes) -> list[dict[str, float]]:
    known = _known.get(pg_id)
    if known is None:
        info = _find(pg_id)
        if info is None:
            raise ValueError(
                f"There is no placement group {pg_id.hex()}: it was never created, or was removed long ago."
            )
        known = _known[pg_id] = [resources.to_floats(bundle) for bundle in info.bundles]
        if len(_known) > _MOST_KNOWN:
            _known.popitem(last=False)
    return known


def _watch(core: Core, pg_id: bytes, version: int, entry: Any, packed: Value) -> None:
    def answered(reply: Any) -> None:
        if isinstance(reply, ErrorReply):
            if reply.kind in (ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT) and not core.agent.closed:
                _watch(core, pg_id, version, entry, packed)
            elif reply.kind == ErrorKind.NOT_FOUND:
                _fail(exceptions.TaskPlacementGroupRemoved())
            else:
                message = f"Placement group {pg_id.hex()}: {reply.message}"
                _fail(core.pump.failure or exceptions.RaySystemError(message))
        elif reply.state == "CREATED":
            core.objects.set_value(entry, packed)
        elif reply.state == "REMOVED":
            _fail(exceptions.TaskPlacementGroupRemoved())
        else:
            _watch(core, pg_id, reply.version, entry, packed)

    def _fail(error: BaseException) -> None:
        core.objects.set_value(entry, core.objects.error_value(error))

    core.agent.call(WatchPlacementGroup(pg_id, version, WATCH_S), answered)


def placement_group(
    bundles: list[dict[str, float]],
    strategy: str | None = None,
    name: str = "",
    lifetime: str | None = None,
    _soft_target_node_id: str | None = None,
    bundle_label_selector: list[dict[str, str]] | None = None,
    topology_strategy: dict[str, str] | None = None,
) -> PlacementGroup:
    """Requests bundles of resources that are reserved all together or not at all. Returns at once; see
    `PlacementGroup.ready`.

    Args:
        bundles: resources per bundle, e.g. `[{"CPU": 1}, {"CPU": 1, "GPU": 1}]`.
        strategy: PACK (the default) or SPREAD (best effort), STRICT_PACK (one node), STRICT_SPREAD (a node per
            bundle).
        name: name for `get_placement_group`.
        lifetime: "detached" to outlive the program.
        _soft_target_node_id: with STRICT_PACK, the preferred node, in hex.
        bundle_label_selector: a selector of node labels per bundle.
        topology_strategy: instead of `strategy`: a strategy per label, of which "ray.io/node-id" stands for nodes. Of
            other labels there can be one, STRICT_PACK: all bundles go to nodes with the same value of it.

    Raises:
        ValueError: an argument is out of range.
        RaySystemError: the name is taken, or a resource cannot be reserved.
    """
    node_strategy, domain = _strategies(strategy, topology_strategy)
    target = _target(_soft_target_node_id, node_strategy)
    _check_bundles(bundles)
    _check_selectors(bundle_label_selector, bundles)
    if lifetime not in (None, "detached"):
        raise ValueError(
            f"Placement group `lifetime` argument must be either `None` or 'detached'. Got {lifetime!r}."
        )
    if not isinstance(name, str):
        raise TypeError(f"The name of a placement group is a string, not {name!r}.")
    core = current()
    group = PlacementGroup(
        ids.PlacementGroupID(ids.placement_group_id(core.job_id)),
        [{key: float(amount) for key, amount in bundle.items()} for bundle in bundles],
    )
    request = CreatePlacementGroup(
        group.id.binary(),
        name,
        core.session.namespace,
        node_strategy,
        [resources.to_units(bundle) for bundle in bundles],
        core.job_id,
        lifetime == "detached",
        [dict(selector) for selector in bundle_label_selector or ()],
        target,
        domain,
        _creator_actor(core),
    )
    if not name:
        call_or_gather(core.agent, request, lambda _reply: None)  # what became of it, `ready` and `wait` ask
        if lifetime is None:  # nobody else would end a detached one
            _untouched[request.pg_id] = group
        return group
    reply = core.call_agent(request)
    if isinstance(reply, ErrorReply):
        raise exceptions.RaySystemError(reply.message)
    return group


def _creator_actor(core: Core) -> bytes:
    """The id of this process's actor; empty in drivers and tasks."""
    setup = core.executor.setup if core.executor is not None else None
    return setup.actor_id if setup is not None else b""


def remove_placement_group(placement_group: PlacementGroup) -> None:
    """Removes a placement group: kills the tasks and actors in it and frees its resources. Does nothing if it is gone.

    For a group that this program has created and not used, the call does not wait for the removal. Later calls of this
    program see the group as removed.
    """
    if not isinstance(placement_group, PlacementGroup):
        raise TypeError(f"remove_placement_group() takes a placement group, not {placement_group!r}.")
    core = current()
    pg_id = placement_group.id.binary()
    if _untouched.pop(pg_id, None) is None:
        core.ask(RemovePlacementGroup(pg_id, until_returned=True))
        return

    def answered(reply: Any) -> None:
        _removing.discard(pg_id)
        if isinstance(reply, ErrorReply) and not core.agent.closed:
            log.warning("placement group %s may not have been removed: %s", pg_id.hex(), reply.message)

    _removing.add(pg_id)
    core.agent.call(RemovePlacementGroup(pg_id), answered)


def enter(group: PlacementGroup) -> None:
    """Called before something runs in the group: waits for the result of a removal that is under way."""
    pg_id = group.id.binary()
    _untouched.pop(pg_id, None)
    if pg_id in _removing:
        current().pump.wait(lambda: pg_id not in _removing)


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """Finds a placement group of this namespace by name.

    Raises:
        ValueError: no group has this name.
    """
    if not placement_group_name:
        raise ValueError("Please supply a non-empty value to get_placement_group: the name of a group.")
    core = current()
    reply = core.ask(ListPlacementGroups(placement_group_name, core.session.namespace))
    assert isinstance(reply, PlacementGroups)
    for info in reply.groups:
        if info.state != "REMOVED":
            specs = [resources.to_floats(bundle) for bundle in info.bundles]
            return PlacementGroup(ids.PlacementGroupID(info.pg_id), specs)
    raise ValueError(f"Failed to look up placement group with name: {placement_group_name}")


def placement_group_table(placement_group: PlacementGroup | None = None) -> dict[str, Any]:
    """The state of one placement group ({} if unknown), or of all by id in hex."""
    if placement_group is not None:
        info = _find(placement_group.id.binary())
        return {} if info is None else _row(info)
    reply = current().ask(ListPlacementGroups())
    assert isinstance(reply, PlacementGroups)
    return {info.pg_id.hex(): _row(info) for info in reply.groups}


def get_current_placement_group() -> PlacementGroup | None:
    """The placement group of the current task or actor, or None."""
    current()
    running = context.execution.get()
    if running is None or running.lease is None or not running.lease.placement_group_id:
        return None
    pg_id = running.lease.placement_group_id
    return PlacementGroup(ids.PlacementGroupID(pg_id), _known.get(pg_id))


def _find(pg_id: bytes) -> PlacementGroupInfo | None:
    reply = current().call_agent(WatchPlacementGroup(pg_id, -1, 0.0))
    if isinstance(reply, PlacementGroupInfo):
        return reply
    if reply.kind == ErrorKind.NOT_FOUND:
        return None
    raise exceptions.RaySystemError(f"cannot look up placement group {pg_id.hex()}: {reply.message}")


def _row(info: PlacementGroupInfo) -> dict[str, Any]:
    return {
        "placement_group_id": info.pg_id.hex(),
        "name": info.name,
        "bundles": {index: resources.to_floats(bundle) for index, bundle in enumerate(info.bundles)},
        "bundles_to_node_id": {index: node_id.hex() for index, node_id in enumerate(info.nodes)},
        "strategy": info.strategy,
        "state": info.state,
        "stats": {
            "end_to_end_creation_latency_ms": info.creation_s * 1000,
            "scheduling_latency_ms": info.scheduling_s * 1000,
            "scheduling_attempt": info.attempts,
            "highest_retry_delay_ms": 0.0,
            "scheduling_state": info.scheduling,
        },
    }


# ---------------------------------------------------------------- what a group may be


def _strategies(strategy: str | None, topology: Any) -> tuple[str, str]:
    """The strategy for nodes, and the label whose value all bundles share ("" for none)."""
    if topology is None:
        _check_strategy(strategy or "PACK", "placement group strategy")
        return strategy or "PACK", ""
    if strategy is not None:
        raise ValueError(
            "`strategy` and `topology_strategy` cannot both be specified: give the strategy for nodes as "
            f"topology_strategy[{labels.NODE_ID!r}]."
        )
    if not isinstance(topology, dict):
        raise ValueError(f"`topology_strategy` must be a dict, got {type(topology).__name__}.")
    domains = []
    for key, value in topology.items():
        if not isinstance(key, str) or not key:
            raise ValueError(f"`topology_strategy` keys must be non-empty strings, got {key!r}.")
        _check_strategy(value, f"topology strategy for label {key!r}:")
        if key != labels.NODE_ID:
            if value != "STRICT_PACK":
                raise ValueError(
                    f"Topology strategy {value!r} for label {key!r} is not supported: only 'STRICT_PACK' is, for "
                    f"labels other than {labels.NODE_ID!r}."
                )
            domains.append(key)
    if len(domains) > 1:
        raise ValueError(
            f"`topology_strategy` supports at most one label other than {labels.NODE_ID!r}, got {domains}."
        )
    return topology.get(labels.NODE_ID, "PACK"), domains[0] if domains else ""


def _check_strategy(strategy: Any, what: str) -> None:
    if strategy not in _bundles.STRATEGIES:
        raise ValueError(
            f"Invalid {what} {strategy}. Supported strategies are: {', '.join(_bundles.STRATEGIES)}."
        )


def _target(node_id: str | None, strategy: str) -> bytes:
    if not node_id:
        return b""
    if strategy != "STRICT_PACK":
        raise ValueError(f"_soft_target_node_id currently only works with STRICT_PACK but got {strategy}.")
    try:
        target = ids.NodeID.from_hex(node_id)
    except ValueError:
        target = ids.NodeID.nil()
    if target.is_nil():
        raise ValueError(f"Invalid hex ID of _soft_target_node_id, got {node_id}.")
    return target.binary()


def _check_bundles(bundles: Any) -> None:
    example = 'e.g. `[{"CPU": 1.0}, {"GPU": 1.0}]`'
    if not isinstance(bundles, list):
        raise ValueError(f"Placement group bundles must be a list, got {type(bundles)}: {example}.")
    if not bundles:
        raise ValueError(f"Bundles must be a non-empty list of resource dictionaries, {example}.")
    for bundle in bundles:
        if not isinstance(bundle, dict) or not all(
            isinstance(key, str) and isinstance(amount, int | float) for key, amount in bundle.items()
        ):
            raise ValueError(
                f"Bundles must be a non-empty list of resource dictionaries, {example}; and {bundle!r} is none."
            )
        if not any(bundle.values()):
            raise ValueError(
                f"Bundles cannot be an empty dictionary or resources with only 0 values. Bundles: {bundles}"
            )
        if "object_store_memory" in bundle:
            warnings.warn(
                "Setting 'object_store_memory' for bundles is deprecated: it limits how many such bundles a node "
                f"takes, and {NO_STORE_ROOM}",
                DeprecationWarning,
                stacklevel=4,
            )
        if "bundle" in bundle:
            raise exceptions.RaySystemError(
                "bundle is a system reserved resource, which is not allowed to be used in placement group."
            )


def _check_selectors(selectors: Any, bundles: list[dict[str, float]]) -> None:
    if selectors is None:
        return
    if not isinstance(selectors, list):
        raise ValueError(f"Placement group bundle_label_selector must be a list, got {type(selectors)}.")
    if len(selectors) != len(bundles):
        raise ValueError(
            f"Invalid bundle label selector {selectors}: {len(selectors)} selectors for {len(bundles)} bundles, "
            "where the one length should equal the length of `bundles`."
        )
    for selector in selectors:
        if not isinstance(selector, Mapping) or not all(
            isinstance(key, str) and isinstance(value, str) for key, value in selector.items()
        ):
            raise ValueError(
                "Bundle label selector must be a list of string dictionary label selectors, e.g. "
                f'`[{{"ray.io/market-type": "spot"}}]`; and {selector!r} is none.'
            )
        try:
            labels.check_selector(selector)
        except ValueError as error:
            raise ValueError(
                f"Invalid label selector provided in bundle_label_selector list. {error}"
            ) from None
