"""A value that does not change."""

from __future__ import annotations

from .schedule import Schedule


class ConstantSchedule(Schedule):
    """The same value at all time steps."""

    def __init__(self, value: float, framework: str | None = None) -> None:
        self._value = value

    def value(self, t: int) -> float:
        return self._value
