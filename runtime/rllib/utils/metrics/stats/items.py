"""Values that are not reduced: the last one, and a series of them."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, ClassVar

from .base import StatsBase, all_on_cpu, on_cpu


class ItemStats(StatsBase):
    """The last value of a cycle, of any type. It cannot be merged over several processes."""

    stats_cls_identifier: ClassVar[str] = "item"

    def __init__(self, is_root: bool = False, is_leaf: bool = True, **kwargs: Any) -> None:
        super().__init__(is_root=is_root, is_leaf=is_leaf, **kwargs)
        self._item: Any = None

    def push(self, value: Any) -> None:
        self._item = on_cpu(value)

    def merge(self, incoming_stats: list[Any]) -> None:
        self._require_merged()
        if len(incoming_stats) != 1:
            raise ValueError(
                f"{len(incoming_stats)} processes logged an item under one key. Use another reduction, such as 'mean' "
                "or 'item_series'"
            )
        self._item = incoming_stats[0]._item

    def peek(self, compile: bool = True, latest_merged_only: bool = False) -> Any:
        return self._item if compile else [self._item]

    def reduce(self, compile: bool = True) -> Any:
        item, self._item = self._item, None
        if compile:
            return item
        result = self.clone()
        result._item = item
        return result

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "item": self._item}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._item = state["item"]

    def __len__(self) -> int:
        return 1


class ItemSeriesStats(StatsBase):
    """All values of a cycle, of any type; merged, the series of all processes one after the other.

    Args:
        window: Only the last `window` values of each process in a cycle are kept. None: all.
    """

    stats_cls_identifier: ClassVar[str] = "item_series"

    def __init__(
        self, window: int | float | None = None, is_root: bool = False, is_leaf: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(is_root=is_root, is_leaf=is_leaf, **kwargs)
        self._window = window
        self.items: Any = []
        self._set_items([])

    @staticmethod
    def _get_init_args(stats_object: Any = None, state: dict[str, Any] | None = None) -> dict[str, Any]:
        args = StatsBase._get_init_args(stats_object, state)
        args["window"] = stats_object._window if state is None else state["window"]
        return args

    def _set_items(self, items: Any) -> None:
        if self._window and self.is_leaf and not math.isinf(self._window):
            self.items = deque(items, maxlen=int(self._window))
        else:
            self.items = list(items)

    def push(self, value: Any) -> None:
        self.items.append(value)

    def merge(self, incoming_stats: list[Any]) -> None:
        self._require_merged()
        merged = [item for stats in incoming_stats for item in stats.items]
        self.items = [*self.items, *merged]
        self.latest_merged = merged

    def peek(self, compile: bool = True, latest_merged_only: bool = False) -> Any:
        if latest_merged_only:
            self._require_merged()
        items = all_on_cpu((self.latest_merged or []) if latest_merged_only else self.items)
        return math.nan if compile and not items else items

    def reduce(self, compile: bool = True) -> Any:
        items = all_on_cpu(self.items)
        self._set_items([])
        if compile:
            return items
        result = self.clone()
        result._set_items(items)
        return result

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "items": all_on_cpu(self.items), "window": self._window}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._window = state["window"]
        self._set_items(state["items"])

    def __len__(self) -> int:
        return len(self.items)
