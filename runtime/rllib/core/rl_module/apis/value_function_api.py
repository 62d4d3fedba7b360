"""Modules that estimate values of states."""

from __future__ import annotations

import abc
from typing import Any


class ValueFunctionAPI(abc.ABC):
    """The module has a value function. PPO, IMPALA, APPO and MARWIL need one."""

    @abc.abstractmethod
    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Any:
        """Values of the batch's observations, of shape [batch] or [batch, time].

        Args:
            batch: with "obs", and "state_in" if the module is recurrent.
            embeddings: what `forward_train` gave for this batch under "embeddings", so that it need not be computed
                again.
        """
