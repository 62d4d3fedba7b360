"""Machines that are taken away while a run trains on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.train._core.records import Leaving


@dataclass(frozen=True)
class PreemptionInfo:
    """Machines that will be taken away.

    Attributes:
        deadline_ms: when the first of them goes, in milliseconds of Unix time; None: nobody said.
        preempted_node_to_ranks: the ranks on them, by node in hex.
    """

    deadline_ms: int | None
    preempted_node_to_ranks: dict[str, list[int]]

    @classmethod
    def of(cls, nodes: Mapping[str, Leaving]) -> PreemptionInfo:
        """What is known of machines that leave, by node. For the library itself."""
        known = [each.deadline_ms for each in nodes.values() if each.deadline_ms is not None]
        return cls(min(known, default=None), {node: each.ranks for node, each in nodes.items()})

    @property
    def preempted_node_ids(self) -> list[str]:
        """The nodes."""
        return sorted(self.preempted_node_to_ranks)

    @property
    def preempted_ranks(self) -> list[int]:
        """The ranks on them."""
        return sorted({rank for ranks in self.preempted_node_to_ranks.values() for rank in ranks})
