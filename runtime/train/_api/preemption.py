"""Machines that are taken away while a run trains on them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PreemptionInfo:
    """Machines that will be taken away.

    Attributes:
        deadline_ms: when, in milliseconds of Unix time; None: nobody said.
        preempted_node_to_ranks: the ranks on them, by node in hex.
    """

    deadline_ms: int | None
    preempted_node_to_ranks: dict[str, list[int]]

    @property
    def preempted_node_ids(self) -> list[str]:
        """The nodes."""
        return sorted(self.preempted_node_to_ranks)

    @property
    def preempted_ranks(self) -> list[int]:
        """The ranks on them."""
        return sorted({rank for ranks in self.preempted_node_to_ranks.values() for rank in ranks})
