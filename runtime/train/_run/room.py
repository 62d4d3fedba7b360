"""Where workers have room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

import runtime
from runtime._core import labels
from runtime._private.state import available_resources_per_node
from runtime.util.placement_group import placement_group_table

if TYPE_CHECKING:
    from runtime.train._api.config import ScalingConfig


class Room(msgspec.Struct, frozen=True):
    """For how many workers the cluster has room.

    Attributes:
        bundle: the resources of a worker.
        selector: labels that its node must have.
        strategy: of the placement group.
        most: as many as anybody asks for.
    """

    bundle: Mapping[str, float]
    selector: Mapping[str, str]
    strategy: str
    most: int

    def now(self) -> int:
        """What is free now. It may not be when the workers are created: then they wait."""
        free = available_resources_per_node()
        nodes = [free.get(node["NodeID"], {}) for node in runtime.nodes() if self._suits(node["Labels"])]
        return self.within(nodes)

    def ever(self) -> int:
        """What would be free if nothing else ran on the nodes of now."""
        alive = [node for node in runtime.nodes() if node["Alive"] and self._suits(node["Labels"])]
        return self.within([node["Resources"] for node in alive])

    def within(self, nodes: Sequence[Mapping[str, float]]) -> int:
        """How many have room on nodes with so much that is free."""
        counts = [min([self.most, *map(partial(self._times, node), self.bundle)]) for node in nodes]
        if self.strategy == "STRICT_SPREAD":
            counts = [min(count, 1) for count in counts]
        if self.strategy == "STRICT_PACK":
            return max(counts, default=0)
        return min(self.most, sum(counts))

    def _suits(self, found: Mapping[str, str]) -> bool:
        return labels.matches(self.selector, found)

    def _times(self, node: Mapping[str, float], name: str) -> int:
        return int(node.get(name, 0.0) / self.bundle[name] + 1e-9)


def room_of(scaling: ScalingConfig) -> Room:
    """For how many workers of a run there is room. A list of label selectors is not looked at."""
    selector = scaling.label_selector if isinstance(scaling.label_selector, Mapping) else {}
    return Room(scaling.bundle, selector, scaling.placement_strategy, scaling.most_workers)


def shortage(scaling: ScalingConfig) -> str:
    """What the workers of a run wait for, and what to do; "": no placement group of this form waits for room."""
    if not any(_is_pending(group, scaling) for group in placement_group_table().values()):
        return ""
    own = room_of(scaling)
    free, total = runtime.available_resources(), runtime.cluster_resources()
    least = scaling.num_workers[0] if isinstance(scaling.num_workers, tuple) else scaling.num_workers
    held = ", ".join(
        f"{name}: {free.get(name, 0.0):g} of {total.get(name, 0.0):g}" for name in scaling.bundle
    )
    what = (
        f"it waits for room for its workers: {least} with {scaling.bundle} each ({scaling.placement_strategy}). "
        f"Free in the cluster: {held or 'nothing is asked for'}."
    )
    if own.ever() < least:
        return (
            f"{what} The nodes of now have no room for them, even if nothing else ran: add nodes, which an autoscaler "
            "does by itself, or ask for less in ScalingConfig."
        )
    return (
        f"{what} It goes on when tasks, actors or placement groups that hold the rest end. If trials of an experiment "
        "hold it, give their number in TuneConfig(max_concurrent_trials=...)."
    )


def _is_pending(group: Mapping[str, Any], scaling: ScalingConfig) -> bool:
    bundles = [*group["bundles"].values()]
    return group["state"] in ("PENDING", "RESCHEDULING") and bool(bundles) and bundles[0] == scaling.bundle
