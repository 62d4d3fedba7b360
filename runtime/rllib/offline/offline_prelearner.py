"""From a table's columns to what a learner trains on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from runtime.rllib._core import rollout as rollouts_
from runtime.rllib._core import tables
from runtime.rllib._core.rollout import Rollout
from runtime.rllib._core.row_sampler import transitions
from runtime.rllib._core.tables import SCHEMA
from runtime.rllib._core.types import DEFAULT_MODULE_ID, Config, ModuleID
from runtime.rllib.core.columns import Columns
from runtime.rllib.env.single_agent_episode import SingleAgentEpisode, to_rollout

from . import episode_files

__all__ = ["SCHEMA", "OfflinePreLearner"]


class OfflinePreLearner:
    """Turns batches of offline data into rollouts and train batches.

    By default a table's columns become a rollout without a loop over its rows. A subclass that overrides
    `_map_to_episodes` or `_map_sample_batch_to_episode` gives episodes, and one that overrides `__call__` gives the
    train batch itself; both are run in a `map_batches` over the data set.

    Args:
        config: the algorithm's.
        spaces: those of observations and actions.
        module_spec: of the module that is trained, for subclasses.
        module_state: its weights when the pre-learner was made.
    """

    def __init__(
        self,
        *,
        config: Config,
        spaces: tuple[Any, Any] | None = None,
        module_spec: Any = None,
        module_state: dict[ModuleID, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.config = config
        self.observation_space, self.action_space = spaces or (config.observation_space, config.action_space)
        self._module_spec = module_spec
        self._module_state = module_state

    def __call__(self, batch: dict[str, Any]) -> dict[str, np.ndarray]:
        """The train batch of a batch of the data set: "module/column" -> array [rows, ...]."""
        flat: dict[str, np.ndarray] = {}
        for module_id, rollout in self.rollouts(batch).items():
            if self._should_module_be_updated(module_id, batch):
                rows = _flattened(transitions(rollout))
                flat |= {f"{module_id}/{name}": column for name, column in rows.items()}
        return flat

    @classmethod
    def is_plain(cls) -> bool:
        """Whether the conversion is this class's own: data may then be kept as rollouts."""
        return all(
            getattr(cls, name) is getattr(OfflinePreLearner, name)
            for name in ("__call__", "_map_to_episodes", "_map_sample_batch_to_episode", "rollouts")
        )

    def rollouts(self, batch: Mapping[str, Any]) -> dict[ModuleID, Rollout]:
        """The segments of each module in a batch of the data set.

        Raises:
            ValueError: a column is missing or cannot be read; see `runtime.rllib._core.tables`.
        """
        own = type(self)
        if self.config.input_read_episodes:
            return {DEFAULT_MODULE_ID: episode_files.decode_episodes(batch[episode_files.COLUMN])}
        if self.config.input_read_sample_batches:
            if own._map_sample_batch_to_episode is not OfflinePreLearner._map_sample_batch_to_episode:
                episodes = self._map_sample_batch_to_episode(dict(batch), to_numpy=True)["episodes"]
                return {DEFAULT_MODULE_ID: to_rollout(episodes)}
            return {DEFAULT_MODULE_ID: self._from_sample_batches(batch)}
        if own._map_to_episodes is not OfflinePreLearner._map_to_episodes:
            return {
                DEFAULT_MODULE_ID: to_rollout(self._map_to_episodes(dict(batch), to_numpy=False)["episodes"])
            }
        return self._from_table(batch)

    def _map_to_episodes(
        self, batch: dict[str, Any], to_numpy: bool = False, **kwargs: Any
    ) -> dict[str, list[SingleAgentEpisode]]:
        """{"episodes": [...]} of a batch of a table, one per segment of an episode. For subclasses to override."""
        episodes = [
            episode
            for rollout in self._from_table(batch).values()
            for episode in SingleAgentEpisode.views_of(rollout)
        ]
        return {"episodes": episodes}

    def _map_sample_batch_to_episode(
        self, batch: dict[str, Any], to_numpy: bool = False, **kwargs: Any
    ) -> dict[str, list[SingleAgentEpisode]]:
        """{"episodes": [...]} of a batch whose rows are sample batches. For subclasses to override."""
        return {"episodes": SingleAgentEpisode.views_of(self._from_sample_batches(batch))}

    def _should_module_be_updated(self, module_id: ModuleID, multi_agent_batch: Any = None) -> bool:
        """Whether `config.policies_to_train` has this module."""
        wanted = self.config.policies_to_train
        if not wanted:
            return True
        return bool(wanted(module_id, multi_agent_batch)) if callable(wanted) else module_id in wanted

    def _schema(self) -> dict[str, str]:
        return SCHEMA | dict(self.config.input_read_schema)

    def _options(self) -> dict[str, Any]:
        return {
            "schema": self._schema(),
            "required": getattr(
                self.config, "offline_columns", (Columns.OBS, Columns.ACTIONS, Columns.REWARDS)
            ),
            "ignore_final_observation": self.config.ignore_final_observation,
        }

    def _from_table(self, batch: Mapping[str, Any]) -> dict[ModuleID, Rollout]:
        modules = self._schema()[Columns.MODULE_ID]
        if not self.config.is_multi_agent or modules not in batch:
            return {DEFAULT_MODULE_ID: tables.rollout_from_table(batch, **self._options())}
        owners = np.asarray(batch[modules]).astype(str)
        return {
            str(module_id): tables.rollout_from_table(
                {name: np.asarray(column)[owners == module_id] for name, column in batch.items()},
                **self._options(),
            )
            for module_id in np.unique(owners)
        }

    def _from_sample_batches(self, batch: Mapping[str, Any]) -> Rollout:
        """Each row holds consecutive steps, as lists or as one packed array per column."""
        options = self._options()
        observations = batch[options["schema"][Columns.OBS]]
        names = [name for name in batch if name not in {"type", Columns.INFOS}]
        parts = []
        for row in range(len(observations)):
            table = {name: tables.as_column(_steps(batch[name][row])) for name in names}
            count = len(table[options["schema"][Columns.OBS]])
            table = {
                name: column for name, column in table.items() if np.ndim(column) and len(column) == count
            }
            parts.append(tables.rollout_from_table(table, **options))
        common = set.intersection(*(set(part.columns) for part in parts))
        for part in parts:
            part.columns = {name: column for name, column in part.columns.items() if name in common}
        return rollouts_.concatenate([part for part in parts if part.rows])


def _steps(value: Any) -> Any:
    """The steps of one column of a sample batch; a string holds them packed."""
    return tables.as_column(np.asarray([value], object))[0] if isinstance(value, str | bytes) else value


def _flattened(rows: Mapping[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    """Nested columns as "column/key"."""
    flat: dict[str, np.ndarray] = {}
    for name, column in rows.items():
        if isinstance(column, dict):
            flat |= _flattened(column, f"{prefix}{name}/")
        elif isinstance(column, tuple | list):
            flat |= _flattened({str(index): item for index, item in enumerate(column)}, f"{prefix}{name}/")
        else:
            flat[prefix + name] = column
    return flat
