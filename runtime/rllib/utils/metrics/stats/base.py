"""The interface of the values under one key of a `MetricsLogger`.

There are three kinds of one class. A leaf takes values (`push`). Others take what leaves in parallel processes gave
(`merge`): the root's, which sees all of them, and those in between. What `reduce(compile=False)` returns is what
travels from one to the next.
"""

from __future__ import annotations

import abc
import threading
import time
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import numpy as np


def plain(value: Any) -> Any:
    """The value, without a graph of gradients if it is a tensor. Tensors stay on their device."""
    detach = getattr(value, "detach", None)
    return value if detach is None else detach()


def on_cpu(value: Any) -> Any:
    """The value; a tensor as a Python number if it has no dimensions, else as an array."""
    if getattr(value, "detach", None) is None:
        return value
    array = value.detach().cpu().numpy()
    return array.item() if array.ndim == 0 else array


def number(value: Any) -> Any:
    """The only element of a tensor or array, as a Python number; other values as they are."""
    return value.item() if getattr(value, "ndim", None) is not None else value


def all_on_cpu(values: Iterable[Any]) -> list[Any]:
    """`on_cpu` of each; tensors of one shape move in one copy."""
    result = list(values)
    if result and all(getattr(value, "is_cuda", False) for value in result):
        torch = __import__("torch")
        if len({value.shape for value in result}) == 1:
            return [row.item() if row.ndim == 0 else row for row in torch.stack(result).cpu().numpy()]
    return [on_cpu(value) for value in result]


class StatsBase(abc.ABC):
    """The values under one key. A subclass has a `stats_cls_identifier`, which is its name as `reduce=`.

    Args:
        is_root: Whether this belongs to the logger at which all others' values arrive.
        is_leaf: Whether values are pushed here. Otherwise others' stats are merged here.
    """

    stats_cls_identifier: ClassVar[str] = ""

    def __init__(self, is_root: bool = False, is_leaf: bool = True) -> None:
        if not self.stats_cls_identifier:
            raise TypeError(
                f"{type(self).__name__} needs a class attribute `stats_cls_identifier`: its name as reduce="
            )
        self.is_root = is_root
        self.is_leaf = is_leaf
        self.latest_merged: Any = None
        self._started: dict[int, list[float]] | None = None  # by thread; the innermost block's is the last

    @property
    def has_throughputs(self) -> bool:
        """Whether a rate per second is measured, too."""
        return False

    @property
    def throughputs(self) -> Any:
        """The rate per second, or a dict of rates."""
        raise ValueError(f"{self!r} measures no throughput; log its values with with_throughput=True")

    def initialize_throughput_reference_time(self, time: float) -> None:  # noqa: B027 (most have none)
        """Makes `time` (of `time.perf_counter`) the start of the measurement of throughput."""

    @abc.abstractmethod
    def push(self, value: Any) -> None:
        """Adds a value. Only for leaves."""

    @abc.abstractmethod
    def merge(self, incoming_stats: list[Any]) -> None:
        """Adds what stats of this class in parallel processes gave. Not for leaves."""

    @abc.abstractmethod
    def peek(self, compile: bool = True, latest_merged_only: bool = False) -> Any:
        """The reduced value; in a list if not `compile`. Changes nothing.

        Args:
            compile: Whether to return one value.
            latest_merged_only: Whether to look only at the values of the last `merge`. Not for leaves.
        """

    @abc.abstractmethod
    def reduce(self, compile: bool = True) -> Any:
        """Ends a cycle: the reduced value if `compile`, else a new object of this class with the reduced value."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of values held."""

    @staticmethod
    def _get_init_args(stats_object: Any = None, state: dict[str, Any] | None = None) -> dict[str, Any]:
        """The arguments of the constructor that give an object with the settings of another, or of a state."""
        if state is not None:
            return {"is_root": state["is_root"], "is_leaf": state["is_leaf"]}
        return {"is_root": stats_object.is_root, "is_leaf": stats_object.is_leaf}

    def clone(self, init_overrides: dict[str, Any] | None = None) -> Self:
        """A new object with the same settings, without values."""
        return type(self)(**{**self._get_init_args(stats_object=self), **(init_overrides or {})})

    def get_state(self) -> dict[str, Any]:
        """Settings and values."""
        state = {
            "stats_cls_identifier": self.stats_cls_identifier,
            "is_root": self.is_root,
            "is_leaf": self.is_leaf,
        }
        if not self.is_leaf:
            state["latest_merged"] = self.latest_merged
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes the settings and values of `get_state`.

        Raises:
            ValueError: the state is that of another class.
        """
        if state["stats_cls_identifier"] != self.stats_cls_identifier:
            raise ValueError(
                f"The state is of {state['stats_cls_identifier']!r} stats, not of {self.stats_cls_identifier!r} stats"
            )
        self.is_root = state["is_root"]
        self.is_leaf = state["is_leaf"]
        if not self.is_leaf:
            self.latest_merged = state["latest_merged"]

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """A new object with the settings and values of `get_state`."""
        stats = cls(**cls._get_init_args(state=state))
        stats.set_state(state)
        return stats

    def _require_merged(self) -> None:
        """Raises ValueError on a leaf, which merges nothing."""
        if self.is_leaf:
            raise ValueError(
                f"{self!r} takes values, not other stats; latest_merged_only and merge() are not for it"
            )

    def __enter__(self) -> Self:
        """Starts the clock whose time `__exit__` pushes, in seconds. Each thread has its own; blocks may be nested."""
        if self._started is None:
            self._started = {}
        self._started.setdefault(threading.get_ident(), []).append(time.perf_counter())
        return self

    def __exit__(self, *error: object) -> None:
        stopped = time.perf_counter()
        assert self._started is not None
        thread = threading.get_ident()
        began = self._started[thread].pop()
        if not self._started[thread]:
            del self._started[thread]
        self.push(stopped - began)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state["_started"] = None
        return state

    def __float__(self) -> float:
        value = self.peek()
        if isinstance(value, list | tuple | dict):
            raise ValueError(f"{self!r} has no single value")
        return float(value)

    def __int__(self) -> int:
        return int(float(self))

    def __eq__(self, other: object) -> bool:
        return (
            float(self) == float(other) if isinstance(other, StatsBase | int | float | np.number) else False
        )

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> bool:
        return float(self) < float(other)

    def __le__(self, other: Any) -> bool:
        return float(self) <= float(other)

    def __gt__(self, other: Any) -> bool:
        return float(self) > float(other)

    def __ge__(self, other: Any) -> bool:
        return float(self) >= float(other)

    def __add__(self, other: Any) -> float:
        return float(self) + float(other)

    def __sub__(self, other: Any) -> float:
        return float(self) - float(other)

    def __mul__(self, other: Any) -> float:
        return float(self) * float(other)

    def __format__(self, spec: str) -> str:
        return format(float(self), spec)

    def __repr__(self) -> str:
        role = "leaf" if self.is_leaf else "root" if self.is_root else "intermediate"
        return f"{type(self).__name__}({len(self)} values, {role})"
