"""Modules with target networks."""

from __future__ import annotations

import abc
from typing import Any

# Key of the outputs of a policy's target network.
TARGET_NETWORK_ACTION_DIST_INPUTS = "target_network_action_dist_inputs"


class TargetNetworkAPI(abc.ABC):
    """Some networks have copies that follow them slowly; the learner updates the copies."""

    @abc.abstractmethod
    def make_target_networks(self) -> None:
        """Makes the copies. The learner calls this once, after it built the module."""

    @abc.abstractmethod
    def get_target_network_pairs(self) -> list[tuple[Any, Any]]:
        """Pairs (network, its copy)."""

    @abc.abstractmethod
    def forward_target(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The target networks' outputs."""
