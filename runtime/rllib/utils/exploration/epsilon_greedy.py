"""Epsilon-greedy actions."""

from __future__ import annotations

from typing import Any

from runtime.rllib.utils.schedules.scheduler import Scheduler


class EpsilonGreedy:
    """Draws a random action with probability epsilon, else the one of the largest value.

    Args:
        epsilon: a number, or a schedule [(time step, value), ...] that is interpolated linearly.
    """

    def __init__(self, epsilon: Any) -> None:
        Scheduler.validate(
            fixed_value_or_schedule=epsilon,
            setting_name="epsilon",
            description="probability of a random action",
        )
        self._schedule = Scheduler(epsilon)

    def epsilon(self, timestep: int) -> float:
        """The probability at this time step."""
        return float(self._schedule.update(timestep))

    def actions(self, values: Any, timestep: int) -> Any:
        """Actions for values.

        Args:
            values: tensor [..., A]; actions whose value is -infinity are forbidden and never drawn.
            timestep: environment steps sampled so far, of all runners.

        Returns:
            int64 tensor [...].
        """
        import torch

        greedy = values.argmax(-1)
        epsilon = self.epsilon(timestep)
        if epsilon <= 0:
            return greedy
        explores = torch.rand(greedy.shape, device=values.device) < epsilon
        if not explores.any():
            return greedy
        lots = torch.rand_like(values).masked_fill_(values == -torch.inf, -1.0)
        return torch.where(explores, lots.argmax(-1), greedy)
