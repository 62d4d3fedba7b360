"""The interface of a connector piece.

A piece is a callable that changes a batch, or the episodes that the batch comes from. Calling pieces takes an episode
object per environment and a Python call per environment and step (the slow path). Three optional methods work on
columns instead, and keep runners and learners in their fast loops:

    env to module   on_vector_step(step: VectorStep) -> observations [N, ...]
    module to env   on_vector_actions(actions [N, ...]) -> actions for the environments [N, ...]
    learner         on_rollout(rollout: Rollout) -> Rollout

A runner asks `pipeline.vectorized()` for the pieces to call, which is None if a piece has no such method. It then calls
them in order, each with what the one before returned; what the last returns goes to the module and into the rollout
(observations), or to the environments (actions; the rollout keeps the module's). The default pieces are not among
them, because the fast loops do what they do; only `NormalizeAndClipActions` is, at its place behind the user's pieces.
`pipeline.observation_space` is what the module gets.
"""

from __future__ import annotations

import abc
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import Any, Self

import numpy as np

from runtime.rllib._core import trees
from runtime.rllib._core.rollout import Rollout
from runtime.rllib._core.trees import Tree
from runtime.rllib.utils.checkpoints import Checkpointable
from runtime.rllib.utils.spaces.space_utils import BatchedNdArray

from .vector_step import VectorStep

Batch = dict[str, Any]


class ConnectorV2(Checkpointable):
    """A piece of a connector pipeline, or a pipeline. Subclasses override `__call__`.

    Pieces change spaces, too: set the `input_...` spaces (pipelines do), read `observation_space` and `action_space`.

    Args:
        input_observation_space: The gymnasium space of observations before the piece. Pipelines set it.
        input_action_space: The gymnasium space of actions before the piece. Pipelines set it.
        **kwargs: Accepted so that subclasses can pass theirs on.
    """

    _ctor: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        piece = super().__new__(cls)
        piece._ctor = (args, kwargs)
        return piece

    def __init__(
        self, input_observation_space: Any = None, input_action_space: Any = None, **kwargs: Any
    ) -> None:
        self._observation_space: Any = None
        self._action_space: Any = None
        self._input_observation_space: Any = None
        self._input_action_space: Any = None
        self.input_action_space = input_action_space
        self.input_observation_space = input_observation_space

    @abc.abstractmethod
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
        """Changes the batch and returns it, or returns a new one.

        Args:
            rl_module: The module that the data goes to or comes from.
            batch: Column -> items. Before batching, items are in lists under keys that say whose they are (see
                `add_batch_item`).
            episodes: Single- or multi-agent episodes, one per environment. What is only in the batch is gone after the
                module's forward pass; what is written to the episodes stays, and reaches the learner.
            explore: Whether the runner explores.
            shared_data: For pieces to tell one another something during one pass.
            metrics: A `MetricsLogger`.
            **kwargs: More from the caller, and from future versions.
        """

    # ------------------------------------------------------------ spaces

    def recompute_output_observation_space(
        self, input_observation_space: Any, input_action_space: Any
    ) -> Any:
        """The space of observations behind the piece. Override it in a piece that changes observations."""
        return input_observation_space

    def recompute_output_action_space(self, input_observation_space: Any, input_action_space: Any) -> Any:
        """The space of actions behind the piece. Override it in a piece that changes actions."""
        return input_action_space

    @property
    def observation_space(self) -> Any:
        """The space of observations behind the piece; None if the space before it is unknown."""
        return self._observation_space

    @property
    def action_space(self) -> Any:
        """The space of actions behind the piece; None if the space before it is unknown."""
        return self._action_space

    @property
    def input_observation_space(self) -> Any:
        """The space of observations before the piece."""
        return self._input_observation_space

    @input_observation_space.setter
    def input_observation_space(self, value: Any) -> None:
        self._input_observation_space = value
        if value is not None:
            self._observation_space = self.recompute_output_observation_space(value, self.input_action_space)

    @property
    def input_action_space(self) -> Any:
        """The space of actions before the piece."""
        return self._input_action_space

    @input_action_space.setter
    def input_action_space(self, value: Any) -> None:
        self._input_action_space = value
        if value is not None:
            self._action_space = self.recompute_output_action_space(self.input_observation_space, value)

    # ------------------------------------------------------------ columns

    def on_vector_step(self, step: VectorStep) -> Tree:
        """In an env-to-module pipeline: the observations [N, ...] behind the piece."""
        raise NotImplementedError(f"{type(self).__name__} has no on_vector_step()")

    def on_vector_actions(self, actions: Tree) -> Tree:
        """In a module-to-env pipeline: the actions [N, ...] behind the piece, from those before it."""
        raise NotImplementedError(f"{type(self).__name__} has no on_vector_actions()")

    def on_rollout(self, rollout: Rollout) -> Rollout:
        """In a learner pipeline: a rollout with other or more columns. The given one must stay as it is."""
        raise NotImplementedError(f"{type(self).__name__} has no on_rollout()")

    # ------------------------------------------------------------ state

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """What a piece learned from data. Empty unless overridden."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes a state of `get_state`."""

    def reset_state(self) -> None:
        """Forgets what the piece learned. Nothing unless overridden."""

    def merge_states(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        """One state from those of the pieces in parallel runners, which all take it by `set_state` afterwards.

        Args:
            states: Of the same piece in other runners. What this piece knows counts, too.
        """
        return {}

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with which an equal piece can be built."""
        return self._ctor

    # ------------------------------------------------------------ helpers

    def replace_last_observation(self, episode: Any, observation: Any) -> None:
        """Has an observation of the piece's output space take the place of the last one of a single-agent episode."""
        episode.set_observations(at_indices=-1, new_data=observation)
        space = self.observation_space
        parts = getattr(space, "spaces", None)
        if episode.agent_id is not None and isinstance(parts, dict):  # a space of several agents
            space = parts.get(episode.agent_id, space)
        episode.observation_space = space

    @staticmethod
    def single_agent_episode_iterator(
        episodes: list[Any],
        agents_that_stepped_only: bool = True,
        zip_with_batch_column: list[Any] | dict[tuple[Any, ...], Any] | None = None,
    ) -> Iterator[Any]:
        """The single-agent episodes, for multi-agent episodes those of their agents.

        Args:
            episodes: Single- or multi-agent episodes.
            agents_that_stepped_only: In multi-agent episodes, skip agents that took no part in the last step.
            zip_with_batch_column: A column of a batch. Then pairs of an episode and its next item of the column follow.

        Raises:
            ValueError: the column does not fit the episodes.
        """
        taken: dict[tuple[Any, ...], int] = defaultdict(int)
        if not is_multi_agent(episodes):
            if zip_with_batch_column is None:
                yield from episodes
                return
            if len(zip_with_batch_column) != len(episodes):
                raise ValueError(
                    f"The column has {len(zip_with_batch_column)} items, but there are {len(episodes)} episodes"
                )
            if not isinstance(zip_with_batch_column, dict):
                yield from zip(episodes, zip_with_batch_column, strict=True)
                return
        for episode in episodes:
            parts = [episode]
            if is_multi_agent([episode]):
                agent_ids = (
                    episode.get_agents_that_stepped() if agents_that_stepped_only else episode.agent_ids
                )
                parts = [
                    episode.agent_episodes[agent_id]
                    for agent_id in agent_ids
                    if agent_id in episode.agent_episodes
                ]
            for part in parts:
                if zip_with_batch_column is None:
                    yield part
                    continue
                key = episode_key(part)
                items = zip_with_batch_column.get(key, ())  # type: ignore[union-attr]  # lists were dealt with above
                if taken[key] >= len(items):
                    raise ValueError(f"The column has {len(items)} items for episode {key}, which is too few")
                yield part, items[taken[key]]
                taken[key] += 1

    @staticmethod
    def add_batch_item(batch: Batch, column: str, item_to_add: Any, single_agent_episode: Any = None) -> None:
        """Adds an item to the end of a list in a column.

        The list is the column itself without an episode; else it is in a dict in the column, under `(episode id,)`, or
        under `(multi-agent episode id, agent id, module id)` for an agent of a multi-agent episode.

        Raises:
            ValueError: the batch is ordered by module already (behind `AgentToModuleMapping`).
        """
        if single_agent_episode is None:
            batch.setdefault(column, []).append(item_to_add)
            return
        if single_agent_episode.module_id is not None and single_agent_episode.module_id in batch:
            raise ValueError(
                f"The batch is ordered by module (it has {single_agent_episode.module_id!r}), so no item of an episode "
                "can be added. Put the piece before AgentToModuleMapping"
            )
        batch.setdefault(column, {}).setdefault(episode_key(single_agent_episode), []).append(item_to_add)

    @staticmethod
    def add_n_batch_items(
        batch: Batch, column: str, items_to_add: Any, num_items: int, single_agent_episode: Any = None
    ) -> None:
        """Adds items, given as a list or as a tree of arrays [num_items, ...]. Arrays stay arrays.

        Raises:
            ValueError: the list has another length.
        """
        if not isinstance(items_to_add, list):
            tagged = trees.tree_map(lambda leaf: np.asarray(leaf).view(BatchedNdArray), items_to_add)
            ConnectorV2.add_batch_item(batch, column, tagged, single_agent_episode)
            return
        if len(items_to_add) != num_items:
            raise ValueError(f"There are {len(items_to_add)} items for column {column!r}, not {num_items}")
        for item in items_to_add:
            ConnectorV2.add_batch_item(batch, column, item, single_agent_episode)

    @staticmethod
    def foreach_batch_item_change_in_place(
        batch: Batch,
        column: str | list[str] | tuple[str, ...],
        func: Callable[[Any, Any, Any, Any], Any],
    ) -> None:
        """Replaces each item of one or several columns by what `func(item, episode id, agent id, module id)` returns.

        Args:
            batch: A batch with items in lists.
            column: With a list of columns, `func` takes and returns a tuple with one item of each.
            func: The ids it gets are None where the keys of the column have none.

        Raises:
            ValueError: a column is not in the batch.
        """
        single = isinstance(column, str)
        names: list[str] = [column] if isinstance(column, str) else list(column)
        for name in names:
            if name not in batch:
                raise ValueError(
                    f"Column {name!r} is not in the batch, which has {', '.join(map(repr, batch))}"
                )

        def change(lists: list[Any], ids: tuple[Any, Any, Any]) -> None:
            for place, items in enumerate(zip(*lists, strict=True)):
                changed = func(items[0] if single else items, *ids)
                for values, value in zip(lists, (changed,) if single else changed, strict=True):
                    values[place] = value

        if isinstance(batch[names[0]], dict):
            for key in batch[names[0]]:
                ids = key if len(key) == 3 else (key[0], None, None)
                change([batch[name][key] for name in names], ids)
        else:
            change([batch[name] for name in names], (None, None, None))

    @staticmethod
    def switch_batch_from_column_to_module_ids(batch: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Module -> column -> data, from column -> module -> data."""
        result: dict[str, dict[str, Any]] = {}
        for column, by_module in batch.items():
            for module_id, data in by_module.items():
                result.setdefault(module_id, {})[column] = data
        return result

    def __str__(self, indentation: int = 0) -> str:
        return " " * indentation + type(self).__name__


def is_multi_agent(episodes: list[Any]) -> bool:
    """Whether the episodes are multi-agent episodes."""
    return bool(episodes) and hasattr(episodes[0], "agent_episodes")


def is_multi_module(rl_module: Any) -> bool:
    """Whether this is a `MultiRLModule`."""
    return hasattr(rl_module, "foreach_module")


def episode_key(episode: Any) -> tuple[Any, ...]:
    """The key of a single-agent episode in a column."""
    if episode.agent_id is None:
        return (episode.id_,)
    return (episode.multi_agent_episode_id, episode.agent_id, episode.module_id)


def make_ids_unique(episodes: list[Any], shared_data: dict[str, Any] | None) -> None:
    """Tells chunks of the same episode in a batch from one another: adds their places to their ids, once per pass."""
    if shared_data is not None:
        if shared_data.get("_ids_are_unique"):
            return
        shared_data["_ids_are_unique"] = True
    for place, episode in enumerate(episodes):
        episode.id_ += f"_{place}"
        if is_multi_agent(episodes):
            for part in episode.agent_episodes.values():
                part.multi_agent_episode_id = episode.id_
        elif episode.agent_id is not None:
            episode.multi_agent_episode_id = f"{episode.multi_agent_episode_id}_{place}"


def has_columns_form(piece: ConnectorV2, name: str) -> bool:
    """Whether an attribute of the class stands for its `__call__`, because no subclass overrides only the latter."""

    def definer(attribute: str) -> type:
        return next(cls for cls in type(piece).__mro__ if attribute in cls.__dict__)

    return definer(name) is not ConnectorV2 and issubclass(definer(name), definer("__call__"))
