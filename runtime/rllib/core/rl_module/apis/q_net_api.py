"""Modules that compute Q-values."""

from __future__ import annotations

import abc
from typing import Any


class QNetAPI(abc.ABC):
    """The module gives a value for each action."""

    @abc.abstractmethod
    def compute_q_values(self, batch: dict[str, Any]) -> dict[str, Any]:
        """{"qf_preds": [batch, actions], ...} for a batch with observations."""

    def compute_advantage_distribution(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Distributions of Q-values over atoms; only of distributional Q-networks.

        Raises:
            NotImplementedError: the module has no distributions of Q-values.
        """
        raise NotImplementedError(f"{type(self).__name__} has no distributions of Q-values")
