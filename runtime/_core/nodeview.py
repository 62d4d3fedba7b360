"""What placement sees of a node, and the two questions it asks about one: who may go there, and how full is
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from runtime._core import labels as _labels

_MEASURED = ("CPU", "memory", "GPU")


class NodeView(msgspec.Struct):
    """One node as placement sees it. Callers own it and may deduct from `available` between calls."""

    node_id: bytes
    total: dict[str, int]
    available: dict[str, int]
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    schedulable: bool = True  # False: draining or dead

    def copy(self) -> NodeView:
        """A view whose `available` can be changed without changing this one's."""
        return NodeView(self.node_id, self.total, dict(self.available), self.labels, self.schedulable)


def accepts(node: NodeView, selector: Mapping[str, str]) -> bool:
    """Whether the node takes new work at all, and by `selector`."""
    return node.schedulable and (not selector or _labels.matches(selector, node.labels))


def measured(names: Iterable[str]) -> tuple[str, ...]:
    """The resources by which `utilization` judges nodes for a request for `names`."""
    return tuple(dict.fromkeys((*_MEASURED, *names)))


def utilization(node: NodeView, names: Iterable[str]) -> float:
    """The fullest of the node's resources that are `measured`: 0 idle, 1 full, above 1 oversubscribed."""
    worst = 0.0
    total, available = node.total, node.available
    for name in names:
        size = total.get(name)
        if size:
            used = size - available.get(name, 0)
            if used > worst * size:
                worst = used / size
    return worst
