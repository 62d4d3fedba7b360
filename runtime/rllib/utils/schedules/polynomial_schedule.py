"""Polynomial decay from one value to another."""

from __future__ import annotations

from .schedule import Schedule


class PolynomialSchedule(Schedule):
    """`final_p + (initial_p - final_p) * (1 - t / schedule_timesteps) ** power`, and `final_p` afterwards.

    Args:
        schedule_timesteps: when the final value is reached.
        final_p: the final value.
        initial_p: the value at time step 0.
        power: 1 is linear.
    """

    def __init__(
        self,
        schedule_timesteps: int,
        final_p: float,
        framework: str | None = None,
        initial_p: float = 1.0,
        power: float = 2.0,
    ) -> None:
        if schedule_timesteps <= 0:
            raise ValueError(f"schedule_timesteps must be positive, not {schedule_timesteps}")
        self.schedule_timesteps = schedule_timesteps
        self.final_p = final_p
        self.initial_p = initial_p
        self.power = power

    def value(self, t: int) -> float:
        left = 1.0 - min(t, self.schedule_timesteps) / self.schedule_timesteps
        return float(self.final_p + (self.initial_p - self.final_p) * left**self.power)
