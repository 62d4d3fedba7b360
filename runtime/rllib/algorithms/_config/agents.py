"""Settings of environments with several agents: which modules there are, and which agent uses which."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Self

from runtime.rllib._core.types import DEFAULT_MODULE_ID, AgentID, ModuleID
from runtime.rllib.algorithms._config.settings import NotProvided, Settings, setter
from runtime.rllib.policy.policy import PolicySpec


def map_to_default(agent_id: AgentID, episode: Any, *args: Any, **kwargs: Any) -> ModuleID:
    """The default `policy_mapping_fn`: all agents use one module."""
    return DEFAULT_MODULE_ID


class AgentSettings(Settings):
    """`multi_agent()`."""

    DEFAULT_AGENT_TO_MODULE_MAPPING_FN = DEFAULT_POLICY_MAPPING_FN = staticmethod(map_to_default)

    def _init_agents(self) -> None:
        self.policies: dict[ModuleID, PolicySpec] = {DEFAULT_MODULE_ID: PolicySpec()}
        self.policy_map_capacity = 100
        self.policy_mapping_fn: Callable[..., ModuleID] = map_to_default
        self.policies_to_train: Collection[ModuleID] | Callable[..., bool] | None = None
        self.policy_states_are_swappable = False
        self.observation_fn: Callable[..., Any] | None = None
        self.count_steps_by = "env_steps"

    @setter
    def multi_agent(
        self,
        *,
        policies: Any = NotProvided,
        policy_map_capacity: int = NotProvided,
        policy_mapping_fn: Callable[..., ModuleID] | None = NotProvided,
        policies_to_train: Collection[ModuleID] | Callable[..., bool] | None = NotProvided,
        policy_states_are_swappable: bool = NotProvided,
        observation_fn: Callable[..., Any] | None = NotProvided,
        count_steps_by: str = NotProvided,
        algorithm_config_overrides_per_module: dict[str, Any] = NotProvided,
    ) -> Self:
        """Which modules there are, and which agent uses which.

        Args:
            policies: module ids, or a dict: module id -> PolicySpec, None, or a tuple (None, observation space, action
                space, overrides).
            policy_map_capacity: accepted as Ray's: all modules stay in memory.
            policy_mapping_fn: function of (agent_id, episode) that returns a module id; called for an agent's first
                step of an episode.
            policies_to_train: ids of the modules that learn, or a function of a module id; None: all.
            policy_states_are_swappable: accepted as Ray's.
            observation_fn: of the old API stack; only None is accepted.
            count_steps_by: "env_steps" or "agent_steps": what a train batch's size counts.
            algorithm_config_overrides_per_module: see `rl_module`.

        Raises:
            TypeError: `policies` has another form.
            ValueError: an id cannot name a module, or a setting is of the old API stack.
        """
        if observation_fn is not NotProvided and observation_fn is not None:
            raise ValueError(
                "observation_fn belongs to the old API stack. Use env_runners(env_to_module_connector=...)."
            )
        if policies is not NotProvided:
            self.policies = policy_specs(policies)
        if count_steps_by is not NotProvided and count_steps_by not in ("env_steps", "agent_steps"):
            raise ValueError(f"count_steps_by must be 'env_steps' or 'agent_steps', not {count_steps_by!r}.")
        if policies_to_train is not NotProvided and not (
            policies_to_train is None
            or callable(policies_to_train)
            or (isinstance(policies_to_train, Collection) and not isinstance(policies_to_train, str))
        ):
            raise TypeError(
                f"policies_to_train must be a list of module ids, a function or None, not {policies_to_train!r}."
            )
        if policy_mapping_fn is not NotProvided:
            if policy_mapping_fn is None:
                policy_mapping_fn = map_to_default
            if not callable(policy_mapping_fn):
                raise TypeError(
                    f"policy_mapping_fn must be a function of (agent_id, episode), not {policy_mapping_fn!r}."
                )
        if algorithm_config_overrides_per_module is not NotProvided:
            raise ValueError(
                "multi_agent(algorithm_config_overrides_per_module=...) belongs to the old API stack. Use "
                "rl_module(algorithm_config_overrides_per_module=...)."
            )
        return self.apply(
            policy_map_capacity=policy_map_capacity,
            policy_mapping_fn=policy_mapping_fn,
            policies_to_train=policies_to_train,
            policy_states_are_swappable=policy_states_are_swappable,
            count_steps_by=count_steps_by,
        )

    @property
    def is_multi_agent(self) -> bool:
        """Whether there are modules other than the default one, or a mapping was given."""
        return len(self.policies) > 1 or DEFAULT_MODULE_ID not in self.policies

    def is_trained(self, module_id: ModuleID) -> bool:
        """Whether a module learns, by `policies_to_train`."""
        chosen = self.policies_to_train
        if chosen is None:
            return True
        if isinstance(chosen, Collection):
            return module_id in chosen
        return bool(chosen(module_id, None))


def policy_specs(policies: Any) -> dict[ModuleID, PolicySpec]:
    """Module id -> PolicySpec, from all forms that `multi_agent(policies=...)` takes.

    Raises:
        TypeError: another form.
        ValueError: an id cannot name a module, or there is none.
    """
    if isinstance(policies, str) or not isinstance(policies, Collection):
        raise TypeError(f"policies must be a collection of module ids or a dict, not {policies!r}.")
    given = policies if isinstance(policies, dict) else dict.fromkeys(policies)
    if not given:
        raise ValueError("policies is empty: there must be at least one module.")
    result = {}
    for module_id, spec in given.items():
        if not isinstance(module_id, str) or not module_id or "/" in module_id:
            raise ValueError(
                f"A module id must be a string without '/', not {module_id!r}: it names a folder."
            )
        if spec is None:
            spec = PolicySpec()
        elif isinstance(spec, list | tuple):
            spec = PolicySpec(*spec)
        elif not isinstance(spec, PolicySpec):
            raise TypeError(
                f"The value of policies[{module_id!r}] must be a PolicySpec or None, not {spec!r}."
            )
        result[module_id] = spec
    return result
