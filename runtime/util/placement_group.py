"""Placement groups: bundles of resources that are reserved together, on one node or spread over several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runtime import exceptions
from runtime._core import ids, resources
from runtime._wire import serialization
from runtime._wire.messages.base import ErrorKind, ErrorReply
from runtime._wire.messages.control import (
    CreatePlacementGroup,
    ListPlacementGroups,
    PlacementGroupInfo,
    PlacementGroups,
    RemovePlacementGroup,
    WatchPlacementGroup,
)
from runtime._wire.messages.worker import Value
from runtime._worker import context
from runtime._worker.core_worker import Core, current

if TYPE_CHECKING:
    from runtime.object_ref import ObjectRef

VALID_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
WATCH_S = 60.0


class PlacementGroup:
    """A handle of a placement group; pass it to `PlacementGroupSchedulingStrategy`."""

    def __init__(self, id: ids.PlacementGroupID, bundle_cache: list[dict[str, float]] | None = None) -> None:
        self.id = id
        self._bundles = bundle_cache

    @staticmethod
    def empty() -> PlacementGroup:
        """A group of nothing."""
        return PlacementGroup(ids.PlacementGroupID.nil(), [])

    @property
    def is_empty(self) -> bool:
        """Whether it is the group of nothing."""
        return self.id.is_nil()

    @property
    def bundle_specs(self) -> list[dict[str, float]]:
        """The resources of each bundle."""
        if self._bundles is None:
            info = _ask(WatchPlacementGroup(self.id.binary(), -1, 0.0))
            self._bundles = [resources.to_floats(bundle) for bundle in info.bundles]
        return self._bundles

    @property
    def bundle_count(self) -> int:
        """How many bundles it has."""
        return len(self.bundle_specs)

    def ready(self) -> ObjectRef:
        """A reference that resolves (to this group) once all bundles are reserved."""
        core = current()
        with core.lock:
            entry = core.objects.own(ids.object_id(core.submitter.new_task_id(), 1))
            ref = core.objects.new_ref(entry)
        packed = core.objects.pack(entry.object_id, serialization.serialize(self), core.address)
        _watch(core, self.id.binary(), -1, entry, packed)
        return ref

    def wait(self, timeout_seconds: float = 30) -> bool:
        """Waits until all bundles are reserved; False after `timeout_seconds`."""
        core = current()
        try:
            core.reader.get_one(self.ready(), timeout_seconds)
        except exceptions.GetTimeoutError:
            return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroup) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"PlacementGroup({self.id.hex()})"


def _watch(core: Core, pg_id: bytes, version: int, entry: Any, packed: Value) -> None:
    def answered(reply: Any) -> None:
        if isinstance(reply, ErrorReply):
            if reply.kind in (ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT) and not core.agent.closed:
                _watch(core, pg_id, version, entry, packed)
            else:
                _fail(f"Placement group {pg_id.hex()}: {reply.message}")
        elif reply.state == "CREATED":
            core.objects.set_value(entry, packed)
        elif reply.state == "REMOVED":
            _fail(f"Placement group {pg_id.hex()} was removed before it was ready.")
        else:
            _watch(core, pg_id, reply.version, entry, packed)

    def _fail(message: str) -> None:
        error = core.pump.failure or exceptions.RaySystemError(message)
        core.objects.set_value(entry, core.objects.error_value(error))

    core.agent.call(WatchPlacementGroup(pg_id, version, WATCH_S), answered)


def placement_group(
    bundles: Sequence[dict[str, float]],
    strategy: str = "PACK",
    name: str = "",
    lifetime: str | None = None,
    _soft_target_node_id: str | None = None,
    bundle_label_selector: list[dict[str, str]] | None = None,
) -> PlacementGroup:
    """Asks for bundles of resources, reserved together or not at all. Returns at once; see `PlacementGroup.ready`.

    Args:
        bundles: resources per bundle, e.g. `[{"CPU": 1}, {"CPU": 1, "GPU": 1}]`.
        strategy: PACK or SPREAD (best effort), STRICT_PACK (one node), STRICT_SPREAD (a node per bundle).
        name: to find it again with `get_placement_group`.
        lifetime: "detached" to outlive the program.
        bundle_label_selector: node labels per bundle.

    Raises:
        ValueError: something is out of range, or the name is taken.
    """
    if not isinstance(bundles, list | tuple):
        raise ValueError(f"bundles is a list of dicts, not {bundles!r}.")
    if not bundles:
        raise ValueError("bundles is empty: a placement group has one bundle at least.")
    for bundle in bundles:
        if not isinstance(bundle, dict) or not bundle or all(not amount for amount in bundle.values()):
            raise ValueError(
                f"bundles={bundles!r}: {bundle!r} reserves nothing. Give each a dict with an amount above 0."
            )
    if strategy not in VALID_STRATEGIES:
        raise ValueError(f"strategy={strategy!r} is none of {', '.join(VALID_STRATEGIES)}.")
    if lifetime not in (None, "detached"):
        raise ValueError(f"lifetime={lifetime!r}: a placement group is 'detached', or ends with its program.")
    core = current()
    group = PlacementGroup(
        ids.PlacementGroupID(ids.placement_group_id(core.job_id)), [dict(b) for b in bundles]
    )
    request = CreatePlacementGroup(
        group.id.binary(),
        name,
        core.session.namespace,
        strategy,
        [resources.to_units(bundle) for bundle in bundles],
        core.job_id,
        lifetime == "detached",
        [dict(selector) for selector in bundle_label_selector or ()],
    )
    if not name:
        core.agent.call(request, lambda _reply: None)  # what became of it, `ready` and `wait` ask
        return group
    reply = core.call_agent(request)
    if isinstance(reply, ErrorReply):
        if reply.kind in (ErrorKind.EXISTS, ErrorKind.INVALID):
            raise ValueError(reply.message)
        raise exceptions.RaySystemError(reply.message)
    return group


def remove_placement_group(placement_group: PlacementGroup) -> None:
    """Gives the bundles back; what runs in them is killed."""
    current().ask(RemovePlacementGroup(placement_group.id.binary()))


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """Finds a group by name.

    Raises:
        ValueError: there is none.
    """
    if not placement_group_name:
        raise ValueError("get_placement_group() needs the name of a group, and got an empty one.")
    core = current()
    reply = core.ask(ListPlacementGroups(placement_group_name, core.session.namespace))
    assert isinstance(reply, PlacementGroups)
    for info in reply.groups:
        if info.state != "REMOVED":
            return _handle(info)
    raise ValueError(f"No placement group is named {placement_group_name!r}.")


def placement_group_table(placement_group: PlacementGroup | None = None) -> dict[str, Any]:
    """The state of one group, or of all by hex id."""
    if placement_group is not None:
        return _row(_ask(WatchPlacementGroup(placement_group.id.binary(), -1, 0.0)))
    reply = current().ask(ListPlacementGroups())
    assert isinstance(reply, PlacementGroups)
    return {info.pg_id.hex(): _row(info) for info in reply.groups}


def get_current_placement_group() -> PlacementGroup | None:
    """The group that the current task or actor runs in, or None."""
    running = context.execution.get()
    if running is None or running.lease is None or not running.lease.placement_group_id:
        return None
    return PlacementGroup(ids.PlacementGroupID(running.lease.placement_group_id))


def _ask(request: WatchPlacementGroup) -> PlacementGroupInfo:
    reply = current().ask(request)
    assert isinstance(reply, PlacementGroupInfo)
    return reply


def _handle(info: PlacementGroupInfo) -> PlacementGroup:
    bundles = [resources.to_floats(bundle) for bundle in info.bundles]
    return PlacementGroup(ids.PlacementGroupID(info.pg_id), bundles)


def _row(info: PlacementGroupInfo) -> dict[str, Any]:
    return {
        "placement_group_id": info.pg_id.hex(),
        "name": info.name,
        "bundles": {index: resources.to_floats(bundle) for index, bundle in enumerate(info.bundles)},
        "bundles_to_node_id": {index: node_id.hex() for index, node_id in enumerate(info.nodes)},
        "strategy": info.strategy,
        "state": info.state,
        "stats": {"scheduling_state": info.reason},
    }
