"""A replay buffer of episodes that gives sequences of a fixed length."""

from __future__ import annotations

import numpy as np

from ..._core.rollout import Rollout
from ...core.columns import Columns

Arrays = dict[str, np.ndarray]
_ROWS_AT_FIRST = 64


class _Episode:
    """Rows of one episode, in arrays that double when they are full."""

    def __init__(self) -> None:
        self.rows = 0
        self._arrays: Arrays = {}

    def extend(self, rows: Arrays) -> None:
        count = len(rows["is_first"])
        for name, values in rows.items():
            array = self._arrays.get(name)
            if array is None:
                size = max(_ROWS_AT_FIRST, count)
                array = self._arrays[name] = np.zeros((size, *values.shape[1:]), values.dtype)
            while len(array) < self.rows + count:
                array = self._arrays[name] = np.concatenate((array, np.zeros_like(array)))
            array[self.rows : self.rows + count] = values
        self.rows += count

    def slice(self, start: int, stop: int) -> Arrays:
        return {name: array[start:stop] for name, array in self._arrays.items()}


class SequenceReplay:
    """Holds episodes as the world model sees them, one row per observation.

    A row has "obs", what led to it ("prev_actions", "rewards": zeros for an episode's first row), and "is_first" and
    "is_terminated". A sequence that reaches an episode's end goes on with the start of another episode.
    """

    def __init__(self, capacity: int, rng: np.random.Generator) -> None:
        """Empty.

        Args:
            capacity: rows; beyond it the oldest episodes are dropped.
            rng: chooses the sequences.
        """
        self.capacity = capacity
        self._rng = rng
        self._episodes: dict[str, _Episode] = {}
        self.rows = 0

    def add(self, rollout: Rollout) -> None:
        """Adds the rows of a rollout. Segments of one episode must come in their order."""
        segments = rollout.segments
        next_obs, obs = rollout.next_obs(), rollout.columns[Columns.OBS]
        actions, rewards = rollout.columns[Columns.ACTIONS], rollout.columns[Columns.REWARDS]
        terminated = rollout.terminateds()
        for i, (start, length) in enumerate(zip(segments.starts, segments.lengths, strict=True)):
            part = slice(start, start + length)
            rows = {
                Columns.OBS: next_obs[part],
                "prev_actions": actions[part],
                Columns.REWARDS: np.asarray(rewards[part], np.float32),
                "is_first": np.zeros(length, bool),
                "is_terminated": terminated[part],
            }
            episode_id = segments.episode_ids[i]
            episode = self._episodes.get(episode_id)
            if episode is None:
                episode = self._episodes[episode_id] = _Episode()
                first = {name: np.zeros_like(values[:1]) for name, values in rows.items()}
                first |= {Columns.OBS: obs[start : start + 1], "is_first": np.ones(1, bool)}
                episode.extend(first)
                self.rows += 1
            episode.extend(rows)
            self.rows += int(length)
        while self.rows > self.capacity and len(self._episodes) > 1:
            oldest = next(iter(self._episodes))
            self.rows -= self._episodes.pop(oldest).rows

    def sample(self, batch_size: int, length: int) -> Arrays:
        """Sequences: column -> array [batch_size, length, ...].

        Each starts at a row that is chosen uniformly. The first row of a sequence always has "is_first", because the
        state before it is not known.

        Raises:
            ValueError: the buffer is empty.
        """
        if not self._episodes:
            raise ValueError("The replay buffer has no episodes to sample from")
        episodes = list(self._episodes.values())
        ends = np.cumsum([episode.rows for episode in episodes])
        sequences = [self._sequence(episodes, ends, length) for _ in range(batch_size)]
        batch = {name: np.stack([sequence[name] for sequence in sequences]) for name in sequences[0]}
        batch["is_first"][:, 0] = True
        return batch

    def _sequence(self, episodes: list[_Episode], ends: np.ndarray, length: int) -> Arrays:
        row = int(self._rng.integers(ends[-1]))
        number = int(np.searchsorted(ends, row, side="right"))
        start = row - (int(ends[number - 1]) if number else 0)
        parts: list[Arrays] = []
        missing = length
        while missing:
            episode = episodes[number]
            parts.append(episode.slice(start, min(start + missing, episode.rows)))
            missing -= len(parts[-1]["is_first"])
            number, start = int(self._rng.integers(len(episodes))), 0
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
