"""Complete specifications of modules, from settings and spaces."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from runtime.rllib._core.types import DEFAULT_MODULE_ID, Config, ModuleID
from runtime.rllib.policy.policy import PolicySpec

Spaces = dict[str, Any]


def with_spaces(
    config: Config, policies: dict[ModuleID, PolicySpec], env: Any, spaces: Spaces | None
) -> dict[ModuleID, PolicySpec]:
    """The policies with their spaces. Each comes from the first of these that has it: the policy itself, `spaces`, the
    agents that are mapped to it, the config.

    Raises:
        ValueError: none has it.
    """
    result = {}
    for module_id, policy in policies.items():
        observation, action = policy.observation_space, policy.action_space
        for found in (
            (spaces or {}).get(module_id),
            _spaces_of_agents(config, module_id, env, spaces),
            (config.observation_space, config.action_space),
        ):
            if found is not None:
                observation = observation if observation is not None else found[0]
                action = action if action is not None else found[1]
        given = _given(config, module_id)
        if given is not None:
            observation = observation if observation is not None else given.observation_space
            action = action if action is not None else given.action_space
        if observation is None or action is None:
            missing = "observation" if observation is None else "action"
            per_module = f"multi_agent(policies={{{module_id!r}: PolicySpec({missing}_space=...)}})"
            raise ValueError(
                f"The {missing} space of module {module_id!r} is not known. Give it with config.environment("
                f"{missing}_space=...), or with {per_module}, or have the policy_mapping_fn map an agent of the "
                "environment to it."
            )
        result[module_id] = dataclasses.replace(policy, observation_space=observation, action_space=action)
    return result


def _given(config: Config, module_id: ModuleID) -> Any:
    spec = config._rl_module_spec
    specs = getattr(spec, "rl_module_specs", None)
    return spec if specs is None else specs.get(module_id)


def _spaces_of_agents(config: Config, module_id: ModuleID, env: Any, spaces: Spaces | None) -> Any:
    """The spaces of the first agent that is mapped to the module; of a single agent the environment's."""
    if env is None:
        return (spaces or {}).get("__env_single__") if module_id == DEFAULT_MODULE_ID else None
    single = getattr(env, "single_observation_space", None)
    if single is not None and not config.is_multi_agent:
        return single, env.single_action_space
    env = getattr(env, "unwrapped", env)
    agents = list(getattr(env, "possible_agents", None) or ())
    if not agents:
        known = hasattr(env, "observation_space")
        return (env.observation_space, env.action_space) if known else None
    pairs = [(env.get_observation_space(agent_id), env.get_action_space(agent_id)) for agent_id in agents]
    if all(
        pair == pairs[0] for pair in pairs
    ):  # the mapping need not be asked: it may want a running episode
        return pairs[0]
    for agent_id, pair in zip(agents, pairs, strict=True):
        if config.policy_mapping_fn(agent_id, None) == module_id:
            return pair
    return None


def single_spec(config: Config, env: Any, spaces: Spaces | None, inference_only: bool | None) -> Any:
    """See `AlgorithmConfig.get_rl_module_spec`."""
    from runtime.rllib.core.rl_module.rl_module import RLModuleSpec

    spec = config.rl_module_spec
    if not isinstance(spec, RLModuleSpec):
        spec = spec[DEFAULT_MODULE_ID]
    policies = with_spaces(config, {DEFAULT_MODULE_ID: PolicySpec()}, env, spaces)
    default = config.get_default_rl_module_spec()
    return _filled(config, spec, default, policies[DEFAULT_MODULE_ID], DEFAULT_MODULE_ID, inference_only)


def multi_spec(
    config: Config,
    env: Any,
    spaces: Spaces | None,
    inference_only: bool | None,
    policy_dict: Any,
    single_agent_spec: Any,
) -> Any:
    """See `AlgorithmConfig.get_multi_rl_module_spec`."""
    from runtime.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec

    policies, _ = config.get_multi_agent_setup(policies=policy_dict, env=env, spaces=spaces)
    default = single_agent_spec if single_agent_spec is not None else config.get_default_rl_module_spec()
    given = config._rl_module_spec if single_agent_spec is None else single_agent_spec
    if isinstance(given, MultiRLModuleSpec):
        result = copy.copy(given)
    elif given is None and isinstance(default, MultiRLModuleSpec):
        result = copy.copy(default)
    else:
        result = MultiRLModuleSpec(rl_module_specs={}, inference_only=False)
    specs = dict(result.rl_module_specs or {})
    for module_id, policy in policies.items():
        spec = (
            specs.get(module_id) or (given if not isinstance(given, MultiRLModuleSpec) else None) or default
        )
        if isinstance(spec, MultiRLModuleSpec):
            spec = spec[module_id]
        specs[module_id] = _filled(config, spec, default, policy, module_id, inference_only)
    for module_id in specs.keys() - policies.keys():
        # Parts that no agent uses by itself, such as a shared encoder or a model of the environment.
        first = next(iter(policies.values()))
        specs[module_id] = _filled(config, specs[module_id], None, first, module_id, inference_only)
    if inference_only:
        specs = {module_id: spec for module_id, spec in specs.items() if not spec.learner_only}
    result.rl_module_specs = specs
    if inference_only is not None:
        result.inference_only = inference_only
    return result


def _filled(
    config: Config,
    spec: Any,
    default: Any,
    policy: PolicySpec,
    module_id: ModuleID,
    inference_only: bool | None,
) -> Any:
    """A copy of a specification of one module, whose open fields are filled in."""
    spec = copy.copy(spec)
    if default is not None:
        fallback = getattr(default, "rl_module_specs", None)
        fallback = default if fallback is None else fallback.get(module_id)
        if spec.module_class is None and fallback is not None:
            spec.module_class = fallback.module_class
        if spec.catalog_class is None and fallback is not None:
            spec.catalog_class = fallback.catalog_class
    if spec.observation_space is None:
        spec.observation_space = policy.observation_space
    if spec.action_space is None:
        spec.action_space = policy.action_space
    if not spec.model_config:
        spec.model_config = config.get_config_for_module(module_id).model_config
    if inference_only is not None:
        spec.inference_only = inference_only
    return spec
