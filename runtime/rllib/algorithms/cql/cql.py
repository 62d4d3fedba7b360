"""Conservative Q-learning: soft actor-critic on recorded data, whose Q values of unseen actions are kept low.

Kumar, Zhou, Tucker, Levine, "Conservative Q-Learning for Offline Reinforcement Learning", NeurIPS 2020.
"""

from __future__ import annotations

from typing import Any, Self

from runtime.rllib.algorithms._algorithm.offline import (
    OfflineTraining,
    offline_learner_connector,
    validate_offline,
)
from runtime.rllib.algorithms._config.settings import NotProvided, setter
from runtime.rllib.algorithms.sac.sac import SAC, SACConfig
from runtime.rllib.core.columns import Columns

__all__ = ["CQL", "CQLConfig"]


class CQLConfig(SACConfig):
    """The settings of `CQL`. Actions must be in a Box; recorded ones are in [-1, 1] as modules give them."""

    offline_columns = (Columns.OBS, Columns.ACTIONS, Columns.REWARDS)  # that the data must have
    trains_on_segments = False
    needs_normalized_actions = True
    updates_batch_by_batch = True  # targets move after each of them

    def __init__(self, algo_class: Any = None) -> None:
        super().__init__(algo_class=algo_class or CQL)
        self.bc_iters = 20000
        self.temperature = 1.0
        self.num_actions = 10
        self.lagrangian = False
        self.lagrangian_thresh = 5.0
        self.min_q_weight = 5.0
        self.deterministic_backup = True
        self.actor_lr = 1e-4
        self.critic_lr = 1e-3
        self.alpha_lr = 1e-3
        self.min_sample_timesteps_per_iteration = 0
        self.min_train_timesteps_per_iteration = 100

    @setter
    def training(
        self,
        *,
        bc_iters: int = NotProvided,
        temperature: float = NotProvided,
        num_actions: int = NotProvided,
        lagrangian: bool = NotProvided,
        lagrangian_thresh: float = NotProvided,
        min_q_weight: float = NotProvided,
        deterministic_backup: bool = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """The settings of training.

        Args:
            bc_iters: updates at the beginning in which the policy imitates the data's actions.
            temperature: of the log-sum-exp over sampled actions.
            num_actions: actions per row and kind (uniform, of the policy, of the policy after the step) in it.
            lagrangian: whether the penalty's weight is learned, so that Q values differ by `lagrangian_thresh`.
            lagrangian_thresh: see `lagrangian`.
            min_q_weight: the weight of the penalty.
            deterministic_backup: whether targets of Q values leave the entropy out.
            kwargs: see `SACConfig.training`.
        """
        super().training(**kwargs)
        return self.apply(
            bc_iters=bc_iters,
            temperature=temperature,
            num_actions=num_actions,
            lagrangian=lagrangian,
            lagrangian_thresh=lagrangian_thresh,
            min_q_weight=min_q_weight,
            deterministic_backup=deterministic_backup,
        )

    def get_default_rl_module_spec(self) -> Any:
        """The networks of SAC."""
        from runtime.rllib.algorithms.cql.torch.default_cql_torch_rl_module import DefaultCQLTorchRLModule
        from runtime.rllib.core.rl_module.rl_module import RLModuleSpec

        return RLModuleSpec(module_class=DefaultCQLTorchRLModule)

    def get_default_learner_class(self) -> type:
        """The learner with the conservative penalty."""
        from runtime.rllib.algorithms.cql.torch.cql_torch_learner import CQLTorchLearner

        return CQLTorchLearner

    def build_learner_connector(
        self, input_observation_space: Any, input_action_space: Any, device: Any = None
    ) -> Any:
        """The pipeline from episodes to a train batch, for `learners(learner_connector=...)`."""
        pipeline = super().build_learner_connector(input_observation_space, input_action_space, device)
        return offline_learner_connector(pipeline, self)

    def validate(self) -> None:
        """Checks that the settings fit each other.

        Raises:
            ValueError: they do not.
        """
        super().validate()
        validate_offline(self)

    @property
    def _model_config_auto_includes(self) -> dict[str, Any]:
        return super()._model_config_auto_includes | {"num_actions": self.num_actions}


class CQL(OfflineTraining, SAC):
    """Trains a policy on offline data; see `CQLConfig`."""

    @classmethod
    def get_default_config(cls) -> CQLConfig:
        """The defaults."""
        return CQLConfig()
