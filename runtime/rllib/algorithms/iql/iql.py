"""Implicit Q-learning: learns from recorded actions only, without asking for the value of others.

Kostrikov, Nair, Levine, "Offline Reinforcement Learning with Implicit Q-Learning", 2021.
"""

from __future__ import annotations

import math
from typing import Any, Self

from runtime.rllib.algorithms._config.settings import NotProvided, setter
from runtime.rllib.algorithms.marwil.marwil import MARWIL, MARWILConfig

__all__ = ["IQL", "IQLConfig"]


class IQLConfig(MARWILConfig):
    """The settings of `IQL`. Actions must be in a Box; recorded ones are in [-1, 1] as modules give them."""

    trains_on_segments = False
    needs_normalized_actions = True
    _largest_beta = math.inf
    updates_batch_by_batch = True  # targets move after each of them

    def __init__(self, algo_class: Any = None) -> None:
        super().__init__(algo_class=algo_class or IQL)
        self.beta = 0.1
        self.expectile = 0.8
        self.actor_lr: Any = 3e-4
        self.critic_lr: Any = 3e-4
        self.value_lr: Any = 3e-4
        self.lr = None
        self.twin_q = True
        self.target_network_update_freq = 0
        self.tau = 1.0

    @setter
    def training(
        self,
        *,
        twin_q: bool = NotProvided,
        expectile: float = NotProvided,
        actor_lr: Any = NotProvided,
        critic_lr: Any = NotProvided,
        value_lr: Any = NotProvided,
        target_network_update_freq: int = NotProvided,
        tau: float = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """The settings of training. `beta` is the inverse temperature of the policy's weights, above 0.

        Args:
            twin_q: whether there are two Q networks, of which the smaller value counts.
            expectile: of the regression of values; the nearer to 1, the nearer values are to the best actions' Q.
            actor_lr: the policy's learning rate, or a schedule.
            critic_lr: of the Q networks.
            value_lr: of the value network.
            target_network_update_freq: time steps between moves of the target Q networks; 0: after each update.
            tau: how far they move towards the Q networks; 1.0 copies them.
            kwargs: see `MARWILConfig.training`.
        """
        super().training(**kwargs)
        return self.apply(
            twin_q=twin_q,
            expectile=expectile,
            actor_lr=actor_lr,
            critic_lr=critic_lr,
            value_lr=value_lr,
            target_network_update_freq=target_network_update_freq,
            tau=tau,
        )

    def get_default_rl_module_spec(self) -> Any:
        """A policy, Q networks and a value network."""
        from runtime.rllib.algorithms.iql.torch.default_iql_torch_rl_module import DefaultIQLTorchRLModule
        from runtime.rllib.core.rl_module.rl_module import RLModuleSpec

        return RLModuleSpec(module_class=DefaultIQLTorchRLModule)

    def get_default_learner_class(self) -> type:
        """The learner with the losses of IQL."""
        from runtime.rllib.algorithms.iql.torch.iql_torch_learner import IQLTorchLearner

        return IQLTorchLearner

    def validate(self) -> None:
        """Checks that the settings fit each other.

        Raises:
            ValueError: they do not.
        """
        super().validate()
        if not 0.0 < self.expectile < 1.0:
            self._value_error(f"expectile must be between 0.0 and 1.0, not {self.expectile}.")

    @property
    def _model_config_auto_includes(self) -> dict[str, Any]:
        return super()._model_config_auto_includes | {"twin_q": self.twin_q}


class IQL(MARWIL):
    """Trains a policy on offline data; see `IQLConfig`."""

    @classmethod
    def get_default_config(cls) -> IQLConfig:
        """The defaults."""
        return IQLConfig()
