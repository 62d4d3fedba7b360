"""Names of SAC's columns and results, and the temperature that its learners share."""

from __future__ import annotations

import math
from typing import Any

from runtime.rllib._core.types import Config, ModuleID
from runtime.rllib.algorithms.dqn.dqn_learner import QF_LOSS_KEY as QF_LOSS_KEY
from runtime.rllib.algorithms.dqn.dqn_learner import QF_MAX_KEY as QF_MAX_KEY
from runtime.rllib.algorithms.dqn.dqn_learner import QF_MEAN_KEY as QF_MEAN_KEY
from runtime.rllib.algorithms.dqn.dqn_learner import QF_MIN_KEY as QF_MIN_KEY
from runtime.rllib.algorithms.dqn.dqn_learner import QF_PREDS as QF_PREDS
from runtime.rllib.algorithms.dqn.dqn_learner import TD_ERROR_MEAN_KEY as TD_ERROR_MEAN_KEY
from runtime.rllib.algorithms.dqn.dqn_learner import DQNLearner

LOGPS_KEY = "logps"
QF_TWIN_LOSS_KEY = "qf_twin_loss"
QF_TWIN_PREDS = "qf_twin_preds"
QF_TARGET_NEXT = "q_target_next"
Q_CURR = "q_curr"
LOGP_RESAMPLED = "logp_resampled"
LOGP_NEXT_RESAMPLED = "logp_next_resampled"
ACTION_DIST_INPUTS_NEXT = "action_dist_inputs_next"
ACTION_PROBS = "action_probs"
ACTION_PROBS_NEXT = "action_probs_next"
ACTION_LOG_PROBS = "action_log_probs"
ACTION_LOG_PROBS_NEXT = "action_log_probs_next"

AUTO_ENTROPY_SHARE = 0.98  # of the largest entropy of discrete actions (Christodoulou 2019)


class SACLearner(DQNLearner):
    """`curr_log_alpha` and `target_entropy` of each module.

    `target_entropy` "auto" (or None) is minus the number of action dimensions, or 98 % of the entropy of discrete
    actions that are drawn uniformly.
    """

    def build(self) -> None:
        """Builds the module, target networks, temperatures and optimizers."""
        self.curr_log_alpha: dict[ModuleID, Any] = {}
        self.target_entropy: dict[ModuleID, float] = {}
        super().build()

    def remove_module(self, module_id: ModuleID, **kwargs: Any) -> Any:
        """Removes a module and its temperature."""
        spec = super().remove_module(module_id, **kwargs)
        self.curr_log_alpha.pop(module_id, None)
        self.target_entropy.pop(module_id, None)
        return spec

    def _get_target_entropy(self, module_id: ModuleID, config: Config) -> float:
        if config.target_entropy not in (None, "auto"):
            return float(config.target_entropy)
        space = self.module[module_id].action_space
        if hasattr(space, "n"):
            return AUTO_ENTROPY_SHARE * math.log(int(space.n))
        return -float(math.prod(space.shape))
