"""Where a task or an actor may run, beyond the strings "DEFAULT" and "SPREAD"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from runtime.util.placement_group import PlacementGroup


class PlacementGroupSchedulingStrategy:
    """Runs inside a placement group.

    Args:
        placement_group: the group.
        placement_group_bundle_index: which bundle; -1 for any.
        placement_group_capture_child_tasks: whether tasks started from there stay in the group.
    """

    def __init__(
        self,
        placement_group: PlacementGroup | None,
        placement_group_bundle_index: int = -1,
        placement_group_capture_child_tasks: bool | None = None,
    ) -> None:
        self.placement_group = placement_group
        self.placement_group_bundle_index = placement_group_bundle_index
        self.placement_group_capture_child_tasks = placement_group_capture_child_tasks


class NodeAffinitySchedulingStrategy:
    """Runs on one node.

    Args:
        node_id: the node, in hex.
        soft: run elsewhere when the node is gone or cannot ever fit; otherwise fail then.
    """

    def __init__(
        self,
        node_id: str,
        soft: bool,
        _spill_on_unavailable: bool = False,
        _fail_on_unavailable: bool = False,
    ) -> None:
        self.node_id = node_id if isinstance(node_id, str) else node_id.hex()
        self.soft = soft
        self._spill_on_unavailable = _spill_on_unavailable
        self._fail_on_unavailable = _fail_on_unavailable


SchedulingStrategyT = (
    None | Literal["DEFAULT", "SPREAD"] | PlacementGroupSchedulingStrategy | NodeAffinitySchedulingStrategy
)
