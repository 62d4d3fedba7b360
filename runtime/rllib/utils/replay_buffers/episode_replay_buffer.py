"""The replay buffer of episodes: transitions, n-step transitions or sequences, all with the same probability."""

from __future__ import annotations

from typing import Any

import numpy as np

from runtime.rllib._core import trees
from runtime.rllib._core.replay import Drawn, ReplayRing
from runtime.rllib._core.rollout import Rollout
from runtime.rllib._core.types import DEFAULT_MODULE_ID, ModuleID
from runtime.rllib.utils.metrics import (
    NUM_ENV_STEPS_ADDED,
    NUM_ENV_STEPS_ADDED_LIFETIME,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_STORED,
    NUM_EPISODES_ADDED,
    NUM_EPISODES_ADDED_LIFETIME,
    NUM_EPISODES_STORED,
)
from runtime.rllib.utils.metrics.metrics_logger import MetricsLogger
from runtime.rllib.utils.replay_buffers.base import ReplayBufferInterface

# What Ray's method accepts and what makes no difference here: columns always are NumPy arrays.
_RAYS_ARGUMENTS = {
    "include_infos",
    "include_extra_model_outputs",
    "to_numpy",
    "lookback",
    "min_batch_length_T",
}


class EpisodeReplayBuffer(ReplayBufferInterface):
    """Keeps the newest time steps of episodes, one ring for each module.

    Args:
        capacity: time steps for each module; the observation after the end of an episode takes the room of one.
        batch_size_B: rows (or sequences) that `sample` draws without `num_items`.
        batch_length_T: steps of a sequence; 0 or 1: single transitions.
        metrics_num_episodes_for_smoothing: kept for configurations that set it.
        seed: of the draws.

    Raises:
        TypeError: an argument is unknown.
    """

    _alpha: float | None = None  # exponent of priorities

    def __init__(
        self,
        capacity: int = 10000,
        *,
        batch_size_B: int = 16,
        batch_length_T: int = 64,
        metrics_num_episodes_for_smoothing: int = 100,
        seed: int | None = None,
        beta: float = 0.0,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            raise TypeError(
                f"{type(self).__name__} has no argument {next(iter(kwargs))!r}; there are 'capacity', 'batch_size_B', "
                "'batch_length_T', 'seed', 'alpha' and 'beta'"
            )
        self.capacity = capacity
        self.batch_size_B = batch_size_B
        self.batch_length_T = batch_length_T
        self.beta = beta
        self.metrics = MetricsLogger()
        self._metrics_num_episodes_for_smoothing = metrics_num_episodes_for_smoothing
        self._rng = np.random.default_rng(seed)
        self._rings: dict[ModuleID, ReplayRing] = {}
        self._drawn: dict[ModuleID, np.ndarray] = {}  # rows of the last sample
        self._sampled: dict[ModuleID, int] = {}  # time steps
        self._reported: dict[str, int] = {}

    def __len__(self) -> int:
        return self.get_num_timesteps()

    # Adding.

    def add(self, episodes: Any, weight: float | None = None) -> None:  # type: ignore[override]  # Ray's names
        """Store experience.

        Args:
            episodes: a `SingleAgentEpisode` or `MultiAgentEpisode`, a list of them, a rollout, or rollouts by module
                id. Parts of an episode that arrive one after another are joined.
            weight: the priority of the new steps; without one, the largest priority so far.
        """
        if isinstance(episodes, Rollout):
            self.ring(DEFAULT_MODULE_ID).add(episodes, weight)
        elif isinstance(episodes, dict):
            for module_id, rollout in episodes.items():
                self.ring(module_id).add(rollout, weight)
        else:
            from runtime.rllib.core.learner.experience import rollouts_of

            given = episodes if isinstance(episodes, list | tuple) else [episodes]
            for module_id, rollout in rollouts_of(given).items():
                self.ring(module_id).add(rollout, weight)

    def ring(self, module_id: ModuleID) -> ReplayRing:
        """The ring of a module, made on first use."""
        ring = self._rings.get(module_id)
        if ring is None:
            ring = self._rings[module_id] = ReplayRing(self.capacity, alpha=self._alpha, rng=self._rng)
            self._sampled[module_id] = 0
        return ring

    # Sampling.

    def draw(
        self,
        module_id: ModuleID,
        count: int,
        *,
        n_step: int | tuple[int, int] = 1,
        gamma: float = 0.99,
        beta: float = 0.0,
        length: int = 0,
    ) -> dict[str, Any]:
        """A batch of a module's experience as columns; see `ReplayRing.draw` and, with length > 1, `draw_sequences`."""
        ring = self.ring(module_id)
        drawn: Drawn
        if length > 1:
            drawn = ring.draw_sequences(count, length, beta=beta)
        else:
            drawn = ring.draw(count, n_step=n_step, gamma=gamma, beta=beta)
        self._drawn[module_id] = drawn.rows
        self._sampled[module_id] += drawn.rows.size
        return drawn.columns

    def sample(
        self,
        num_items: int | None = None,
        *,
        batch_size_B: int | None = None,
        batch_length_T: int | None = None,
        n_step: int | tuple[int, int] | None = None,
        beta: float | None = None,
        gamma: float = 0.99,
        sample_episodes: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Draw a batch.

        Args:
            num_items: time steps of the batch; without it, `batch_size_B` rows or sequences.
            batch_size_B: rows, or sequences.
            batch_length_T: steps of a sequence; 0 or 1: single transitions.
            n_step: see `ReplayRing.draw`; not for sequences.
            beta: exponent of the importance weights.
            gamma: discount of the rewards summed up over the steps.
            sample_episodes: give a `SingleAgentEpisode` per row instead of columns.

        Returns:
            Columns "obs", "actions", "rewards", "new_obs", "terminateds", "truncateds" [B, ...] or [B, T, ...], and
            "weights", "n_step", "loss_mask" where they apply.
        """
        if kwargs.keys() - _RAYS_ARGUMENTS:
            raise TypeError(f"sample() has no argument {min(kwargs.keys() - _RAYS_ARGUMENTS)!r}")
        count, length = self._sizes(num_items, batch_size_B, batch_length_T)
        columns = self.draw(
            DEFAULT_MODULE_ID,
            count,
            length=length,
            n_step=n_step or 1,
            gamma=gamma,
            beta=self.beta if beta is None else beta,
        )
        return _episodes(columns) if sample_episodes else columns

    def _sizes(self, items: int | None, rows: int | None, length: int | None) -> tuple[int, int]:
        """Rows or sequences to draw, and the length of a sequence."""
        length = self.batch_length_T if length is None else length
        if items is not None:
            if rows is not None:
                raise ValueError("Give `num_items` or `batch_size_B`, not both")
            return max(items // max(length, 1), 1), length
        return (self.batch_size_B if rows is None else rows), length

    # Numbers.

    def get_module_ids(self) -> list[ModuleID]:
        """The modules that have experience in the buffer."""
        return [module_id for module_id, ring in self._rings.items() if ring.rows]

    def get_num_timesteps(self, module_id: ModuleID | None = None) -> int:
        """Time steps in the buffer, of one module or of all."""
        return sum(ring.rows for ring in self._of(module_id))

    def get_num_episodes(self, module_id: ModuleID | None = None) -> int:
        """Episodes, or stretches of episodes, in the buffer."""
        return sum(ring.stretches for ring in self._of(module_id))

    def get_num_episodes_evicted(self, module_id: ModuleID | None = None) -> int:
        """Episodes that ended and of which no time step is left."""
        return sum(max(ring.episodes_ended - ring.stretches, 0) for ring in self._of(module_id))

    def get_added_timesteps(self, module_id: ModuleID | None = None) -> int:
        """Time steps that were ever added."""
        return sum(ring.rows_added for ring in self._of(module_id))

    def get_sampled_timesteps(self, module_id: ModuleID | None = None) -> int:
        """Time steps that were ever drawn."""
        return sum(n for key, n in self._sampled.items() if module_id in (None, key))

    def _of(self, module_id: ModuleID | None) -> list[ReplayRing]:
        if module_id is None:
            return list(self._rings.values())
        return [self._rings[module_id]] if module_id in self._rings else []

    def get_metrics(self) -> dict[str, Any]:
        """Numbers of time steps and episodes since the last call and over all time, as `MetricsLogger.reduce` gives."""
        totals = {
            (NUM_ENV_STEPS_ADDED, NUM_ENV_STEPS_ADDED_LIFETIME): self.get_added_timesteps(),
            (NUM_ENV_STEPS_SAMPLED, NUM_ENV_STEPS_SAMPLED_LIFETIME): self.get_sampled_timesteps(),
            (NUM_EPISODES_ADDED, NUM_EPISODES_ADDED_LIFETIME): sum(
                r.episodes_ended for r in self._rings.values()
            ),
        }
        for (recent, lifetime), total in totals.items():
            new = total - self._reported.get(recent, 0)
            self._reported[recent] = total
            self.metrics.log_value(recent, new, reduce="sum")
            self.metrics.log_value(lifetime, new, reduce="lifetime_sum")
        self.metrics.log_value(NUM_ENV_STEPS_STORED, self.get_num_timesteps(), reduce="mean", window=1)
        self.metrics.log_value(NUM_EPISODES_STORED, self.get_num_episodes(), reduce="mean", window=1)
        reduced: dict[str, Any] = self.metrics.reduce()
        return reduced

    # State.

    def get_state(self) -> dict[str, Any]:
        """Everything in the buffer, as arrays. They are views: copy or pickle them before more is added."""
        return {
            "rings": {module_id: ring.get_state() for module_id, ring in self._rings.items()},
            "sampled": dict(self._sampled),
            "reported": dict(self._reported),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take over the state of a buffer of the same capacity."""
        self._rings = {}
        for module_id, ring in state["rings"].items():
            self.ring(module_id).set_state(ring)
        self._sampled = dict(state["sampled"])
        self._reported = dict(state["reported"])
        self._drawn = {}


def _episodes(columns: dict[str, Any]) -> list[Any]:
    """A `SingleAgentEpisode` for each drawn row (or sequence); "weights" and "n_step" are its extra model outputs."""
    from runtime.rllib.env.single_agent_episode import SingleAgentEpisode

    result = []
    for i, reward in enumerate(columns["rewards"]):
        row = {name: trees.take(column, i) for name, column in columns.items()}
        if np.ndim(reward) == 0:
            row = {
                name: trees.tree_map(lambda leaf: np.asarray(leaf)[None], column)
                for name, column in row.items()
            }
            count = 1
        else:
            count = int(row["loss_mask"].sum())
        observations = [trees.take(row["obs"], t) for t in range(count)]
        observations.append(trees.take(row["new_obs"], count - 1))
        result.append(
            SingleAgentEpisode(
                observations=observations,
                actions=[trees.take(row["actions"], t) for t in range(count)],
                rewards=[float(value) for value in row["rewards"][:count]],
                terminated=bool(row["terminateds"][count - 1]),
                truncated=bool(row["truncateds"][count - 1]),
                extra_model_outputs={
                    name: list(np.broadcast_to(row[name], (count,)))
                    for name in ("weights", "n_step")
                    if name in row
                },
                len_lookback_buffer=0,
            )
        )
    return result
