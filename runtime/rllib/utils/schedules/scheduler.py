"""A setting that is a number or a schedule of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .piecewise_schedule import PiecewiseSchedule

ValueOrSchedule = float | Sequence[Sequence[float]]


class Scheduler:
    """Holds the current value of a setting like `lr` or `entropy_coeff`.

    Args:
        fixed_value_or_schedule: a number, or a list of (time step, value) pairs that starts with time step 0. Values
            between are on a line; after the last time step the last value stays.

    `framework` and `device` are accepted for compatibility: the value is a Python float.
    """

    def __init__(
        self, fixed_value_or_schedule: ValueOrSchedule, *, framework: str = "torch", device: Any = None
    ) -> None:
        self._schedule: PiecewiseSchedule | None = None
        self._value: Any = fixed_value_or_schedule
        if isinstance(fixed_value_or_schedule, list | tuple):
            pairs = [(int(time), float(value)) for time, value in fixed_value_or_schedule]
            self._schedule = PiecewiseSchedule(pairs)
            self._value = pairs[0][1]

    @property
    def use_schedule(self) -> bool:
        """Whether the value changes with time."""
        return self._schedule is not None

    @staticmethod
    def validate(*, fixed_value_or_schedule: Any, setting_name: str, description: str) -> None:
        """Checks a setting.

        Args:
            fixed_value_or_schedule: the setting; None is allowed.
            setting_name: its name, for the error.
            description: what it is, for the error.

        Raises:
            ValueError: it is neither a number nor a list of at least two pairs that starts with time step 0.
        """
        setting = fixed_value_or_schedule
        if setting is None or isinstance(setting, int | float):
            return
        wanted = f"`{setting_name}` ({description}) must be a number or a list of two or more (time step, value) pairs"
        example = "for example [(0, 0.001), (1_000_000, 0.0001)]"
        if not isinstance(setting, list | tuple) or len(setting) < 2:
            raise ValueError(f"{wanted}, {example}; it is {setting!r}")
        if any(not isinstance(pair, list | tuple) or len(pair) != 2 for pair in setting):
            raise ValueError(f"{wanted}, {example}; one of {setting!r} is no pair")
        times = [pair[0] for pair in setting]
        if times[0] != 0 or times != sorted(times):
            raise ValueError(f"{wanted}: time steps start with 0 and ascend, {example}; it is {setting!r}")

    def get_current_value(self) -> Any:
        """The value as of the latest `update`."""
        return self._value

    def update(self, timestep: int) -> Any:
        """Sets the value to that of the time step, and returns it."""
        if self._schedule is not None:
            self._value = self._schedule.value(int(timestep))
        return self._value
