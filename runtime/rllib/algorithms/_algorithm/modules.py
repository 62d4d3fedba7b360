"""Changes of an algorithm's modules while it trains."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

from runtime.rllib._core.types import ModuleID
from runtime.rllib.utils.metrics import LEARNER_RESULTS


def found(algorithm: Any, module_id: ModuleID) -> Any:
    """See `Algorithm.get_module`."""
    runner = algorithm.env_runner or algorithm.eval_env_runner
    module = getattr(runner, "module", None)
    if module is None:
        learner = getattr(algorithm.learner_group, "_learner", None)
        module = getattr(learner, "module", None)
    if module is None:
        return None
    if hasattr(module, "keys"):
        return module[module_id].unwrapped() if module_id in module.keys() else None  # noqa: SIM118
    return module.unwrapped() if module_id in algorithm.config.policies else None


def load_states(learner_group: Any, spec: Any) -> None:
    """Loads the states that specifications name: of all modules, then of single ones.

    Raises:
        FileNotFoundError: there is no checkpoint.
    """
    whole = getattr(spec, "load_state_path", None)
    prefix = "learner/rl_module"
    if whole is not None:
        chosen = spec.modules_to_load
        if chosen is None:
            learner_group.restore_from_path(whole, component=prefix)
        for module_id in chosen or ():
            learner_group.restore_from_path(f"{whole}/{module_id}", component=f"{prefix}/{module_id}")
    for module_id, each in (spec.rl_module_specs or {}).items():
        if each.load_state_path is not None:
            learner_group.restore_from_path(each.load_state_path, component=f"{prefix}/{module_id}")


def add(
    algorithm: Any,
    module_id: ModuleID,
    module_spec: Any,
    config_overrides: dict[str, Any] | None,
    mapping_fn: Callable[..., ModuleID] | None,
    trained: Any,
    to_learners: bool,
    groups: Collection[Any],
) -> Any:
    """See `Algorithm.add_module`."""
    if not algorithm.config.is_multi_agent:
        raise ValueError(
            f"Module {module_id!r} cannot be added: the algorithm has a single agent. Build it with "
            "config.multi_agent(policies=..., policy_mapping_fn=...)."
        )
    if module_id in algorithm.config.policies:
        raise ValueError(f"The algorithm has a module {module_id!r}. Remove it first, or use another id.")
    spaces = _spaces(algorithm)
    change = _ConfigChange(module_id, module_spec, config_overrides, mapping_fn, trained, spaces)
    change.apply_to(algorithm)
    result = None
    if to_learners:
        result = algorithm.learner_group.add_module(
            module_id=module_id,
            module_spec=module_spec,
            config_overrides=config_overrides,
            new_should_module_be_updated=trained,
        )
        if module_spec.load_state_path is not None:
            algorithm.learner_group.restore_from_path(
                module_spec.load_state_path, component=f"learner/rl_module/{module_id}"
            )

    def add_to(runner: Any) -> Any:
        if runner.module is not None:
            runner.module.add_module(module_id, module_spec.build())
        change.apply_to(runner)
        return type(module_spec)

    for group in groups:
        if group is not None:
            group.foreach_env_runner(add_to)
            change.apply_to(group)
            if to_learners:
                group.sync_weights(
                    from_worker_or_learner_group=algorithm.learner_group,
                    policies=[module_id],
                    inference_only=True,
                )
    return result


def remove(
    algorithm: Any,
    module_id: ModuleID,
    mapping_fn: Callable[..., ModuleID] | None,
    trained: Any,
    from_learners: bool,
    groups: Collection[Any],
) -> Any:
    """See `Algorithm.remove_module`."""
    if module_id not in algorithm.config.policies:
        raise KeyError(
            f"The algorithm has no module {module_id!r}; it has {', '.join(sorted(algorithm.config.policies))}."
        )
    change = _ConfigChange(module_id, None, None, mapping_fn, trained, _spaces(algorithm))
    result = None
    if from_learners:
        result = algorithm.learner_group.remove_module(
            module_id=module_id, new_should_module_be_updated=trained
        )
    change.apply_to(algorithm)

    def remove_from(runner: Any) -> None:
        change.apply_to(runner)
        if runner.module is not None:
            runner.module.remove_module(module_id)

    for group in groups:
        if group is not None:
            group.foreach_env_runner(remove_from)
            change.apply_to(group)
    algorithm.metrics.delete(LEARNER_RESULTS, module_id, key_error=False)
    return result


def _spaces(algorithm: Any) -> dict[ModuleID, tuple[Any, Any]]:
    specs = algorithm._module_spec.rl_module_specs
    return {module_id: (spec.observation_space, spec.action_space) for module_id, spec in specs.items()}


class _ConfigChange:
    """What a new or removed module changes in the config of an algorithm, a group and its runners."""

    def __init__(
        self,
        module_id: ModuleID,
        module_spec: Any,
        overrides: dict[str, Any] | None,
        mapping_fn: Callable[..., ModuleID] | None,
        trained: Any,
        spaces: dict[ModuleID, tuple[Any, Any]],
    ) -> None:
        self._spaces = spaces
        self._module_id = module_id
        self._spec = module_spec
        self._overrides = overrides
        self._mapping_fn = mapping_fn
        self._trained = trained

    def apply_to(self, owner: Any) -> None:
        """Replaces `owner.config` by a changed copy."""
        config = owner.config.copy(copy_frozen=False)
        for module_id, (observation, action) in self._spaces.items():
            # A module that no agent uses any more keeps its spaces.
            if module_id in config.policies:
                config.policies[module_id] = dataclasses.replace(
                    config.policies[module_id], observation_space=observation, action_space=action
                )
        config.change_module(self._module_id, self._spec, self._overrides)
        if self._mapping_fn is not None:
            config.multi_agent(policy_mapping_fn=self._mapping_fn)
        if self._trained is not None:
            config.multi_agent(policies_to_train=self._trained)
        config.freeze()
        owner.config = config
