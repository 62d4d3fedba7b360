"""Soft actor-critic (Haarnoja et al. 2018), also for discrete actions (Christodoulou 2019)."""

from __future__ import annotations

from typing import Any, Self

from runtime.rllib.algorithms._config.settings import NotProvided, setter
from runtime.rllib.algorithms.dqn.dqn import DQN, ReplayConfig
from runtime.rllib.core.rl_module.rl_module import RLModuleSpec


class SACConfig(ReplayConfig):
    """Settings of SAC; `build_algo()` makes the algorithm."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or SAC)
        self.rollout_fragment_length = "auto"
        self.lr = None
        self.grad_clip = None
        self.clip_actions = False
        self.train_batch_size = 256
        self.train_batch_size_per_learner = 256
        self.min_time_s_per_iteration = 1
        self.min_sample_timesteps_per_iteration = 100

        self.twin_q = True
        self.q_model_config: dict[str, Any] = {}
        self.policy_model_config: dict[str, Any] = {}
        self.tau = 5e-3
        self.initial_alpha = 1.0
        self.target_entropy: float | str | None = "auto"
        self.n_step: int | tuple[int, int] = 1
        self.actor_lr: Any = 3e-5
        self.critic_lr: Any = 3e-4
        self.alpha_lr: Any = 3e-4
        self.target_network_update_freq = 0
        self.num_steps_sampled_before_learning_starts = 1500
        self.store_buffer_in_checkpoints = False
        self.training_intensity: float | None = None
        self.replay_buffer_config: dict[str, Any] = {
            "type": "PrioritizedEpisodeReplayBuffer",
            "capacity": 1_000_000,
            "alpha": 0.6,
            "beta": 0.4,
        }

    @setter
    def training(
        self,
        *,
        twin_q: bool = NotProvided,
        q_model_config: dict[str, Any] = NotProvided,
        policy_model_config: dict[str, Any] = NotProvided,
        tau: float = NotProvided,
        initial_alpha: float = NotProvided,
        target_entropy: float | str | None = NotProvided,
        n_step: int | tuple[int, int] = NotProvided,
        store_buffer_in_checkpoints: bool = NotProvided,
        replay_buffer_config: dict[str, Any] = NotProvided,
        training_intensity: float | None = NotProvided,
        clip_actions: bool = NotProvided,
        grad_clip: float | None = NotProvided,
        actor_lr: Any = NotProvided,
        critic_lr: Any = NotProvided,
        alpha_lr: Any = NotProvided,
        target_network_update_freq: int = NotProvided,
        num_steps_sampled_before_learning_starts: int = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Settings of the losses and of replay.

        Args:
            twin_q: whether two Q networks are learned, of which the smaller value counts.
            q_model_config: accepted, without effect: networks are set by `rl_module(model_config=...)`.
            policy_model_config: the same.
            tau: how far an update moves target networks.
            initial_alpha: the temperature at first.
            target_entropy: the entropy that the temperature is adjusted to, in nats; "auto": minus the number of
                action dimensions, or 98 % of the largest entropy of discrete actions.
            n_step: steps whose rewards are summed up, or a pair of bounds to draw them from.
            store_buffer_in_checkpoints: whether checkpoints have the buffer's contents.
            replay_buffer_config: see `DQNConfig.training`.
            training_intensity: rows trained on per env step sampled; None: one update per sample.
            clip_actions: see `environment`.
            grad_clip: the limit of gradients of each optimizer, see `grad_clip_by`; None: none.
            actor_lr: learning rate of the policy, or a schedule [[timestep, value], ...].
            critic_lr: of the Q networks.
            alpha_lr: of the temperature.
            target_network_update_freq: env steps between updates of the target networks; 0: each update moves them.
            num_steps_sampled_before_learning_starts: env steps before the first update.
            kwargs: see `AlgorithmConfig.training`.
        """
        super().training(**kwargs)
        self._set_replay_buffer(replay_buffer_config)
        return self.apply(
            twin_q=twin_q,
            q_model_config=q_model_config,
            policy_model_config=policy_model_config,
            tau=tau,
            initial_alpha=initial_alpha,
            target_entropy=target_entropy,
            n_step=n_step,
            store_buffer_in_checkpoints=store_buffer_in_checkpoints,
            training_intensity=training_intensity,
            clip_actions=clip_actions,
            grad_clip=grad_clip,
            actor_lr=actor_lr,
            critic_lr=critic_lr,
            alpha_lr=alpha_lr,
            target_network_update_freq=target_network_update_freq,
            num_steps_sampled_before_learning_starts=num_steps_sampled_before_learning_starts,
        )

    def validate(self) -> None:
        """Checks that the settings fit each other.

        Raises:
            ValueError: they do not.
        """
        super().validate()
        self._validate_replay()
        if self.lr is not None:
            self._value_error(
                "SAC has no single learning rate: set lr=None, and actor_lr, critic_lr and alpha_lr."
            )
        if not self.initial_alpha > 0:
            self._value_error(f"initial_alpha must be positive, not {self.initial_alpha!r}.")

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """A policy and Q networks."""
        from runtime.rllib.algorithms.sac.torch.default_sac_torch_rl_module import DefaultSACTorchRLModule

        return RLModuleSpec(module_class=DefaultSACTorchRLModule, model_config=self.model_config)

    def get_default_learner_class(self) -> type:
        """The learner with SAC's losses."""
        from runtime.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner

        return SACTorchLearner

    @property
    def _model_config_auto_includes(self) -> dict[str, Any]:
        return super()._model_config_auto_includes | {"twin_q": self.twin_q}


class SAC(DQN):
    """Samples into a replay buffer and learns from batches drawn from it, in turns; see `DQN`."""

    @classmethod
    def get_default_config(cls) -> SACConfig:
        """The defaults."""
        return SACConfig()
