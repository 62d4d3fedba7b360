"""The replay buffer of episodes that draws time steps in proportion to their priorities (Schaul et al. 2016)."""

from __future__ import annotations

from typing import Any

import numpy as np

from runtime.rllib._core.types import DEFAULT_MODULE_ID, ModuleID
from runtime.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer

SMALLEST_PRIORITY = 1e-6  # so that a step whose error is 0 is drawn again at some time


class PrioritizedEpisodeReplayBuffer(EpisodeReplayBuffer):
    """Draws a time step with probability proportional to `priority ** alpha`; new steps have the largest priority.

    Args:
        alpha: 0 draws all with the same probability, 1 in proportion to priorities.
        beta: exponent of the importance weights that `sample` gives by default.

    Raises:
        ValueError: alpha is negative.
    """

    def __init__(
        self,
        capacity: int = 10000,
        *,
        batch_size_B: int = 16,
        batch_length_T: int = 1,
        alpha: float = 1.0,
        **kwargs: Any,
    ) -> None:
        if alpha < 0:
            raise ValueError(f"`alpha` must not be negative, but is {alpha}")
        super().__init__(capacity, batch_size_B=batch_size_B, batch_length_T=batch_length_T, **kwargs)
        self._alpha = alpha

    def update_priorities(self, priorities: Any, module_id: ModuleID | None = None) -> None:
        """Set the priorities of the time steps of the last sample.

        Args:
            priorities: [B] or [B, T], in the order of the sample; usually absolute temporal-difference errors.
            module_id: whose sample it was; not needed with a single module.

        Raises:
            ValueError: there was no sample, or it had another size.
        """
        module_id = module_id or DEFAULT_MODULE_ID
        rows = self._drawn.get(module_id)
        given = np.asarray(priorities)
        if rows is None or rows.size != given.size:
            size = "no sample" if rows is None else f"{rows.size} time steps"
            raise ValueError(
                f"{given.size} priorities were given, but the last sample of {module_id!r} had {size}"
            )
        self._rings[module_id].set_priorities(rows, np.maximum(np.abs(given), SMALLEST_PRIORITY))
