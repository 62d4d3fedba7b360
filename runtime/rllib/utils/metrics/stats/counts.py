"""Sums: of one cycle, and over the lifetime of the root logger. Both may measure their growth per second."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from .base import StatsBase, number, plain
from .series import SeriesStats


class SumStats(SeriesStats):
    """The sum of a cycle's values, 0 if there are none; merged, the sum over the processes.

    Args:
        with_throughput: Whether to measure the sum per second since the last `reduce`.
    """

    stats_cls_identifier: ClassVar[str] = "sum"

    def __init__(self, with_throughput: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.track_throughput = with_throughput
        self._last_reduce_s = time.perf_counter() if with_throughput else 0.0

    @staticmethod
    def _get_init_args(stats_object: Any = None, state: dict[str, Any] | None = None) -> dict[str, Any]:
        args = SeriesStats._get_init_args(stats_object, state)
        args["with_throughput"] = (
            stats_object.track_throughput if state is None else state["track_throughput"]
        )
        return args

    def _np_reduce_fn(self, values: Any) -> Any:
        total = sum(values)
        return total if isinstance(total, int) else float(total)

    def _reduced(self, values: Any) -> Any:
        return super()._reduced(values) if values else 0

    @property
    def has_throughputs(self) -> bool:
        return self.track_throughput

    def initialize_throughput_reference_time(self, time: float) -> None:
        self._last_reduce_s = time

    @property
    def throughputs(self) -> float:
        if not self.track_throughput:
            return float(super().throughputs)
        value = self.peek()
        seconds = time.perf_counter() - self._last_reduce_s
        return float(value) / seconds if seconds > 0 else 0.0

    def reduce(self, compile: bool = True) -> Any:
        result = super().reduce(compile)
        if self.track_throughput:
            self._last_reduce_s = time.perf_counter()
        return result

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "track_throughput": self.track_throughput}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self.track_throughput = state["track_throughput"]
        self._last_reduce_s = time.perf_counter()


class LifetimeSumStats(StatsBase):
    """The sum of all values ever. Only the root keeps it: others send what was added since their last `reduce`.

    Args:
        with_throughput: Whether to measure the growth per second, since the last `reduce` and, at the root, since the
            start or the last restored checkpoint.
    """

    stats_cls_identifier: ClassVar[str] = "lifetime_sum"

    def __init__(
        self, with_throughput: bool = False, is_root: bool = False, is_leaf: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(is_root=is_root, is_leaf=is_leaf, **kwargs)
        self._lifetime_sum: Any = 0.0
        self.track_throughputs = with_throughput
        now = time.perf_counter() if with_throughput else 0.0
        self._last_reduce_s = self._last_restore_s = now
        self._at_last_reduce: Any = 0.0
        self._at_last_restore: Any = 0.0

    @staticmethod
    def _get_init_args(stats_object: Any = None, state: dict[str, Any] | None = None) -> dict[str, Any]:
        args = StatsBase._get_init_args(stats_object, state)
        args["with_throughput"] = (
            stats_object.track_throughputs if state is None else state["track_throughputs"]
        )
        return args

    @property
    def has_throughputs(self) -> bool:
        return self.track_throughputs

    def initialize_throughput_reference_time(self, time: float) -> None:
        self._last_reduce_s = self._last_restore_s = time

    def _rate(self, base: Any, since_s: float) -> float:
        seconds = time.perf_counter() - since_s
        return float(number(self._lifetime_sum) - base) / seconds if seconds > 0 else 0.0

    @property
    def throughput_since_last_reduce(self) -> float:
        """Growth per second since the last `reduce`."""
        return self._rate(self._at_last_reduce, self._last_reduce_s)

    @property
    def throughput_since_last_restore(self) -> float:
        """Growth per second since the start or the last `set_state`. Only at the root."""
        if not self.is_root:
            raise ValueError(f"{self!r} is not at the root, where checkpoints are restored")
        return self._rate(self._at_last_restore, self._last_restore_s)

    @property
    def throughputs(self) -> Any:
        if not self.track_throughputs:
            return super().throughputs
        rates = {"throughput_since_last_reduce": self.throughput_since_last_reduce}
        if self.is_root:
            rates["throughput_since_last_restore"] = self.throughput_since_last_restore
        return rates

    def push(self, value: Any) -> None:
        if type(value) is not int and type(value) is not float:
            value = plain(value)
        if value == value:
            self._lifetime_sum += value

    def merge(self, incoming_stats: list[Any]) -> None:
        self._require_merged()
        added = sum(number(stats._lifetime_sum) for stats in incoming_stats)
        self._lifetime_sum += added
        self.latest_merged = added

    def peek(self, compile: bool = True, latest_merged_only: bool = False) -> Any:
        if latest_merged_only:
            self._require_merged()
            value = self.latest_merged if self.latest_merged is not None else 0.0
        else:
            value = number(self._lifetime_sum)
        return value if compile else [value]

    def reduce(self, compile: bool = True) -> Any:
        value = number(self._lifetime_sum)
        if not self.is_root:
            self._lifetime_sum = 0.0
        self._at_last_reduce = value if self.is_root else 0.0
        if self.track_throughputs:
            self._last_reduce_s = time.perf_counter()
        if compile:
            return value
        result = self.clone()
        result._lifetime_sum = value
        return result

    def get_state(self) -> dict[str, Any]:
        return {
            **super().get_state(),
            "lifetime_sum": number(self._lifetime_sum),
            "track_throughputs": self.track_throughputs,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._lifetime_sum = state["lifetime_sum"]
        self.track_throughputs = state["track_throughputs"]
        self._at_last_reduce = self._at_last_restore = self._lifetime_sum
        self._last_reduce_s = self._last_restore_s = time.perf_counter()

    def __len__(self) -> int:
        return 1
