"""Names of TQC's results: those of SAC."""

from __future__ import annotations

from runtime.rllib.algorithms.sac.sac_learner import QF_LOSS_KEY as QF_LOSS_KEY
from runtime.rllib.algorithms.sac.sac_learner import QF_MAX_KEY as QF_MAX_KEY
from runtime.rllib.algorithms.sac.sac_learner import QF_MEAN_KEY as QF_MEAN_KEY
from runtime.rllib.algorithms.sac.sac_learner import QF_MIN_KEY as QF_MIN_KEY
from runtime.rllib.algorithms.sac.sac_learner import QF_PREDS as QF_PREDS
from runtime.rllib.algorithms.sac.sac_learner import TD_ERROR_MEAN_KEY as TD_ERROR_MEAN_KEY
from runtime.rllib.algorithms.sac.sac_learner import SACLearner as TQCLearner

__all__ = ["TQCLearner"]
