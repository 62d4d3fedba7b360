"""Learners that add a curiosity model's rewards to those of the environment."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from ...._core.types import DEFAULT_MODULE_ID
from ....algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ....algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ....connectors.connector_v2 import Batch, ConnectorV2
from ....connectors.learner import (
    AddColumnsFromEpisodesToTrainBatch,
    AddNextObservationsFromEpisodesToTrainBatch,
    NumpyToTensor,
)
from ....core.columns import Columns
from ....core.learner.experience import rollouts_of
from ....core.learner.torch.batches import VALUE_ROWS, tensors
from ....core.learner.torch.torch_learner import TorchLearner
from ....core.learner.training_data import TrainingData, columns_by_module
from ...rl_modules.classes.intrinsic_curiosity_model_rlm import INTRINSIC_REWARDS

ICM_MODULE_ID = "_intrinsic_curiosity_model"
_COLUMNS = (Columns.OBS, Columns.NEXT_OBS, Columns.ACTIONS)


class CuriosityLearner(TorchLearner):
    """Mixes `intrinsic_reward_coeff * error of the curiosity model` into rewards, and trains that model.

    The model is the module `ICM_MODULE_ID` of the algorithm, made with `learner_only=True`. Settings are in
    `config.learner_config_dict`: `intrinsic_reward_coeff` (0.05), and those of the model.
    """

    def build(self) -> None:
        """Builds the learner; a learner connector of the user's gets the pieces for curiosity."""
        super().build()
        if ICM_MODULE_ID not in self.module:
            raise ValueError(
                f"A learner with curiosity needs a module {ICM_MODULE_ID!r}. Set config.rl_module(rl_module_spec="
                f"MultiRLModuleSpec(rl_module_specs={{'{DEFAULT_MODULE_ID}': RLModuleSpec(), '{ICM_MODULE_ID}': "
                "RLModuleSpec(module_class=IntrinsicCuriosityModel, learner_only=True)}}))"
            )
        if self._pipeline is not None:
            add_intrinsic_curiosity_connectors(self)

    def batch_from_data(self, data: TrainingData) -> dict[str, dict[str, Any]]:
        """The batch, with rewards of curiosity and a part for the curiosity model."""
        if self._pipeline is not None and data.batch is None:
            return super().batch_from_data(data)
        if data.batch is not None:
            return super().batch_from_data(
                TrainingData(batch=self.with_curiosity(columns_by_module(data.batch)))
            )
        rollouts = rollouts_of(data.episodes or []) if data.rollouts is None else data.rollouts
        if DEFAULT_MODULE_ID not in rollouts:
            raise ValueError(
                f"Curiosity needs experience of module {DEFAULT_MODULE_ID!r}, not of {sorted(rollouts)}"
            )
        rollout = rollouts[DEFAULT_MODULE_ID]
        curious, rewards = self._curious({**rollout.columns, Columns.NEXT_OBS: rollout.next_obs()})
        mixed = dataclasses.replace(rollout, columns={**rollout.columns, Columns.REWARDS: rewards})
        batch = super().batch_from_data(TrainingData(rollouts={**rollouts, DEFAULT_MODULE_ID: mixed}))
        return {**batch, ICM_MODULE_ID: curious}

    def with_curiosity(self, batch: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """A batch (module id -> columns) with rewards of curiosity and a part for the curiosity model."""
        columns = batch[DEFAULT_MODULE_ID]
        curious, rewards = self._curious(columns)
        return {**batch, DEFAULT_MODULE_ID: {**columns, Columns.REWARDS: rewards}, ICM_MODULE_ID: curious}

    def _curious(self, columns: dict[str, Any]) -> tuple[dict[str, Any], np.ndarray]:
        """The curiosity model's batch, and rewards [rows] with its share."""
        own = {name: tensors(columns[name], self.device) for name in _COLUMNS}
        coeff = self.config.learner_config_dict.get("intrinsic_reward_coeff", 0.05)
        intrinsic = intrinsic_rewards(self.module[ICM_MODULE_ID], own).cpu().numpy()
        return own, np.asarray(columns[Columns.REWARDS], np.float32) + coeff * intrinsic


class PPOTorchLearnerWithCuriosity(CuriosityLearner, PPOTorchLearner):
    """PPO's learner with curiosity."""


class DQNTorchLearnerWithCuriosity(CuriosityLearner, DQNTorchLearner):
    """DQN's learner with curiosity."""

    def update_once(self, batch: Any, timesteps: dict[str, Any]) -> None:
        """One gradient step on a replayed batch, of the curiosity model, too."""
        super().update_once(self.with_curiosity(batch), timesteps)


def intrinsic_rewards(module: Any, batch: dict[str, Any]) -> Any:
    """The curiosity model's rewards [rows] for "obs", "new_obs" and "actions" [rows, ...]."""
    with torch.no_grad():
        parts = [
            module.forward_train({name: column[start : start + VALUE_ROWS] for name, column in batch.items()})
            for start in range(0, len(batch[Columns.OBS]), VALUE_ROWS)
        ]
        return torch.cat([part[INTRINSIC_REWARDS] for part in parts])


def add_intrinsic_curiosity_connectors(torch_learner: Any) -> None:
    """Adds the pieces for curiosity to a learner's connector pipeline: next observations, and the rewards."""
    pipeline = torch_learner._learner_connector
    pipeline.insert_after(AddColumnsFromEpisodesToTrainBatch, AddNextObservationsFromEpisodesToTrainBatch())
    coeff = torch_learner.config.learner_config_dict.get("intrinsic_reward_coeff", 0.05)
    pipeline.insert_after(NumpyToTensor, IntrinsicCuriosityModelConnector(intrinsic_reward_coeff=coeff))


class IntrinsicCuriosityModelConnector(ConnectorV2):
    """Adds a curiosity model's rewards to the rewards of a batch of tensors, and a part for that model.

    It stands behind `NumpyToTensor`, and needs "new_obs".
    """

    def __init__(
        self,
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        intrinsic_reward_coeff: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(input_observation_space, input_action_space)
        self.intrinsic_reward_coeff = intrinsic_reward_coeff

    def __call__(
        self,
        *,
        rl_module: Any,
        batch: Batch,
        episodes: list[Any],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        metrics: Any = None,
        **kwargs: Any,
    ) -> Batch:
        columns = batch[DEFAULT_MODULE_ID]
        own = {name: columns[name] for name in _COLUMNS}
        share = self.intrinsic_reward_coeff * intrinsic_rewards(rl_module[ICM_MODULE_ID], own)
        columns[Columns.REWARDS] = columns[Columns.REWARDS] + share
        batch[ICM_MODULE_ID] = own
        return batch
