"""A module that never takes the actions which the environment forbids."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from ....algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ....core.columns import Columns
from ....core.rl_module.rl_module import RLModule
from ....utils.torch_utils import FLOAT_MIN

ACTION_MASK = "action_mask"
OBSERVATIONS = "observations"


class ActionMaskingRLModule(RLModule):
    """Takes observations {"action_mask": 1 for allowed actions and 0 for others, "observations": ...}."""

    def __init__(self, *, observation_space: Any = None, **kwargs: Any) -> None:
        """Builds the networks for the part "observations".

        Raises:
            ValueError: the observation space is no Dict with both parts.
        """
        parts = observation_space.spaces if isinstance(observation_space, gym.spaces.Dict) else {}
        if not {ACTION_MASK, OBSERVATIONS} <= parts.keys():
            raise ValueError(
                f"Action masking needs an observation space Dict({ACTION_MASK!r}: ..., {OBSERVATIONS!r}: ...), not "
                f"{observation_space}"
            )
        super().__init__(observation_space=parts[OBSERVATIONS], **kwargs)
        self.observation_space_with_mask = observation_space
        self.observation_space = observation_space


class ActionMaskingTorchRLModule(ActionMaskingRLModule, DefaultPPOTorchRLModule):
    """PPO's default module with the logits of forbidden actions set to the lowest float."""

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        inner, mask = _split(batch)
        return _masked(super()._forward(inner, **kwargs), mask)

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        inner, mask = _split(batch)
        return _masked(super()._forward_train(inner, **kwargs), mask)

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Any:
        return super().compute_values(_split(batch)[0], embeddings)


def _split(batch: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    obs = batch[Columns.OBS]
    if not isinstance(obs, dict) or not {ACTION_MASK, OBSERVATIONS} <= obs.keys():
        raise ValueError(
            f"Observations have no parts {ACTION_MASK!r} and {OBSERVATIONS!r}. A connector that flattens them must "
            "leave these apart"
        )
    return {**batch, Columns.OBS: obs[OBSERVATIONS]}, obs[ACTION_MASK]


def _masked(outputs: dict[str, Any], mask: Any) -> dict[str, Any]:
    logits = outputs[Columns.ACTION_DIST_INPUTS]
    return {**outputs, Columns.ACTION_DIST_INPUTS: logits.masked_fill(mask == 0, FLOAT_MIN)}
