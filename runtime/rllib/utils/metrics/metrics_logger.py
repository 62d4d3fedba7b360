"""Metrics of parallel processes: logged where they arise, reduced, sent to the root logger, merged there.

A runner or a learner logs values and calls `reduce()`; what it returns goes to the algorithm's logger, the root, by
`aggregate()`; the root's `compile()` makes the result dict of an iteration. A cycle is the time between two `reduce()`
calls. `runtime.rllib.utils.metrics.stats` says what each reduction keeps and how it merges.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .stats import (
    EmaStats,
    ItemSeriesStats,
    ItemStats,
    LifetimeSumStats,
    MaxStats,
    MeanStats,
    MinStats,
    PercentilesStats,
    StatsBase,
    SumStats,
)

Key = str | tuple[str, ...]

# The reductions of log_value(reduce=...). More can be given to MetricsLogger and AlgorithmConfig.reporting().
DEFAULT_STATS_CLS_LOOKUP: dict[str, type[StatsBase]] = {
    cls.stats_cls_identifier: cls
    for cls in (
        MeanStats,
        EmaStats,
        MinStats,
        MaxStats,
        SumStats,
        LifetimeSumStats,
        PercentilesStats,
        ItemStats,
        ItemSeriesStats,
    )
}

_UNSET: Any = object()


class MetricsLogger:
    """Collects metrics under keys, which are strings or tuples of strings (nested).

    The first value logged under a key fixes its reduction and the reduction's settings; later calls give only the
    value. Logging costs about a microsecond.

    Args:
        root: Whether this logger sees all others' metrics. Only a root keeps lifetime sums.
        stats_cls_lookup: The reductions by name. Default: `DEFAULT_STATS_CLS_LOOKUP`.
    """

    def __init__(self, root: bool = False, stats_cls_lookup: dict[str, type[Any]] | None = None) -> None:
        self.stats: dict[str, Any] = {}
        self.stats_cls_lookup = DEFAULT_STATS_CLS_LOOKUP if stats_cls_lookup is None else stats_cls_lookup
        self._is_root_logger = root
        self._started_s = time.perf_counter()
        self._pushes: dict[
            Any, Callable[[Any], None]
        ] = {}  # of the keys logged before: log_value's fast path

    def __contains__(self, key: Key) -> bool:
        return self._find(key) is not None

    def log_value(
        self,
        key: Key,
        value: Any,
        *,
        reduce: str | None = None,
        window: int | float | None = None,
        ema_coeff: float | None = None,
        percentiles: Sequence[float] | bool | None = None,
        clear_on_reduce: bool | None = _UNSET,
        with_throughput: bool | None = None,
        throughput_ema_coeff: float | None = _UNSET,
        reduce_per_index_on_aggregate: bool | None = _UNSET,
        **kwargs: Any,
    ) -> None:
        """Logs a value.

        Args:
            key: Its name, or a path of names.
            value: A number, a tensor with one element, or an item of any type for "item" and "item_series". NaN counts
                as missing.
            reduce: "mean", "ema", "min", "max", "sum", "lifetime_sum", "percentiles", "item", "item_series", or a name
                in the logger's `stats_cls_lookup`. Default: "mean" with a window, else "ema".
            window: The number of last values of a cycle that count, for all but "ema", "lifetime_sum" and "item".
            ema_coeff: The weight of a new value, for "ema". Default: 0.01.
            percentiles: For "percentiles", numbers from 0 to 100.
            clear_on_reduce: Deprecated: False with reduce="sum" means "lifetime_sum".
            with_throughput: For "sum" and "lifetime_sum", whether to measure the growth per second, too.
            throughput_ema_coeff: Not supported.
            reduce_per_index_on_aggregate: Deprecated, has no effect.
            **kwargs: Further settings of a reduction of your own.

        Raises:
            ValueError: there is no such reduction, or a setting does not fit it.
        """
        try:
            push = self._pushes.get(key)
        except TypeError:  # a list of names
            push = None
        if push is None:
            stats = self._leaf(
                key,
                reduce=reduce or ("ema" if window is None else "mean"),
                window=window,
                ema_coeff=ema_coeff,
                percentiles=percentiles,
                clear_on_reduce=clear_on_reduce,
                with_throughput=with_throughput,
                throughput_ema_coeff=throughput_ema_coeff,
                reduce_per_index_on_aggregate=reduce_per_index_on_aggregate,
                **kwargs,
            )
            push = stats.push
            self._pushes[_path(key) if isinstance(key, list) else key] = push
        push(value)

    def log_dict(
        self,
        value_dict: Mapping[str, Any],
        *,
        key: Key | None = None,
        reduce: str | None = "mean",
        window: int | float | None = None,
        ema_coeff: float | None = None,
        percentiles: Sequence[float] | bool | None = None,
        clear_on_reduce: bool | None = _UNSET,
        with_throughput: bool | None = None,
        throughput_ema_coeff: float | None = _UNSET,
        reduce_per_index_on_aggregate: bool | None = _UNSET,
    ) -> None:
        """Logs each leaf of a nested dict under its path, below `key`. The settings are those of `log_value`.

        Raises:
            TypeError: `value_dict` is no dict.
        """
        if not isinstance(value_dict, Mapping):
            raise TypeError(f"log_dict takes a dict of values, not {value_dict!r}")
        prefix = () if key is None else _path(key)
        for name, value in value_dict.items():
            settings: dict[str, Any] = {
                "reduce": reduce,
                "window": window,
                "ema_coeff": ema_coeff,
                "percentiles": percentiles,
                "clear_on_reduce": clear_on_reduce,
                "with_throughput": with_throughput,
                "throughput_ema_coeff": throughput_ema_coeff,
                "reduce_per_index_on_aggregate": reduce_per_index_on_aggregate,
            }
            if isinstance(value, Mapping):
                self.log_dict(value, key=(*prefix, name), **settings)
            else:
                self.log_value((*prefix, name) if prefix else name, value, **settings)

    def log_time(
        self,
        key: Key,
        *,
        reduce: str = "ema",
        window: int | float | None = None,
        ema_coeff: float | None = None,
        percentiles: Sequence[float] | bool | None = None,
        clear_on_reduce: bool | None = _UNSET,
        with_throughput: bool | None = None,
        throughput_ema_coeff: float | None = _UNSET,
        reduce_per_index_on_aggregate: bool | None = _UNSET,
    ) -> StatsBase:
        """A context: `with logger.log_time("work"): ...` logs the block's seconds. The settings are `log_value`'s."""
        return self._leaf(
            key,
            reduce=reduce,
            window=window,
            ema_coeff=ema_coeff,
            percentiles=percentiles,
            clear_on_reduce=clear_on_reduce,
            with_throughput=with_throughput,
            throughput_ema_coeff=throughput_ema_coeff,
            reduce_per_index_on_aggregate=reduce_per_index_on_aggregate,
        )

    def aggregate(self, stats_dicts: Sequence[Mapping[str, Any]], *, key: Key | None = None) -> None:
        """Merges what `reduce()` returned in parallel processes, and adds it to what was merged before in this cycle.

        Means become means of the processes' means, sums are added, percentiles see all values (see
        `runtime.rllib.utils.metrics.stats`).

        Args:
            stats_dicts: What `reduce()` returned. They may differ in their keys.
            key: Where to put the metrics; None: at the top.

        Raises:
            ValueError: values were logged here under one of the keys. Log them under another key.
            TypeError: a leaf is no result of `reduce()`, for example because it was compiled.
        """
        target = self.stats
        path = () if key is None else _path(key)
        for name in path:
            target = target.setdefault(name, {})
            if not isinstance(target, dict):
                raise ValueError(f"{path} has a value and can have no keys below it")
        self._merge(target, list(stats_dicts), path)

    def _merge(
        self, target: dict[str, Any], incoming: list[Mapping[str, Any]], path: tuple[str, ...]
    ) -> None:
        for name in dict.fromkeys(name for stats_dict in incoming for name in stats_dict):
            items = [stats_dict[name] for stats_dict in incoming if name in stats_dict]
            own = target.get(name)
            if isinstance(items[0], Mapping):
                if own is not None and not isinstance(own, dict):
                    raise ValueError(f"{(*path, name)} has a value and can have no keys below it")
                self._merge(target.setdefault(name, {}), items, (*path, name))
                continue
            for item in items:
                if not isinstance(item, StatsBase):
                    raise TypeError(
                        f"{(*path, name)} is {item!r}. aggregate() takes what reduce() returns without compile=True"
                    )
            if own is None:
                own = items[0].clone({"is_root": self._is_root_logger, "is_leaf": False})
                if own.has_throughputs:
                    own.initialize_throughput_reference_time(self._started_s)
                target[name] = own
            elif isinstance(own, dict):
                raise ValueError(f"{(*path, name)} has keys below it and can have no value")
            elif own.is_leaf:
                raise ValueError(
                    f"{(*path, name)} was logged in this logger, so metrics of other loggers cannot be merged there. "
                    "Log it under another key"
                )
            own.merge(items)

    def peek(
        self,
        key: Key | None = None,
        default: Any = None,
        compile: bool = True,
        throughput: bool = False,
        latest_merged_only: bool = False,
    ) -> Any:
        """The reduced value under a key, or a dict of those below it. Changes nothing.

        Args:
            key: A name or a path; None: everything.
            default: What to return if there is nothing under the key. None: raise KeyError.
            compile: Whether to return values; otherwise lists with one or more values.
            throughput: Whether to return the growth per second instead. Only of the root.
            latest_merged_only: Whether to look only at the last `aggregate()`. Not for values logged here.

        Raises:
            KeyError: there is nothing under the key, and no default.
        """
        if throughput:
            if not self._is_root_logger:
                raise ValueError("Only a root logger has throughputs: MetricsLogger(root=True)")
            return self._throughputs(key, default)
        found = self.stats if key is None else self._find(key)
        if found is None or (found == {} and key is not None):
            if default is None:
                raise KeyError(key)
            return default
        return _mapped(
            found, lambda stats: stats.peek(compile=compile, latest_merged_only=latest_merged_only)
        )

    @staticmethod
    def peek_results(results: Any, compile: bool = True) -> Any:
        """The values of what `reduce()` returned. Other leaves stay as they are."""
        return _mapped(
            results, lambda leaf: leaf.peek(compile=compile) if isinstance(leaf, StatsBase) else leaf
        )

    def reduce(self, compile: bool = False) -> dict[str, Any]:
        """Ends a cycle: a nested dict of what was logged, to be sent to a logger that calls `aggregate()`.

        Args:
            compile: Whether the leaves are values, which cannot be merged any more.
        """
        return {
            name: _mapped(stats, lambda leaf: leaf.reduce(compile=compile))
            for name, stats in self.stats.items()
        }

    def compile(self) -> dict[str, Any]:
        """Ends a cycle: a nested dict of values, and of throughputs under the key with "_throughput" at its end."""
        throughputs = self._throughputs(None, {})
        values = _mapped(self.reduce(compile=True), lambda leaf: _only(leaf))
        _update(values, throughputs)
        return dict(values)

    def set_value(self, key: Key, value: Any, **settings: Any) -> None:
        """Replaces what was logged under a key by this value. The settings are those of `log_value`."""
        found = self._find(key)
        if isinstance(found, StatsBase):
            self._put(_path(key), found.clone({"is_leaf": True}))
        self.log_value(key, value, **settings)

    def reset(self) -> None:
        """Forgets all keys."""
        self.stats = {}
        self._pushes.clear()

    def delete(self, *key: Any, key_error: bool = True) -> None:
        """Forgets a key, given as names or as one path, and all below it.

        Raises:
            KeyError: there is no such key, and `key_error` is True.
        """
        path = _path(key)
        parent = self._find(path[:-1])
        if isinstance(parent, dict) and path[-1] in parent:
            del parent[path[-1]]
            self._pushes.clear()
        elif key_error:
            raise KeyError(path)

    def get_state(self) -> dict[str, Any]:
        """The state of all stats, by path: names joined by "--"."""
        states: dict[str, Any] = {}

        def collect(path: tuple[str, ...], found: Any) -> None:
            if isinstance(found, dict):
                for name, below in found.items():
                    collect((*path, str(name)), below)
            else:
                states["--".join(path)] = found.get_state()

        collect((), self.stats)
        return {"stats": states}

    def set_state(self, state: dict[str, Any]) -> None:
        """Replaces everything by a state of `get_state`.

        Raises:
            ValueError: the state has a reduction that this logger does not know.
        """
        self.reset()
        for name, stats_state in state["stats"].items():
            cls = self._reduction(stats_state["stats_cls_identifier"])
            self._put(tuple(name.split("--")), cls.from_state(stats_state))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pushes": {}}

    def _reduction(self, name: str) -> type[Any]:
        try:
            return self.stats_cls_lookup[name]
        except KeyError:
            known = ", ".join(map(repr, self.stats_cls_lookup))
            raise ValueError(f"There is no reduction {name!r}; this logger has {known}") from None

    def _leaf(
        self,
        key: Key,
        *,
        reduce: str,
        window: int | float | None,
        ema_coeff: float | None,
        percentiles: Sequence[float] | bool | None,
        clear_on_reduce: bool | None,
        with_throughput: bool | None,
        throughput_ema_coeff: float | None,
        reduce_per_index_on_aggregate: bool | None,
        **kwargs: Any,
    ) -> StatsBase:
        """The stats under a key, made with these settings if there are none."""
        path = _path(key)
        found = self._find(path)
        if isinstance(found, StatsBase):
            return found
        if found is not None:
            raise ValueError(f"{path} has keys below it and can have no value")
        if clear_on_reduce is not _UNSET and clear_on_reduce is not None:
            warnings.warn(
                "clear_on_reduce is deprecated; use reduce='lifetime_sum'", DeprecationWarning, stacklevel=3
            )
            if reduce == "sum" and not clear_on_reduce:
                reduce = "lifetime_sum"
        if reduce_per_index_on_aggregate is not _UNSET:
            warnings.warn("reduce_per_index_on_aggregate has no effect", DeprecationWarning, stacklevel=3)
        if throughput_ema_coeff is not _UNSET:
            raise ValueError(
                "throughput_ema_coeff is not supported: throughput is measured once per reduce()"
            )
        cls = self._reduction(reduce)
        own = cls is DEFAULT_STATS_CLS_LOOKUP.get(reduce)
        given = {
            "window": window,
            "ema_coeff": ema_coeff,
            "percentiles": percentiles,
            "with_throughput": with_throughput or None,
        }
        for setting, value in given.items():
            if value is None or value is False:
                continue
            if own and reduce not in _REDUCTIONS_WITH[setting]:
                fitting = " or ".join(repr(name) for name in _REDUCTIONS_WITH[setting])
                raise ValueError(f"{setting}= does not go with reduce={reduce!r}, only with {fitting}")
            kwargs[setting] = value
        stats: StatsBase = cls(is_root=self._is_root_logger, is_leaf=True, **kwargs)
        self._put(path, stats)
        return stats

    def _find(self, key: Any) -> Any:
        """The stats or dict under a key, or None."""
        found: Any = self.stats
        for name in _path(key):
            if not isinstance(found, dict) or name not in found:
                return None
            found = found[name]
        return found

    def _put(self, path: tuple[str, ...], stats: StatsBase) -> None:
        parent = self.stats
        for name in path[:-1]:
            parent = parent.setdefault(name, {})
            if not isinstance(parent, dict):
                raise ValueError(f"{path} lies below a key that has a value")
        parent[path[-1]] = stats
        self._pushes.pop(path, None)
        if len(path) == 1:
            self._pushes.pop(path[0], None)

    def _throughputs(self, key: Key | None, default: Any) -> Any:
        found = self.stats if key is None else self._find(key)
        if found is None or found == {}:
            return default
        if isinstance(found, StatsBase):
            return found.throughputs

        def below(stats: dict[str, Any]) -> dict[str, Any]:
            result: dict[str, Any] = {}
            for name, leaf in stats.items():
                if isinstance(leaf, dict):
                    if rates := below(leaf):
                        result[name] = rates
                elif leaf.has_throughputs:
                    result[f"{name}_throughput"] = leaf.throughputs
            return result

        return below(found) or default


# Which reductions have a setting of log_value.
_REDUCTIONS_WITH = {
    "window": ("mean", "min", "max", "sum", "percentiles", "item_series"),
    "ema_coeff": ("ema",),
    "percentiles": ("percentiles",),
    "with_throughput": ("sum", "lifetime_sum"),
}


def _path(key: Any) -> tuple[Any, ...]:
    """A key as a flat tuple of names."""
    if isinstance(key, tuple | list):
        if all(type(name) is str for name in key):
            return tuple(key)
        return tuple(name for part in key for name in _path(part))
    return (key,)


def _mapped(tree: Any, function: Callable[[Any], Any]) -> Any:
    """`function` of each leaf of nested dicts."""
    if isinstance(tree, dict):
        return {name: _mapped(below, function) for name, below in tree.items()}
    return function(tree)


def _only(value: Any) -> Any:
    """The element of a list that has one."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _update(target: dict[str, Any], other: dict[str, Any]) -> None:
    for name, value in other.items():
        if isinstance(value, dict) and isinstance(target.get(name), dict):
            _update(target[name], value)
        else:
            target[name] = value
