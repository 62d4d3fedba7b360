"""Names for types in signatures of RLlib."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

TensorType = Any  # a NumPy array or a torch tensor
TensorStructType = Any  # a tensor, or dicts and tuples of them
TensorShape = tuple[int, ...] | list[int]
NetworkType = Any  # torch.nn.Module
DeviceType = Any  # a name, a number or a torch.device

StateDict = dict[str, Any]
RLModuleSpecType = Any  # RLModuleSpec or MultiRLModuleSpec
AlgorithmConfigDict = dict[str, Any]
PartialAlgorithmConfigDict = dict[str, Any]
ModelConfigDict = dict[str, Any]
ConvFilterSpec = Sequence[
    Sequence[Any]
]  # [channels, kernel, stride] or [channels, kernel, stride, padding] each

EnvConfigDict = dict[str, Any]
EnvID = int | str
EnvType = Any  # a gymnasium.Env or a MultiAgentEnv
EnvCreator = Callable[[Any], EnvType]
EnvObsType = Any
EnvActionType = Any
EnvInfoDict = dict[str, Any]
SpaceStruct = Any  # a space, or dicts and tuples of them

AgentID = Hashable
PolicyID = str
ModuleID = str
EpisodeID = int | str
EpisodeType = Any  # SingleAgentEpisode or MultiAgentEpisode
MultiAgentDict = dict[AgentID, Any]
MultiEnvDict = dict[EnvID, MultiAgentDict]
MultiAgentPolicyConfigDict = dict[PolicyID, Any]
AgentToModuleMappingFn = Callable[..., ModuleID]
IsPolicyToTrain = Callable[..., bool]
ShouldModuleBeUpdatedFn = Sequence[ModuleID] | Callable[..., bool]

Optimizer = Any  # torch.optim.Optimizer
LocalOptimizer = Optimizer
Param = Any  # torch.Tensor
ParamRef = Hashable
ParamDict = dict[ParamRef, Param]
ParamList = list[Param]
NamedParamDict = dict[str, Param]
LearningRateOrSchedule = Any  # a number, or a list of [time step, value]
ModelGradients = list[Any]
ModelWeights = dict[str, Any]

ResultDict = dict[str, Any]
SampleBatchType = Any  # SampleBatch, MultiAgentBatch or a dict of columns
EpisodesOrBatch = Any
FromConfigSpec = Any  # a class, its name, or a dict with "type"
