"""Where workers have room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

import runtime
from runtime._core import labels
from runtime._private.state import available_resources_per_node


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
