"""Connector pipelines from settings: the pieces that the user gave, among the default ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from runtime.rllib._core.types import Config


def env_to_module(config: Config, env: Any, spaces: Any, device: Any) -> Any:
    """See `AlgorithmConfig.build_env_to_module_connector`."""
    from runtime.rllib.connectors.common.add_observations_from_episodes_to_batch import (
        AddObservationsFromEpisodesToBatch,
    )
    from runtime.rllib.connectors.common.add_states_from_episodes_to_batch import AddStatesFromEpisodesToBatch
    from runtime.rllib.connectors.common.add_time_dim_to_batch_and_zero_pad import AddTimeDimToBatchAndZeroPad
    from runtime.rllib.connectors.common.agent_to_module_mapping import AgentToModuleMapping
    from runtime.rllib.connectors.common.batch_individual_items import BatchIndividualItems
    from runtime.rllib.connectors.common.numpy_to_tensor import NumpyToTensor
    from runtime.rllib.connectors.env_to_module.env_to_module_pipeline import EnvToModulePipeline

    observation, action = _env_spaces(config, env, spaces)
    pipeline = EnvToModulePipeline(
        input_observation_space=observation,
        input_action_space=action,
        connectors=_given(config.env_to_module_connector, env=env, spaces=spaces, device=device),
    )
    if config.add_default_connectors_to_env_to_module_pipeline:
        pipeline.append(AddObservationsFromEpisodesToBatch())
        pipeline.append(AddTimeDimToBatchAndZeroPad())
        pipeline.append(AddStatesFromEpisodesToBatch())
        if config.is_multi_agent:
            pipeline.append(
                AgentToModuleMapping(
                    rl_module_specs=_specs(config), agent_to_module_mapping_fn=config.policy_mapping_fn
                )
            )
        pipeline.append(BatchIndividualItems(multi_agent=config.is_multi_agent))
        pipeline.append(NumpyToTensor(device=device))
    return pipeline


def module_to_env(config: Config, env: Any, spaces: Any) -> Any:
    """See `AlgorithmConfig.build_module_to_env_connector`."""
    from runtime.rllib.connectors.common.module_to_agent_unmapping import ModuleToAgentUnmapping
    from runtime.rllib.connectors.common.tensor_to_numpy import TensorToNumpy
    from runtime.rllib.connectors.module_to_env.get_actions import GetActions
    from runtime.rllib.connectors.module_to_env.listify_data_for_vector_env import ListifyDataForVectorEnv
    from runtime.rllib.connectors.module_to_env.module_to_env_pipeline import ModuleToEnvPipeline
    from runtime.rllib.connectors.module_to_env.normalize_and_clip_actions import NormalizeAndClipActions
    from runtime.rllib.connectors.module_to_env.remove_single_ts_time_rank_from_batch import (
        RemoveSingleTsTimeRankFromBatch,
    )
    from runtime.rllib.connectors.module_to_env.unbatch_to_individual_items import UnBatchToIndividualItems

    observation, action = _env_spaces(config, env, spaces)
    given = _given(config.module_to_env_connector, env=env, spaces=spaces, device=None)
    if not config.add_default_connectors_to_module_to_env_pipeline:
        connectors = given
    else:
        connectors = [
            GetActions(),
            TensorToNumpy(),
            UnBatchToIndividualItems(),
            *([ModuleToAgentUnmapping()] if config.is_multi_agent else []),
            RemoveSingleTsTimeRankFromBatch(),
            *given,
            NormalizeAndClipActions(
                normalize_actions=config.normalize_actions, clip_actions=config.clip_actions
            ),
            ListifyDataForVectorEnv(),
        ]
    return ModuleToEnvPipeline(
        input_observation_space=observation, input_action_space=action, connectors=connectors
    )


def learner(config: Config, observation_space: Any, action_space: Any, device: Any) -> Any:
    """See `AlgorithmConfig.build_learner_connector`."""
    from runtime.rllib.connectors.common.add_observations_from_episodes_to_batch import (
        AddObservationsFromEpisodesToBatch,
    )
    from runtime.rllib.connectors.common.add_states_from_episodes_to_batch import AddStatesFromEpisodesToBatch
    from runtime.rllib.connectors.common.add_time_dim_to_batch_and_zero_pad import AddTimeDimToBatchAndZeroPad
    from runtime.rllib.connectors.common.agent_to_module_mapping import AgentToModuleMapping
    from runtime.rllib.connectors.common.batch_individual_items import BatchIndividualItems
    from runtime.rllib.connectors.common.numpy_to_tensor import NumpyToTensor
    from runtime.rllib.connectors.learner.add_columns_from_episodes_to_train_batch import (
        AddColumnsFromEpisodesToTrainBatch,
    )
    from runtime.rllib.connectors.learner.learner_connector_pipeline import LearnerConnectorPipeline

    pipeline = LearnerConnectorPipeline(
        input_observation_space=observation_space,
        input_action_space=action_space,
        connectors=_given(
            config.learner_connector,
            input_observation_space=observation_space,
            input_action_space=action_space,
            device=device,
        ),
    )
    if config.add_default_connectors_to_learner_pipeline:
        pipeline.append(AddObservationsFromEpisodesToBatch(as_learner_connector=True))
        pipeline.append(AddColumnsFromEpisodesToTrainBatch())
        pipeline.append(AddTimeDimToBatchAndZeroPad(as_learner_connector=True))
        pipeline.append(AddStatesFromEpisodesToBatch(as_learner_connector=True))
        if config.is_multi_agent:
            pipeline.append(
                AgentToModuleMapping(
                    rl_module_specs=_specs(config),
                    agent_to_module_mapping_fn=config.policy_mapping_fn,
                    as_learner_connector=True,
                )
            )
        pipeline.append(BatchIndividualItems(multi_agent=config.is_multi_agent))
        pipeline.append(NumpyToTensor(as_learner_connector=True, device=device))
    return pipeline


def _given(function: Callable[..., Any] | None, **arguments: Any) -> list[Any]:
    """The pieces that a user's function returns. It may take fewer arguments than there are.

    Raises:
        TypeError: it returns something else.
    """
    if function is None:
        return []
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        found = function(*arguments.values())
    else:
        if any(each.kind is each.VAR_POSITIONAL for each in parameters):
            count = len(arguments)
        else:
            kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            count = sum(each.kind in kinds for each in parameters)
        keywords = {e.name for e in parameters if e.kind is e.KEYWORD_ONLY} & arguments.keys()
        found = function(*list(arguments.values())[:count], **{name: arguments[name] for name in keywords})
    if found is None:
        return []
    pieces = list(found) if isinstance(found, list | tuple) else [found]
    for piece in pieces:
        if not callable(piece):
            raise TypeError(
                f"A function of connectors must return a ConnectorV2 or a list of them, not {piece!r}."
            )
    return pieces


def _env_spaces(config: Config, env: Any, spaces: Any) -> tuple[Any, Any]:
    """The spaces of one environment."""
    single = (spaces or {}).get("__env_single__")
    if env is not None:
        observation = getattr(env, "single_observation_space", None) or getattr(
            env, "observation_space", None
        )
        action = getattr(env, "single_action_space", None) or getattr(env, "action_space", None)
        if observation is None and hasattr(env, "unwrapped"):
            observation, action = env.unwrapped.observation_spaces, env.unwrapped.action_spaces
    elif single is not None:
        observation, action = single
    else:
        observation = action = None
    if observation is None:
        observation = config.observation_space
    if action is None:
        action = config.action_space
    return observation, action


def _specs(config: Config) -> Any:
    spec = config.rl_module_spec
    found = getattr(spec, "rl_module_specs", None)
    return found if found is not None else dict.fromkeys(config.policies, spec)
