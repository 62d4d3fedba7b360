"""Pieces of env-to-module and of learner pipelines."""

from __future__ import annotations

from .add_observations_from_episodes_to_batch import AddObservationsFromEpisodesToBatch
from .add_states_from_episodes_to_batch import AddStatesFromEpisodesToBatch
from .add_time_dim_to_batch_and_zero_pad import AddTimeDimToBatchAndZeroPad
from .agent_to_module_mapping import AgentToModuleMapping
from .batch_individual_items import BatchIndividualItems
from .flatten_observations import FlattenObservations
from .frame_stacking import FrameStacking
from .module_to_agent_unmapping import ModuleToAgentUnmapping
from .numpy_to_tensor import NumpyToTensor
from .tensor_to_numpy import TensorToNumpy

__all__ = [
    "AddObservationsFromEpisodesToBatch",
    "AddStatesFromEpisodesToBatch",
    "AddTimeDimToBatchAndZeroPad",
    "AgentToModuleMapping",
    "BatchIndividualItems",
    "FlattenObservations",
    "FrameStacking",
    "ModuleToAgentUnmapping",
    "NumpyToTensor",
    "TensorToNumpy",
]
