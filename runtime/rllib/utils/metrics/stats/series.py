"""Series of numbers that reduce to one: mean, minimum, maximum; and the exponential moving average."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, ClassVar

import numpy as np

from .base import StatsBase, all_on_cpu, number, plain

# Without a window, a leaf reduces its values whenever it holds this many, so that its memory is bounded.
FOLD_AFTER = 1024


def without_nans(values: list[Any]) -> np.ndarray:
    """float array of all numbers, including those in arrays, that are not NaN."""
    arrays = [np.asarray(value, dtype=np.float64).ravel() for value in values]
    numbers = np.concatenate(arrays)
    return numbers[~np.isnan(numbers)]


class SeriesStats(StatsBase):
    """Numbers that reduce to one number by `_np_reduce_fn`.

    Merging joins the reduced values of parallel processes, so each process counts once, however many values it had.
    NaN is a missing value.

    Args:
        window: Only the last `window` values of a cycle count. None: all.
    """

    def __init__(
        self, window: int | float | None = None, is_root: bool = False, is_leaf: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(is_root=is_root, is_leaf=is_leaf, **kwargs)
        self._window = window
        self.values: Any = []
        self._set_values([])

    def _np_reduce_fn(self, values: Any) -> float:
        """One number for a list of numbers, of which at least one is not NaN."""
        raise NotImplementedError(f"{type(self).__name__} must define _np_reduce_fn(values)")

    @staticmethod
    def _get_init_args(stats_object: Any = None, state: dict[str, Any] | None = None) -> dict[str, Any]:
        args = StatsBase._get_init_args(stats_object, state)
        args["window"] = stats_object._window if state is None else state["window"]
        return args

    def _set_values(self, values: Any) -> None:
        if self._window and self.is_leaf and not math.isinf(self._window):
            self.values = deque(values, maxlen=int(self._window))
        else:
            self.values = list(values)

    def push(self, value: Any) -> None:
        values = self.values
        values.append(value if type(value) is float else plain(value))
        if len(values) >= FOLD_AFTER and self._window is None:
            self._fold()

    def _fold(self) -> None:
        self.values = [self._reduced(self.values)]

    def _reduced(self, values: Any) -> Any:
        numbers = all_on_cpu(values)
        if len(numbers) == 1 and isinstance(numbers[0], float | int):
            return numbers[0]
        if not numbers or not len(numbers := _numbers(numbers)):
            return math.nan
        return self._np_reduce_fn(numbers)

    def merge(self, incoming_stats: list[Any]) -> None:
        self._require_merged()
        merged = [value for stats in incoming_stats for value in stats.values]
        self.values = [*self.values, *merged]
        self.latest_merged = merged

    def peek(self, compile: bool = True, latest_merged_only: bool = False) -> Any:
        if latest_merged_only:
            self._require_merged()
            if self.latest_merged is None:
                return math.nan if compile else []
        value = self._reduced(self.latest_merged if latest_merged_only else self.values)
        return value if compile else [value]

    def reduce(self, compile: bool = True) -> Any:
        value = self._reduced(self.values)
        self._set_values([])
        if compile:
            return value
        result = self.clone()
        result.values = [value]
        return result

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "values": all_on_cpu(self.values), "window": self._window}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._window = state["window"]
        self._set_values(state["values"])

    def __len__(self) -> int:
        return len(self.values)


def _numbers(values: list[Any]) -> Any:
    """The values that are not NaN: the list itself if it has only Python floats and integers without NaN."""
    for value in values:
        if not isinstance(value, float | int) or value != value:
            return without_nans(values)
    return values


class MeanStats(SeriesStats):
    """The mean. Merged, it is the mean of the processes' means."""

    stats_cls_identifier: ClassVar[str] = "mean"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._folded = (0.0, 0)  # sum and number of the values that are no longer in `values`
        super().__init__(*args, **kwargs)

    def _np_reduce_fn(self, values: Any) -> float:
        return float(sum(values) / len(values))

    def _fold(self) -> None:
        numbers = _numbers(all_on_cpu(self.values))
        total, count = self._folded
        self._folded = (total + float(sum(numbers)), count + len(numbers))
        self.values = []

    def _reduced(self, values: Any) -> Any:
        total, count = self._folded
        if values is not self.values or not count:
            return super()._reduced(values)
        numbers = _numbers(all_on_cpu(values)) if values else values
        return (total + float(sum(numbers))) / (count + len(numbers))

    def _set_values(self, values: Any) -> None:
        self._folded = (0.0, 0)
        super()._set_values(values)

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "folded": self._folded}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._folded = tuple(state.get("folded", (0.0, 0)))


class MinStats(SeriesStats):
    """The minimum."""

    stats_cls_identifier: ClassVar[str] = "min"

    def _np_reduce_fn(self, values: Any) -> float:
        return float(min(values))


class MaxStats(SeriesStats):
    """The maximum."""

    stats_cls_identifier: ClassVar[str] = "max"

    def _np_reduce_fn(self, values: Any) -> float:
        return float(max(values))


class EmaStats(StatsBase):
    """The exponential moving average: `ema_coeff * value + (1 - ema_coeff) * average`, over all cycles.

    Merged, it is the mean of the processes' averages since the last `reduce`.
    """

    stats_cls_identifier: ClassVar[str] = "ema"

    def __init__(
        self, ema_coeff: float = 0.01, is_root: bool = False, is_leaf: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(is_root=is_root, is_leaf=is_leaf, **kwargs)
        self._ema_coeff = ema_coeff
        self._value: Any = math.nan
        self._values_to_merge: list[Any] = []

    @staticmethod
    def _get_init_args(stats_object: Any = None, state: dict[str, Any] | None = None) -> dict[str, Any]:
        args = StatsBase._get_init_args(stats_object, state)
        args["ema_coeff"] = stats_object._ema_coeff if state is None else state["ema_coeff"]
        return args

    def push(self, value: Any) -> None:
        if type(value) is not float:
            value = plain(value)
        if value != value:
            return
        average = self._value
        if average != average:
            self._value = value
        else:
            self._value = self._ema_coeff * value + (1.0 - self._ema_coeff) * average

    def merge(self, incoming_stats: list[Any]) -> None:
        self._require_merged()
        averages = [stats._value for stats in incoming_stats]
        self._values_to_merge.extend(averages)
        self.latest_merged = averages

    def _current(self) -> Any:
        return _mean(self._values_to_merge) if self._values_to_merge else number(self._value)

    def peek(self, compile: bool = True, latest_merged_only: bool = False) -> Any:
        if latest_merged_only:
            self._require_merged()
            value = _mean(self.latest_merged or [])
        else:
            value = self._current()
        return value if compile else [value]

    def reduce(self, compile: bool = True) -> Any:
        value = self._current()
        self._values_to_merge = []
        if compile:
            return value
        result = self.clone()
        result._value = value
        return result

    def get_state(self) -> dict[str, Any]:
        state = {**super().get_state(), "ema_coeff": self._ema_coeff, "value": number(self._value)}
        if not self.is_leaf:
            state["values_to_merge"] = all_on_cpu(self._values_to_merge)
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._ema_coeff = state["ema_coeff"]
        self._value = state["value"]
        self._values_to_merge = list(state.get("values_to_merge", ()))

    def __len__(self) -> int:
        return 1


def _mean(values: list[Any]) -> float:
    numbers = _numbers(all_on_cpu(values)) if values else values
    return float(sum(numbers) / len(numbers)) if len(numbers) else math.nan
