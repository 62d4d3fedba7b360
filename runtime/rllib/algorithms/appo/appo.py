"""Asynchronous PPO: IMPALA's course with PPO's clipped loss (IMPACT: Luo et al., 2020, https://arxiv.org/abs/1912.00167)."""

from __future__ import annotations

from typing import Any, Self

from ...core.rl_module.rl_module import RLModuleSpec
from .._config.settings import NotProvided, setter
from ..impala.impala import IMPALA, IMPALAConfig
from .results import (
    LEARNER_RESULTS_CURR_KL_COEFF_KEY,
    LEARNER_RESULTS_KL_KEY,
    LEARNER_RESULTS_MEAN_IS_KEY,
    LEARNER_RESULTS_VAR_IS_KEY,
)

__all__ = [
    "APPO",
    "LEARNER_RESULTS_CURR_KL_COEFF_KEY",
    "LEARNER_RESULTS_KL_KEY",
    "LEARNER_RESULTS_MEAN_IS_KEY",
    "LEARNER_RESULTS_VAR_IS_KEY",
    "APPOConfig",
]


class APPOConfig(IMPALAConfig):
    """Settings of APPO; `build_algo()` makes the algorithm."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or APPO)
        self.use_gae = True
        self.lambda_ = 1.0
        self.clip_param = 0.4
        self.use_kl_loss = False
        self.kl_coeff = 1.0
        self.kl_target = 0.01
        self.target_worker_clipping = 2.0
        self.target_network_update_freq: float = 2
        self.tau = 1.0
        self.use_circular_buffer = True
        self.circular_buffer_num_batches = 8
        self.circular_buffer_iterations_per_batch = 2
        self.simple_queue_size = 32

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """PPO's module with a target network."""
        from .torch.default_appo_torch_rl_module import DefaultAPPOTorchRLModule

        return RLModuleSpec(module_class=DefaultAPPOTorchRLModule)

    def get_default_learner_class(self) -> type:
        """The learner with APPO's loss."""
        from .torch.appo_torch_learner import APPOTorchLearner

        return APPOTorchLearner

    @setter
    def training(
        self,
        *,
        use_gae: bool = NotProvided,
        lambda_: float = NotProvided,
        clip_param: float = NotProvided,
        use_kl_loss: bool = NotProvided,
        kl_coeff: float = NotProvided,
        kl_target: float = NotProvided,
        target_network_update_freq: float = NotProvided,
        tau: float = NotProvided,
        target_worker_clipping: float = NotProvided,
        use_circular_buffer: bool = NotProvided,
        circular_buffer_num_batches: int = NotProvided,
        circular_buffer_iterations_per_batch: int = NotProvided,
        simple_queue_size: int = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Settings of the loss and of the buffer.

        Args:
            use_gae: has no effect: advantages are V-trace's.
            lambda_: has no effect either.
            clip_param: how far the ratio of probabilities may move from 1 with gain.
            use_kl_loss: whether the KL divergence from the target network's policy is part of the loss.
            kl_coeff: its coefficient at first.
            kl_target: the coefficient grows above twice this divergence, and shrinks below half of it.
            target_network_update_freq: updates of the target network happen each so many times as
                `circular_buffer_num_batches * circular_buffer_iterations_per_batch` train batches have come. A batch
                counts once, however often the circular buffer gives it.
            tau: how far the target network moves towards the network then; 1: all the way.
            target_worker_clipping: bound of the sampling policy's ratio to the target network's policy.
            use_circular_buffer: whether batches are used several times.
            circular_buffer_num_batches: how many batches are kept; the oldest makes room.
            circular_buffer_iterations_per_batch: how many times a batch is used at most.
            simple_queue_size: has no effect: without a circular buffer each batch is used when it comes.
            kwargs: see `IMPALAConfig.training`.
        """
        super().training(**kwargs)
        self.warn_without_effect("advantages are V-trace's", use_gae=use_gae, lambda_=lambda_)
        self.warn_without_effect(
            "without a circular buffer each batch is used when it comes", simple_queue_size=simple_queue_size
        )
        return self.apply(
            use_gae=use_gae,
            lambda_=lambda_,
            clip_param=clip_param,
            use_kl_loss=use_kl_loss,
            kl_coeff=kl_coeff,
            kl_target=kl_target,
            target_network_update_freq=target_network_update_freq,
            tau=tau,
            target_worker_clipping=target_worker_clipping,
            use_circular_buffer=use_circular_buffer,
            circular_buffer_num_batches=circular_buffer_num_batches,
            circular_buffer_iterations_per_batch=circular_buffer_iterations_per_batch,
            simple_queue_size=simple_queue_size,
        )

    def validate(self) -> None:
        """Checks that the settings fit each other.

        Raises:
            ValueError: they do not.
        """
        super().validate()
        for name in ("circular_buffer_num_batches", "circular_buffer_iterations_per_batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    @property
    def _model_config_auto_includes(self) -> dict[str, Any]:
        return super()._model_config_auto_includes | {"vf_share_layers": False}


class APPO(IMPALA):
    """IMPALA's asynchronous training step with the learner of APPO."""

    @classmethod
    def get_default_config(cls) -> APPOConfig:
        """The defaults."""
        return APPOConfig()
