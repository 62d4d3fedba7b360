"""Percentiles of the values of all processes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar

from .base import StatsBase, all_on_cpu, plain

DEFAULT_PERCENTILES = (0, 50, 75, 90, 95, 99, 100)


def compute_percentiles(sorted_list: Sequence[Any], percentiles: Sequence[float]) -> dict[float, Any]:
    """For each percentile (0 to 100) its value, interpolated between neighbours; None for each if there are no values.

    Args:
        sorted_list: The values in ascending order.
        percentiles: Numbers between 0 and 100.
    """
    if not sorted_list:
        return dict.fromkeys(percentiles)
    result: dict[float, Any] = {}
    for percentile in percentiles:
        position = percentile / 100 * (len(sorted_list) - 1)
        below = math.floor(position)
        weight = position - below
        value = sorted_list[below]
        result[percentile] = value if weight == 0 else value * (1 - weight) + sorted_list[below + 1] * weight
    return result


class PercentilesStats(StatsBase):
    """Percentiles of the last values. Merging joins the values of all processes, so the percentiles are exact.

    Args:
        percentiles: Which ones, from 0 to 100. None or True: 0, 50, 75, 90, 95, 99 and 100.
        window: Only the last `window` values of each process in a cycle count. None: all.
    """

    stats_cls_identifier: ClassVar[str] = "percentiles"

    def __init__(
        self,
        percentiles: Sequence[float] | bool | None = None,
        window: int | float | None = None,
        is_root: bool = False,
        is_leaf: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(is_root=is_root, is_leaf=is_leaf, **kwargs)
        if percentiles is None or percentiles is True:
            percentiles = DEFAULT_PERCENTILES
        if isinstance(percentiles, bool) or not all(0 <= percentile <= 100 for percentile in percentiles):
            raise ValueError(f"percentiles must be numbers from 0 to 100, not {percentiles!r}")
        self._percentiles = list(percentiles)
        self._window = window
        self.values: Any = []
        self._set_values([])

    @staticmethod
    def _get_init_args(stats_object: Any = None, state: dict[str, Any] | None = None) -> dict[str, Any]:
        args = StatsBase._get_init_args(stats_object, state)
        args["percentiles"] = stats_object._percentiles if state is None else state["percentiles"]
        args["window"] = stats_object._window if state is None else state["window"]
        return args

    def _set_values(self, values: Any) -> None:
        if self._window and self.is_leaf and not math.isinf(self._window):
            self.values = deque(values, maxlen=int(self._window))
        else:
            self.values = list(values)

    def push(self, value: Any) -> None:
        if type(value) is not float:
            value = plain(value)
        if value != value:
            raise ValueError("NaN has no place among values of which percentiles are taken")
        self.values.append(value)

    def merge(self, incoming_stats: list[Any]) -> None:
        self._require_merged()
        for stats in incoming_stats:
            if stats._percentiles != self._percentiles or stats._window != self._window:
                raise ValueError(
                    f"Stats with percentiles {stats._percentiles} and window {stats._window} cannot be merged into "
                    f"those with {self._percentiles} and {self._window}; log the key with the same settings everywhere"
                )
        merged = [value for stats in incoming_stats for value in stats.values]
        self.values = [*self.values, *merged]
        self.latest_merged = merged

    def peek(self, compile: bool = True, latest_merged_only: bool = False) -> Any:
        if latest_merged_only:
            self._require_merged()
        values = sorted(all_on_cpu((self.latest_merged or []) if latest_merged_only else self.values))
        return compute_percentiles(values, self._percentiles) if compile else values

    def reduce(self, compile: bool = True) -> Any:
        values = sorted(all_on_cpu(self.values))
        self._set_values([])
        if compile:
            return compute_percentiles(values, self._percentiles)
        result = self.clone()
        result.values = values
        return result

    def get_state(self) -> dict[str, Any]:
        return {
            **super().get_state(),
            "values": all_on_cpu(self.values),
            "window": self._window,
            "percentiles": self._percentiles,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._window = state["window"]
        self._percentiles = list(state["percentiles"])
        self._set_values(state["values"])

    def __len__(self) -> int:
        return len(self.values)
