"""Proximal policy optimization (Schulman et al., 2017, https://arxiv.org/abs/1707.06347)."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ...core.rl_module.rl_module import RLModuleSpec
from ...utils.metrics import (
    ALL_MODULES,
    ENV_RUNNER_RESULTS,
    ENV_RUNNER_SAMPLING_TIMER,
    LEARNER_RESULTS,
    LEARNER_UPDATE_TIMER,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_MODULE_STEPS_TRAINED_LIFETIME,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TIMERS,
)
from ...utils.schedules.scheduler import Scheduler
from .._config.settings import NotProvided, setter
from ..algorithm import Algorithm
from ..algorithm_config import AlgorithmConfig
from ..on_policy import collected_rollouts, log_updates_ahead
from .results import (
    LEARNER_RESULTS_CURR_ENTROPY_COEFF_KEY,
    LEARNER_RESULTS_CURR_KL_COEFF_KEY,
    LEARNER_RESULTS_KL_KEY,
    LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY,
    LEARNER_RESULTS_VF_LOSS_UNCLIPPED_KEY,
)

__all__ = [
    "LEARNER_RESULTS_CURR_ENTROPY_COEFF_KEY",
    "LEARNER_RESULTS_CURR_KL_COEFF_KEY",
    "LEARNER_RESULTS_KL_KEY",
    "LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY",
    "LEARNER_RESULTS_VF_LOSS_UNCLIPPED_KEY",
    "PPO",
    "PPOConfig",
]


class PPOConfig(AlgorithmConfig):
    """Settings of PPO; `build_algo()` makes the algorithm."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or PPO)
        self.lr = 5e-5
        self.rollout_fragment_length = "auto"
        self.train_batch_size = 4000
        self.num_env_runners = 2

        self.use_critic = True
        self.use_gae = True
        self.num_epochs = 30
        self.minibatch_size = 128
        self.shuffle_batch_per_epoch = True
        self.lambda_ = 1.0
        self.use_kl_loss = True
        self.kl_coeff = 0.2
        self.kl_target = 0.01
        self.vf_loss_coeff = 1.0
        self.entropy_coeff: Any = 0.0
        self.clip_param = 0.3
        self.vf_clip_param = 10.0
        self.grad_clip = None

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """An actor-critic module."""
        from .torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule

        return RLModuleSpec(module_class=DefaultPPOTorchRLModule)

    def get_default_learner_class(self) -> type:
        """The learner with PPO's loss."""
        from .torch.ppo_torch_learner import PPOTorchLearner

        return PPOTorchLearner

    @setter
    def training(
        self,
        *,
        use_critic: bool = NotProvided,
        use_gae: bool = NotProvided,
        lambda_: float = NotProvided,
        use_kl_loss: bool = NotProvided,
        kl_coeff: float = NotProvided,
        kl_target: float = NotProvided,
        vf_loss_coeff: float = NotProvided,
        entropy_coeff: Any = NotProvided,
        clip_param: float = NotProvided,
        vf_clip_param: float = NotProvided,
        grad_clip: float | None = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Settings of the loss.

        Args:
            use_critic: whether values are a baseline of the returns.
            use_gae: whether advantages are exponentially weighted; otherwise they are returns less values.
            lambda_: the weight of later temporal differences: 0 trusts values, 1 trusts returns.
            use_kl_loss: whether the KL divergence from the sampling policy is part of the loss.
            kl_coeff: its coefficient at first.
            kl_target: the coefficient grows above twice this divergence, and shrinks below half of it.
            vf_loss_coeff: coefficient of the value loss.
            entropy_coeff: coefficient of the entropy bonus, or a schedule [[timestep, value], ...].
            clip_param: how far the ratio of probabilities may move from 1 with gain.
            vf_clip_param: the largest squared error of a value that counts; depends on the scale of rewards.
            grad_clip: the limit of gradients, see `grad_clip_by`; None: none.
            kwargs: see `AlgorithmConfig.training`.
        """
        super().training(**kwargs)
        return self.apply(
            use_critic=use_critic,
            use_gae=use_gae,
            lambda_=lambda_,
            use_kl_loss=use_kl_loss,
            kl_coeff=kl_coeff,
            kl_target=kl_target,
            vf_loss_coeff=vf_loss_coeff,
            entropy_coeff=entropy_coeff,
            clip_param=clip_param,
            vf_clip_param=vf_clip_param,
            grad_clip=grad_clip,
        )

    def validate(self) -> None:
        """Checks that the settings fit each other.

        Raises:
            ValueError: they do not.
        """
        super().validate()
        self.validate_train_batch_size_vs_rollout_fragment_length()
        size, batch = self.minibatch_size, self.train_batch_size_per_learner
        if size is not None and batch is not None and size > batch:
            raise ValueError(
                f"minibatch_size ({size}) must be at most train_batch_size_per_learner ({batch}): an update splits the "
                "train batch into minibatches"
            )
        if self.batch_mode == "truncate_episodes" and not self.use_gae and not self.in_evaluation:
            raise ValueError(
                "use_gae=False needs whole episodes: set config.env_runners(batch_mode='complete_episodes')"
            )
        Scheduler.validate(
            fixed_value_or_schedule=self.entropy_coeff,
            setting_name="entropy_coeff",
            description="entropy coefficient",
        )

    @property
    def _model_config_auto_includes(self) -> dict[str, Any]:
        return super()._model_config_auto_includes | {"vf_share_layers": False}


class PPO(Algorithm):
    """Samples a train batch, learns from it for some epochs and sends the weights to the environment runners."""

    @classmethod
    def get_default_config(cls) -> PPOConfig:
        """The defaults."""
        return PPOConfig()

    def training_step(self) -> None:
        """One iteration."""
        config = self.config
        with self.metrics.log_time((TIMERS, ENV_RUNNER_SAMPLING_TIMER)):
            collected = collected_rollouts(self.env_runner_group, config)
            if not collected.env_steps:
                return  # no runner answered in time
            self.metrics.aggregate(collected.metrics, key=ENV_RUNNER_RESULTS)

        with self.metrics.log_time((TIMERS, LEARNER_UPDATE_TIMER)):
            trained = (LEARNER_RESULTS, ALL_MODULES, NUM_MODULE_STEPS_TRAINED_LIFETIME)
            results = self.learner_group.update(
                **collected.data(config),
                timesteps={
                    NUM_ENV_STEPS_SAMPLED_LIFETIME: self.metrics.peek(
                        (ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME), default=0
                    ),
                    NUM_MODULE_STEPS_TRAINED_LIFETIME: self.metrics.peek(trained, default=0),
                },
                num_epochs=config.num_epochs,
                minibatch_size=config.minibatch_size,
                shuffle_batch_per_epoch=config.shuffle_batch_per_epoch,
            )
            self.metrics.aggregate(results, key=LEARNER_RESULTS)
            age = self.env_runner_group.weights_seq - float(np.mean(collected.weights_seqs))
            log_updates_ahead(self.metrics, results, age + 1)

        with self.metrics.log_time((TIMERS, SYNCH_WORKER_WEIGHTS_TIMER)):
            updated = {module_id for result in results for module_id in result} - {ALL_MODULES}
            self.env_runner_group.sync_weights(
                from_worker_or_learner_group=self.learner_group, policies=updated, inference_only=True
            )
