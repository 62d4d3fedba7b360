"""Linear decay from one value to another."""

from __future__ import annotations

from .polynomial_schedule import PolynomialSchedule


class LinearSchedule(PolynomialSchedule):
    """From `initial_p` to `final_p` on a line, and `final_p` afterwards."""

    def __init__(
        self, schedule_timesteps: int, final_p: float, framework: str | None = None, initial_p: float = 1.0
    ) -> None:
        super().__init__(schedule_timesteps, final_p, framework, initial_p, power=1.0)
