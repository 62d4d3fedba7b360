"""A value given at some time steps and interpolated between them."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence

from .schedule import Schedule


def _on_a_line(left: float, right: float, alpha: float) -> float:
    return left + alpha * (right - left)


class PiecewiseSchedule(Schedule):
    """Interpolates between (time step, value) pairs.

    Args:
        endpoints: (time step, value) pairs, time steps ascending.
        interpolation: gives the value between two; from left value, right value and the part of the way (0 to 1).
        outside_value: the value before the first and from the last time step on; None: the nearest pair's.

    Raises:
        ValueError: there are no endpoints, or their time steps do not ascend.
    """

    def __init__(
        self,
        endpoints: Sequence[tuple[int, float]],
        framework: str | None = None,
        interpolation: Callable[[float, float, float], float] = _on_a_line,
        outside_value: float | None = None,
    ) -> None:
        self._times = [time for time, _ in endpoints]
        self._values = [float(value) for _, value in endpoints]
        if not self._times or self._times != sorted(self._times):
            raise ValueError(f"The time steps of a schedule must ascend: {list(endpoints)}")
        self._interpolation = interpolation
        self._outside_value = outside_value

    def value(self, t: int) -> float:
        right = bisect.bisect_right(self._times, t)
        if 0 < right < len(self._times):
            start, end = self._times[right - 1], self._times[right]
            part = (t - start) / (end - start)
            return float(self._interpolation(self._values[right - 1], self._values[right], part))
        if self._outside_value is not None:
            return self._outside_value
        return self._values[0 if right == 0 else -1]
