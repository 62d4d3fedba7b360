"""What a schedule is."""

from __future__ import annotations

import abc


class Schedule(abc.ABC):
    """A value as a function of the time step."""

    @abc.abstractmethod
    def value(self, t: int) -> float:
        """The value at time step `t`."""

    def __call__(self, t: int) -> float:
        return self.value(t)
