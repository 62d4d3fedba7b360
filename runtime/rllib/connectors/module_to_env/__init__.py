"""Pieces between module and environment."""

from __future__ import annotations

from ..common.module_to_agent_unmapping import ModuleToAgentUnmapping
from ..common.tensor_to_numpy import TensorToNumpy
from .get_actions import GetActions
from .listify_data_for_vector_env import ListifyDataForVectorEnv
from .module_to_env_pipeline import ModuleToEnvPipeline
from .normalize_and_clip_actions import NormalizeAndClipActions
from .remove_single_ts_time_rank_from_batch import RemoveSingleTsTimeRankFromBatch
from .unbatch_to_individual_items import UnBatchToIndividualItems

__all__ = [
    "GetActions",
    "ListifyDataForVectorEnv",
    "ModuleToAgentUnmapping",
    "ModuleToEnvPipeline",
    "NormalizeAndClipActions",
    "RemoveSingleTsTimeRankFromBatch",
    "TensorToNumpy",
    "UnBatchToIndividualItems",
]
