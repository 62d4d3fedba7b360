"""Pieces between environment and module."""

from __future__ import annotations

from ..common import (
    AddObservationsFromEpisodesToBatch,
    AddStatesFromEpisodesToBatch,
    AddTimeDimToBatchAndZeroPad,
    AgentToModuleMapping,
    BatchIndividualItems,
    NumpyToTensor,
)
from .env_to_module_pipeline import EnvToModulePipeline
from .flatten_observations import FlattenObservations
from .frame_stacking import FrameStackingEnvToModule
from .mean_std_filter import MeanStdFilter
from .observation_preprocessor import MultiAgentObservationPreprocessor, SingleAgentObservationPreprocessor
from .prev_actions_prev_rewards import PrevActionsPrevRewards
from .write_observations_to_episodes import WriteObservationsToEpisodes

__all__ = [
    "AddObservationsFromEpisodesToBatch",
    "AddStatesFromEpisodesToBatch",
    "AddTimeDimToBatchAndZeroPad",
    "AgentToModuleMapping",
    "BatchIndividualItems",
    "EnvToModulePipeline",
    "FlattenObservations",
    "FrameStackingEnvToModule",
    "MeanStdFilter",
    "MultiAgentObservationPreprocessor",
    "NumpyToTensor",
    "PrevActionsPrevRewards",
    "SingleAgentObservationPreprocessor",
    "WriteObservationsToEpisodes",
]
