"""Modules that bring their own loss."""

from __future__ import annotations

import abc
from typing import Any


class SelfSupervisedLossAPI(abc.ABC):
    """The learner takes this module's loss from it, whatever the algorithm is: a world model, a curiosity model."""

    @abc.abstractmethod
    def compute_self_supervised_loss(
        self,
        *,
        learner: Any,
        module_id: str,
        config: Any,
        batch: dict[str, Any],
        fwd_out: dict[str, Any],
        **kwargs: Any,
    ) -> Any:
        """The loss, a scalar tensor.

        Args:
            learner: the learner that updates the module.
            module_id: this module's id.
            config: the algorithm's configuration for this module.
            batch: this module's batch.
            fwd_out: what `forward_train(batch)` gave.
        """
