"""Pieces before a learner's update."""

from __future__ import annotations

from ..common import (
    AddObservationsFromEpisodesToBatch,
    AddStatesFromEpisodesToBatch,
    AddTimeDimToBatchAndZeroPad,
    AgentToModuleMapping,
    BatchIndividualItems,
    NumpyToTensor,
)
from .add_columns_from_episodes_to_train_batch import AddColumnsFromEpisodesToTrainBatch
from .add_infos_from_episodes_to_train_batch import AddInfosFromEpisodesToTrainBatch
from .add_next_observations_from_episodes_to_train_batch import AddNextObservationsFromEpisodesToTrainBatch
from .add_one_ts_to_episodes_and_truncate import AddOneTsToEpisodesAndTruncate
from .compute_returns_to_go import ComputeReturnsToGo
from .frame_stacking import FrameStackingLearner
from .general_advantage_estimation import GeneralAdvantageEstimation
from .learner_connector_pipeline import LearnerConnectorPipeline

__all__ = [
    "AddColumnsFromEpisodesToTrainBatch",
    "AddInfosFromEpisodesToTrainBatch",
    "AddNextObservationsFromEpisodesToTrainBatch",
    "AddObservationsFromEpisodesToBatch",
    "AddOneTsToEpisodesAndTruncate",
    "AddStatesFromEpisodesToBatch",
    "AddTimeDimToBatchAndZeroPad",
    "AgentToModuleMapping",
    "BatchIndividualItems",
    "ComputeReturnsToGo",
    "FrameStackingLearner",
    "GeneralAdvantageEstimation",
    "LearnerConnectorPipeline",
    "NumpyToTensor",
]
