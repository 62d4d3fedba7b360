"""DreamerV3: settings and course of training."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ..._core.types import DEFAULT_MODULE_ID
from ...core.columns import Columns
from ...core.rl_module.rl_module import RLModuleSpec
from ...utils.metrics import (
    ENV_RUNNER_RESULTS,
    ENV_RUNNER_SAMPLING_TIMER,
    LEARNER_RESULTS,
    LEARNER_UPDATE_TIMER,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TIMERS,
)
from .._config.settings import NotProvided, setter
from ..algorithm import Algorithm
from ..algorithm_config import AlgorithmConfig
from .sequence_replay import SequenceReplay
from .utils import model_size as sizes_of


class DreamerV3Config(AlgorithmConfig):
    """Settings of DreamerV3; `build_algo()` makes the algorithm. The paper's are the defaults."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DreamerV3)
        self.model_size = "XS"
        self.training_ratio = 1024
        self.replay_buffer_config: dict[str, Any] = {"type": "EpisodeReplayBuffer", "capacity": 1_000_000}
        self.world_model_lr: Any = 1e-4
        self.actor_lr: Any = 3e-5
        self.critic_lr: Any = 3e-5
        self.batch_size_B = 16
        self.batch_length_T = 64
        self.horizon_H = 15
        self.gae_lambda = 0.95
        self.entropy_scale = 3e-4
        self.return_normalization_decay = 0.99
        self.train_critic = True
        self.train_actor = True
        self.world_model_grad_clip_by_global_norm: float | None = 1000.0
        self.critic_grad_clip_by_global_norm: float | None = 100.0
        self.actor_grad_clip_by_global_norm: float | None = 100.0
        self.symlog_obs: bool | str = "auto"

        self.gamma = 0.997
        self.num_env_runners = 0
        self.rollout_fragment_length = 1
        self.metrics_num_episodes_for_smoothing = 1

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """A world model, an actor and a critic."""
        from .torch.dreamerv3_torch_rl_module import DreamerV3TorchRLModule

        return RLModuleSpec(module_class=DreamerV3TorchRLModule)

    def get_default_learner_class(self) -> type:
        """The learner with DreamerV3's losses."""
        from .torch.dreamerv3_torch_learner import DreamerV3TorchLearner

        return DreamerV3TorchLearner

    @property
    def _model_config_auto_includes(self) -> dict[str, Any]:
        return super()._model_config_auto_includes | {
            "model_size": self.model_size,
            "symlog_obs": self.symlog_obs,
        }

    @property
    def batch_size_B_per_learner(self) -> int:
        """Sequences of a batch for each learner."""
        return self.batch_size_B // (self.num_learners or 1)

    @setter
    def training(
        self,
        *,
        model_size: str = NotProvided,
        training_ratio: float = NotProvided,
        batch_size_B: int = NotProvided,
        batch_length_T: int = NotProvided,
        horizon_H: int = NotProvided,
        gae_lambda: float = NotProvided,
        entropy_scale: float = NotProvided,
        return_normalization_decay: float = NotProvided,
        train_critic: bool = NotProvided,
        train_actor: bool = NotProvided,
        world_model_lr: Any = NotProvided,
        actor_lr: Any = NotProvided,
        critic_lr: Any = NotProvided,
        world_model_grad_clip_by_global_norm: float | None = NotProvided,
        critic_grad_clip_by_global_norm: float | None = NotProvided,
        actor_grad_clip_by_global_norm: float | None = NotProvided,
        symlog_obs: bool | str = NotProvided,
        replay_buffer_config: dict[str, Any] = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Settings of the networks and losses.

        Args:
            model_size: "XS", "S", "M", "L" or "XL" of the paper, or the smaller "nano", "micro", "mini" and "XXS".
            training_ratio: steps trained per env step; a batch has `batch_size_B * batch_length_T` steps.
            batch_size_B: sequences of a batch.
            batch_length_T: steps of a sequence.
            horizon_H: steps of a dream.
            gae_lambda: 0 trusts values, 1 trusts the dream's rewards.
            entropy_scale: coefficient of the actor's entropy bonus.
            return_normalization_decay: of the running range of returns, by which advantages are divided.
            train_critic: whether actor and critic are trained at all.
            train_actor: whether the actor is trained; needs the critic.
            world_model_lr: learning rate or schedule; likewise for actor and critic.
            actor_lr: see there.
            critic_lr: see there.
            world_model_grad_clip_by_global_norm: limit of the gradients' global norm; likewise for the others.
            critic_grad_clip_by_global_norm: see there.
            actor_grad_clip_by_global_norm: see there.
            symlog_obs: whether the world model sees symlog(observation); "auto": of vectors, not of images.
            replay_buffer_config: "capacity" in env steps; changes are merged into the default.
            kwargs: see `AlgorithmConfig.training`.
        """
        super().training(**kwargs)
        if replay_buffer_config is not NotProvided:
            replay_buffer_config = {**self.replay_buffer_config, **replay_buffer_config}
        return self.apply(
            model_size=model_size,
            training_ratio=training_ratio,
            batch_size_B=batch_size_B,
            batch_length_T=batch_length_T,
            horizon_H=horizon_H,
            gae_lambda=gae_lambda,
            entropy_scale=entropy_scale,
            return_normalization_decay=return_normalization_decay,
            train_critic=train_critic,
            train_actor=train_actor,
            world_model_lr=world_model_lr,
            actor_lr=actor_lr,
            critic_lr=critic_lr,
            world_model_grad_clip_by_global_norm=world_model_grad_clip_by_global_norm,
            critic_grad_clip_by_global_norm=critic_grad_clip_by_global_norm,
            actor_grad_clip_by_global_norm=actor_grad_clip_by_global_norm,
            symlog_obs=symlog_obs,
            replay_buffer_config=replay_buffer_config,
        )

    def validate(self) -> None:
        """Checks that the settings fit each other.

        Raises:
            ValueError: they do not.
        """
        super().validate()
        sizes_of(self.model_size)
        if self.is_multi_agent:
            raise ValueError("DreamerV3 trains one agent; it has no multi-agent mode")
        if self.train_actor and not self.train_critic:
            raise ValueError("train_actor=True needs train_critic=True: advantages come from the critic")
        if self.batch_size_B % (self.num_learners or 1):
            raise ValueError(
                f"batch_size_B ({self.batch_size_B}) must be a multiple of num_learners ({self.num_learners})"
            )
        if self.training_ratio <= 0:
            raise ValueError(f"training_ratio must be more than 0, not {self.training_ratio}")


class DreamerV3(Algorithm):
    """Samples into a replay buffer, and trains on sequences of it until the training ratio is reached."""

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        """The defaults."""
        return DreamerV3Config()

    def setup(self, config: Any) -> None:
        """Builds runners, learners and the replay buffer."""
        super().setup(config)
        self.replay_buffer = SequenceReplay(
            int(self.config.replay_buffer_config["capacity"]), np.random.default_rng(self.config.seed)
        )
        self._sampled_steps = 0
        self._trained_steps = 0
        self._credit = 0.0  # steps that may be trained by the training ratio

    def training_step(self) -> None:
        """Samples until an update is due, then makes the updates that are.

        The first one waits until the buffer has more steps than a batch; what was sampled until then is not caught up
        with.
        """
        config, metrics = self.config, self.metrics
        steps = config.batch_size_B * config.batch_length_T
        with metrics.log_time((TIMERS, ENV_RUNNER_SAMPLING_TIMER)):
            if not self._sample_until_due(steps):
                return  # no runner answered in time
        now = metrics.peek((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME), default=0)
        with metrics.log_time((TIMERS, LEARNER_UPDATE_TIMER)):
            while self._credit >= steps:
                batch = self.replay_buffer.sample(config.batch_size_B, config.batch_length_T)
                batch[Columns.LOSS_MASK] = np.ones(batch["is_first"].shape, bool)  # all steps count
                results = self.learner_group.update(
                    batch={DEFAULT_MODULE_ID: batch}, timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: now}
                )
                metrics.aggregate(results, key=LEARNER_RESULTS)
                self._credit -= steps
                self._trained_steps += steps
        with metrics.log_time((TIMERS, SYNCH_WORKER_WEIGHTS_TIMER)):
            self.env_runner_group.sync_weights(
                from_worker_or_learner_group=self.learner_group, inference_only=True
            )
        metrics.log_value(
            "actual_training_ratio", self._trained_steps / max(self._sampled_steps, 1), window=1
        )

    def _sample_until_due(self, steps: int) -> bool:
        """Samples until there is credit for a batch of `steps`. False: a round of sampling gave nothing."""
        config = self.config
        while self._credit < steps or self.replay_buffer.rows <= steps:
            before, is_short = self._sampled_steps, self.replay_buffer.rows <= steps
            for collected in self.env_runner_group.collect(timeout_s=config.sample_timeout_s):
                for rollout in collected.rollouts.values():
                    self.replay_buffer.add(rollout)
                self._sampled_steps += collected.env_steps
                self.metrics.aggregate([collected.metrics], key=ENV_RUNNER_RESULTS)
            if self._sampled_steps == before:
                return False
            self._credit += (self._sampled_steps - before) * config.training_ratio
            if is_short:
                self._credit = min(self._credit, steps)
        return True

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As `Algorithm.get_state`, with the counters. The buffer is not saved: a restored algorithm fills it anew."""
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        state["dreamer_steps"] = (self._sampled_steps, self._trained_steps, self._credit)
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets what `get_state` gave."""
        super().set_state(state)
        self._sampled_steps, self._trained_steps, self._credit = state.get("dreamer_steps", (0, 0, 0.0))
