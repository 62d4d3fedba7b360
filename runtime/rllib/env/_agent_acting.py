"""Modules that act for any number of agents at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._core.agents import batch_of
from .._core.trees import Tree
from .._core.types import AgentID, Config, ModuleID
from ..core.columns import Columns
from ..core.rl_module.multi_rl_module import MultiRLModule
from ..utils.spaces.space_utils import normalize_action
from ._acting import Acting, action_converter, start_adder


class ModuleActing(Acting):
    """A module that acts for any number of agents at a time; the agents keep its recurrent states."""

    def __init__(
        self,
        module: Any,
        rng: np.random.Generator,
        config: Config,
        action_space: Any,
        within: tuple[Any, ModuleID] | None = None,
    ) -> None:
        """
        Args:
            module: an `RLModule`.
            rng: draws discrete actions.
            config: says how actions are made fit for the environment.
            action_space: of one agent.
            within: the `MultiRLModule` that calls the module, and its id in there. None: it is called directly.
        """
        super().__init__(module, 1, rng)
        self.module = module
        self._within = within
        self._for_env = action_converter(
            action_space, unsquash=config.normalize_actions, clip=config.clip_actions
        )

    def act_for(
        self, observations: Tree, states: list[Any], explore: bool, timestep: int
    ) -> tuple[dict[str, Any], Any]:
        """Columns of the rows, and the actions for the environments.

        Args:
            observations: arrays [agents, ...].
            states: of each agent, if the module is recurrent.
            explore, timestep: see `Acting.act`.
        """
        count = len(states)
        if len(self._lanes) != count:
            self._lanes = np.arange(count)
        if self.initial_state is not None:
            self.state = batch_of(states)
        columns, actions = self.act(observations, explore, timestep)
        if actions is None:
            actions = columns[Columns.ACTIONS]
            if self._for_env is not None:
                actions = self._for_env(actions)
        return columns, actions

    def _forward(self, batch: dict[str, Any], explore: bool, timestep: int) -> dict[str, Any]:
        if self._within is None:
            return super()._forward(batch, explore, timestep)
        modules, module_id = self._within
        parts = {module_id: batch}
        outputs = (
            modules.forward_exploration(parts, t=timestep) if explore else modules.forward_inference(parts)
        )
        result: dict[str, Any] = outputs[module_id]
        return result


def _calls_modules_its_own_way(modules: Any) -> bool:
    """Whether a `MultiRLModule` has forward methods of its own, such as those that share an encoder."""
    names = ("_forward_inference", "_forward_exploration")
    return any(getattr(type(modules), name) is not getattr(MultiRLModule, name) for name in names)


class Actors:
    """What acts for the agents of a runner, by module.

    A module may be replaced, or come later: it is looked up each time.
    """

    def __init__(
        self, modules: Any, rng: np.random.Generator, config: Config, action_space: Callable[[AgentID], Any]
    ) -> None:
        """
        Args:
            modules: a `MultiRLModule`, or None for random actions.
            rng: draws discrete actions.
            config: see `ModuleActing`.
            action_space: of an agent.
        """
        self._modules, self._rng, self._config, self._action_space = modules, rng, config, action_space
        self._acting: dict[ModuleID, ModuleActing] = {}
        self._calls_together = modules is not None and _calls_modules_its_own_way(modules)
        self._shifts: dict[AgentID, Callable[[Tree, int], Tree] | None] = {}

    def of(self, module_id: ModuleID, agent_id: AgentID) -> ModuleActing | None:
        """The acting module; None if there are no modules.

        Raises:
            ValueError: there are modules, but none of this id.
        """
        if self._modules is None:
            return None
        acting = self._acting.get(module_id)
        module = self._modules.get(module_id)
        if module is None:
            raise ValueError(
                f"policy_mapping_fn maps agent {agent_id!r} to module {module_id!r}, which does not exist; there are "
                f"{sorted(self._modules.keys())}"
            )
        if acting is None or acting.module is not module:
            space = self._action_space(agent_id)
            within = (self._modules, module_id) if self._calls_together else None
            acting = self._acting[module_id] = ModuleActing(module, self._rng, self._config, space, within)
        return acting

    def act(
        self,
        module_id: ModuleID,
        agent_ids: list[AgentID],
        observations: Tree,
        states: list[Any],
        *,
        explore: bool,
        random_actions: bool,
        timestep: int,
    ) -> tuple[dict[str, Any], Any]:
        """One inference for all agents of a module; see `ModuleActing.act_for`.

        Raises:
            ValueError: there are no modules, and actions are not to be random.
        """
        if random_actions:
            spaces = [self._action_space(agent_id) for agent_id in agent_ids]
            actions = batch_of([space.sample() for space in spaces])
            shift = start_adder(spaces[0])
            given = actions if shift is None else shift(actions, -1)
            if self._config.normalize_actions:
                given = normalize_action(given, spaces[0])
            return {Columns.ACTIONS: given}, actions
        acting = self.of(module_id, agent_ids[0])
        if acting is None:
            raise ValueError("The environment runner has no module: it can only act randomly")
        return acting.act_for(observations, states, explore, timestep)

    def from_first(self, agent_id: AgentID, action: Any) -> Any:
        """An action for the environment, where discrete actions begin with the first number of their space; a module's
        begin with 0."""
        if agent_id not in self._shifts:
            self._shifts[agent_id] = start_adder(self._action_space(agent_id))
        shift = self._shifts[agent_id]
        return action if shift is None else shift(action, 1)
