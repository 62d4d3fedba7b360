"""`GroupedData`: the groups of `Dataset.groupby`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from runtime.data._api.compute import compute_of
from runtime.data._api.numbers import Names, Numbers
from runtime.data._plan import nodes
from runtime.data._plan.nodes import Udf


class Rows(Protocol):
    """What it asks of its data set."""

    _node: nodes.Node

    def _with(self, node: nodes.Node) -> Any: ...

    def columns(self, fetch_if_missing: bool = True) -> list[str] | None: ...


class GroupedData(Numbers):
    """Rows by the values of some columns. Its methods give a `Dataset`; those of numbers are by default of all columns
    but the keys."""

    def __init__(self, dataset: Rows, keys: tuple[str, ...], num_partitions: int | None) -> None:
        self._dataset = dataset
        self._keys = keys
        self._blocks = num_partitions

    def __repr__(self) -> str:
        return f"GroupedData(keys={list(self._keys)}, dataset={self._dataset!r})"

    def aggregate(self, *aggs: Any) -> Any:
        """One row for each group, with its keys and the results of aggregations (`runtime.data.aggregate`), in no
        particular order."""
        return self._made(nodes.Aggregate(self._dataset._node, self._keys, aggs, self._blocks))

    def map_groups(
        self,
        fn: Callable[..., Any],
        *,
        zero_copy_batch: bool = True,
        compute: Any = None,
        batch_format: str | None = "default",
        fn_args: Iterable[Any] | None = None,
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Iterable[Any] | None = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        memory: float | None = None,
        concurrency: int | tuple[int, ...] | None = None,
        **ray_remote_args: Any,
    ) -> Any:
        """Applies a function to the rows of each group, as one batch.

        Arguments: as for `Dataset.map_batches`, but "default" is "pandas" here.
        """
        udf = Udf(
            "map_groups",
            fn,
            None,
            "pandas" if batch_format == "default" else batch_format,
            zero_copy_batch,
            tuple(fn_args or ()),
            dict(fn_kwargs or {}),
            tuple(fn_constructor_args or ()),
            dict(fn_constructor_kwargs or {}),
            self._keys,
        )
        resources = {"num_cpus": num_cpus, "num_gpus": num_gpus, "memory": memory}
        where = compute_of(fn, compute, concurrency, resources, ray_remote_args)
        return self._made(nodes.MapGroups(self._dataset._node, self._keys, udf, where, self._blocks))

    def count(self) -> Any:
        """The number of rows of each group, as `count()`."""
        from runtime.data.aggregate import Count

        return self.aggregate(Count())

    def _each(self, kind: Callable[..., Any], on: Names, ignore_nulls: bool, **options: Any) -> Any:
        if isinstance(on, str):
            on = [on]
        if on is None:
            on = [name for name in (self._dataset.columns() or []) if name not in self._keys]
        return self.aggregate(*(kind(name, ignore_nulls=ignore_nulls, **options) for name in on))

    def _made(self, node: nodes.Node) -> Any:
        return self._dataset._with(node)
