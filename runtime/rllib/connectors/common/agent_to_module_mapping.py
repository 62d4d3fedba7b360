"""Default piece of multi-agent pipelines: from agents to modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from gymnasium import spaces

from runtime.rllib.core.columns import Columns

from ..connector_v2 import Batch, ConnectorV2


class AgentToModuleMapping(ConnectorV2):
    """Orders a batch by module: module -> column -> list of items, from column -> episode, agent and module -> list.

    Args:
        rl_module_specs: The modules' specifications by id, or just their ids.
        agent_to_module_mapping_fn: `f(agent id, episode)` gives a module id. It is used to find spaces for modules.
        as_learner_connector: Whether the piece is in a learner pipeline. In others, agents that need not act are left
            out.
    """

    is_default_piece: ClassVar[bool] = True

    def __init__(
        self,
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        rl_module_specs: Any,
        agent_to_module_mapping_fn: Callable[..., Any] | None,
        as_learner_connector: bool = False,
    ) -> None:
        self._specs = rl_module_specs
        self._mapping_fn = agent_to_module_mapping_fn
        self._as_learner_connector = as_learner_connector
        super().__init__(input_observation_space, input_action_space)

    def recompute_output_observation_space(
        self, input_observation_space: Any, input_action_space: Any
    ) -> Any:
        return self._by_module(input_observation_space, "observation_space")

    def recompute_output_action_space(self, input_observation_space: Any, input_action_space: Any) -> Any:
        return self._by_module(input_action_space, "action_space")

    def _by_module(self, space: Any, which: str) -> Any:
        """Dict space of modules, from one of agents."""
        if set(self._specs) == set(space.spaces):
            return space
        agents = dict(space.spaces)
        result: dict[str, Any] = {}
        for module_id in self._specs:
            spec = self._specs[module_id] if isinstance(self._specs, dict) else None
            given = getattr(spec, which, None)
            if given is not None:
                result[module_id] = given
                continue
            distinct = list(agents.values())
            if any(other != distinct[0] for other in distinct[1:]):
                mapping = self._mapping_fn
                distinct = [
                    below for agent, below in agents.items() if mapping and mapping(agent, None) == module_id
                ]
            if not distinct:
                raise ValueError(
                    f"There is no {which} for module {module_id!r}: no agent maps to it. Give it one with "
                    "config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={"
                    f"{module_id!r}: RLModuleSpec({which}=...)}}))"
                )
            if any(other != distinct[0] for other in distinct[1:]):
                raise ValueError(
                    f"Agents with different {which}s map to module {module_id!r}; map them to different ones"
                )
            result[module_id] = distinct[0]
        return spaces.Dict(result)

    def __call__(
        self,
        *,
        rl_module: Any,
        batch: Batch,
        episodes: list[Any],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        metrics: Any = None,
        **kwargs: Any,
    ) -> Batch:
        acting = None
        if not self._as_learner_connector:
            acting = {(episode.id_, agent) for episode in episodes for agent in episode.get_agents_to_act()}
        # For UnBatchToIndividualItems, from one column that has all agents.
        order: dict[str, list[tuple[Any, Any]]] = {}
        column_of_order = Columns.OBS if Columns.OBS in batch else next(iter(batch), None)
        by_module: dict[str, dict[str, Any]] = {}
        for column, data in batch.items():
            if rl_module is not None and column in rl_module:  # already ordered by module
                by_module.setdefault(column, {}).update(data)
                continue
            for (episode_id, agent, module_id), items in data.items():
                if acting is not None and (episode_id, agent) not in acting:
                    continue
                if column == column_of_order:
                    order.setdefault(module_id, []).append((episode_id, agent))
                by_module.setdefault(module_id, {}).setdefault(column, []).extend(items)
        if shared_data is not None:
            shared_data["memorized_map_structure"] = order
        return by_module
