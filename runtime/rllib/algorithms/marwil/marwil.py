"""MARWIL: imitation weighted by how much better than average an action was.

Wang et al., "Exponentially Weighted Imitation Learning for Batched Historical Data", NeurIPS 2018.
"""

from __future__ import annotations

from typing import Any, Self

from runtime.rllib.algorithms._algorithm.offline import (
    OfflineTraining,
    offline_learner_connector,
    validate_offline,
)
from runtime.rllib.algorithms._config.settings import NotProvided, setter
from runtime.rllib.algorithms.algorithm import Algorithm
from runtime.rllib.algorithms.algorithm_config import AlgorithmConfig
from runtime.rllib.core.columns import Columns

__all__ = ["MARWIL", "MARWILConfig"]


class MARWILConfig(AlgorithmConfig):
    """The settings of `MARWIL`.

    Value targets are computed over whole episodes of the data: discounted returns with `lambda_=1.0`, with the value
    of the final observation where an episode was cut.
    """

    offline_columns: tuple[str, ...] = (
        Columns.OBS,
        Columns.ACTIONS,
        Columns.REWARDS,
    )  # that the data must have
    trains_on_segments = True  # of episodes, not on single rows
    _largest_beta = 1.0
    updates_batch_by_batch = False  # one update call takes several train batches

    def __init__(self, algo_class: Any = None) -> None:
        super().__init__(algo_class=algo_class or MARWIL)
        self._is_online = False
        self.beta = 1.0
        self.bc_logstd_coeff = 0.0
        self.moving_average_sqd_adv_norm_update_rate = 1e-8
        self.moving_average_sqd_adv_norm_start = 100.0
        self.vf_coeff = 1.0
        self.burnin_len = 0
        self.grad_clip = None
        self.postprocess_inputs = True
        self.lr = 1e-4
        self.lambda_ = 1.0
        self.train_batch_size = 2000
        self.materialize_data = True
        self.materialize_mapped_data = False

    @setter
    def training(
        self,
        *,
        beta: float = NotProvided,
        bc_logstd_coeff: float = NotProvided,
        moving_average_sqd_adv_norm_update_rate: float = NotProvided,
        moving_average_sqd_adv_norm_start: float = NotProvided,
        vf_coeff: float = NotProvided,
        grad_clip: float | None = NotProvided,
        burnin_len: int = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """The settings of training.

        Args:
            beta: how strongly advantages weigh actions; with 0.0 this is behaviour cloning.
            bc_logstd_coeff: weight of the action distribution's log standard deviation, which keeps it wide.
            moving_average_sqd_adv_norm_update_rate: of the moving average of squared advantages that scales them.
            moving_average_sqd_adv_norm_start: its first value.
            vf_coeff: weight of the value function's loss.
            grad_clip: the most that the gradients' norm may be; None does not clip.
            burnin_len: steps at the beginning of each sequence of a recurrent module that give no loss.
            kwargs: see `AlgorithmConfig.training`.
        """
        super().training(grad_clip=grad_clip, **kwargs)
        return self.apply(
            beta=beta,
            bc_logstd_coeff=bc_logstd_coeff,
            moving_average_sqd_adv_norm_update_rate=moving_average_sqd_adv_norm_update_rate,
            moving_average_sqd_adv_norm_start=moving_average_sqd_adv_norm_start,
            vf_coeff=vf_coeff,
            burnin_len=burnin_len,
        )

    def get_default_rl_module_spec(self) -> Any:
        """An actor-critic module, as PPO has."""
        from runtime.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
        from runtime.rllib.core.rl_module.rl_module import RLModuleSpec

        return RLModuleSpec(module_class=DefaultPPOTorchRLModule)

    def get_default_learner_class(self) -> type:
        """The learner with MARWIL's loss."""
        from runtime.rllib.algorithms.marwil.torch.marwil_torch_learner import MARWILTorchLearner

        return MARWILTorchLearner

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
        if not 0.0 <= self.beta <= self._largest_beta:
            self._value_error(f"beta must be between 0.0 and {self._largest_beta}, not {self.beta}.")
        if not self.postprocess_inputs and self.beta > 0.0:
            self._value_error(
                "MARWIL computes value targets from the data: postprocess_inputs cannot be False. With beta=0.0, or "
                "with BC, no targets are needed."
            )

    @property
    def _model_config_auto_includes(self) -> dict[str, Any]:
        return super()._model_config_auto_includes | {"vf_share_layers": False}


class MARWIL(OfflineTraining, Algorithm):
    """Trains a policy on offline data; see `MARWILConfig`."""

    @classmethod
    def get_default_config(cls) -> MARWILConfig:
        """The defaults."""
        return MARWILConfig()
