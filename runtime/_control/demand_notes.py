"""Sends each agent the reasons why its requests are not served; the agent notifies the drivers.

An agent gets only the reasons of its own demands: to send all reasons to all agents would cost more than all other
messages of the control store.
"""

from __future__ import annotations

from runtime._control.cluster import Cluster, Node
from runtime._core.resources import describe
from runtime._wire.messages.control import AutoscalerReport, ClusterView


class DemandNotes:
    """What the autoscaler said last of demands that are not met."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._reasons: dict[str, str] = {}

    def learn(self, report: AutoscalerReport) -> None:
        """Takes the autoscaler's reasons."""
        reasons = dict(report.notes)
        if reasons != self._reasons:
            self._reasons = reasons
            for node in self._cluster.living():
                self.tell(node)

    def tell(self, node: Node) -> None:
        """Sends a node's agent the reasons that it does not have yet."""
        notes = []
        if self._reasons:
            for demand in node.demands:
                strategy = demand.request.strategy
                text = describe(demand.request.resources, strategy.labels, strategy.fallbacks)
                if text in self._reasons:
                    notes.append((text, self._reasons[text]))
            notes = sorted(set(notes))
        if notes != node.noted and node.channel is not None:
            node.noted = notes
            node.channel.send(ClusterView([], notes, has_notes=True))
