"""Default piece: from a module's actions to those that the environment takes."""

from __future__ import annotations

from typing import Any

from runtime.rllib._core.trees import Tree
from runtime.rllib.core.columns import Columns
from runtime.rllib.utils.spaces.space_utils import clip_action, unsquash_action

from ..connector_v2 import Batch, ConnectorV2


class NormalizeAndClipActions(ConnectorV2):
    """Adds "actions_for_env": actions of Box spaces, brought into the bounds of the space.

    Args:
        normalize_actions: Whether to map [-1, 1] to the bounds, where both exist, and to clip there.
        clip_actions: Whether to clip at the bounds, if `normalize_actions` is False.
    """

    def __init__(
        self,
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        normalize_actions: bool,
        clip_actions: bool,
        **kwargs: Any,
    ) -> None:
        self.normalize_actions = normalize_actions
        self.clip_actions = clip_actions
        super().__init__(input_observation_space, input_action_space, **kwargs)

    def _for_env(self, space: Any, actions: Tree) -> Tree:
        if self.normalize_actions:
            return unsquash_action(actions, space)
        return clip_action(actions, space)

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
        if not (self.normalize_actions or self.clip_actions):
            return batch

        def for_env(action: Any, _episode: Any, agent: Any, _module: Any) -> Any:
            space = self.input_action_space if agent is None else self.input_action_space[agent]
            return self._for_env(space, action)

        actions = batch[Columns.ACTIONS]
        if isinstance(actions, dict):
            batch[Columns.ACTIONS_FOR_ENV] = {key: list(items) for key, items in actions.items()}
        else:
            batch[Columns.ACTIONS_FOR_ENV] = list(actions)
        self.foreach_batch_item_change_in_place(batch, Columns.ACTIONS_FOR_ENV, for_env)
        return batch

    def on_vector_actions(self, actions: Tree) -> Tree:
        if not (self.normalize_actions or self.clip_actions):
            return actions
        return self._for_env(self.input_action_space, actions)
