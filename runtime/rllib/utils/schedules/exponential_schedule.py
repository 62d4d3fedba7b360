"""Exponential decay."""

from __future__ import annotations

from .schedule import Schedule


class ExponentialSchedule(Schedule):
    """`initial_p * decay_rate ** (t / schedule_timesteps)`.

    Args:
        schedule_timesteps: time steps after which the value has been multiplied by `decay_rate` once.
        initial_p: the value at time step 0.
        decay_rate: the factor.
    """

    def __init__(
        self,
        schedule_timesteps: int,
        framework: str | None = None,
        initial_p: float = 1.0,
        decay_rate: float = 0.1,
    ) -> None:
        if schedule_timesteps <= 0:
            raise ValueError(f"schedule_timesteps must be positive, not {schedule_timesteps}")
        self.schedule_timesteps = schedule_timesteps
        self.initial_p = initial_p
        self.decay_rate = decay_rate

    def value(self, t: int) -> float:
        return float(self.initial_p * self.decay_rate ** (t / self.schedule_timesteps))
