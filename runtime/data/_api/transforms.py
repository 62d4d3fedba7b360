"""Methods of `Dataset` that extend the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from runtime.data._plan import nodes
from runtime.data._plan.nodes import Udf

from .compute import compute_of
from .consuming import Consuming

JOINS = "inner left_outer right_outer full_outer left_semi right_semi left_anti right_anti".split()


class Transforms(Consuming):
    """See `Dataset`."""

    def map_batches(
        self,
        fn: Callable[..., Any],
        *,
        batch_size: int | str | None = None,
        compute: Any = None,
        batch_format: str | None = "default",
        zero_copy_batch: bool = True,
        fn_args: Iterable[Any] | None = None,
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Iterable[Any] | None = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        memory: float | None = None,
        concurrency: int | tuple[int, ...] | None = None,
        udf_modifying_row_count: bool = True,
        ray_remote_args_fn: Callable[[], Mapping[str, Any]] | None = None,
        **ray_remote_args: Any,
    ) -> Self:
        """Applies a function to batches.

        Args:
            fn: gets a batch and returns one, or yields several; a coroutine function or a class works, too. A class is
                constructed once in each actor of a pool.
            batch_size: rows; None: whole blocks.
            batch_format: "default", "numpy": dicts of arrays; "pandas", "pyarrow", "polars".
            zero_copy_batch: False gives arrays that may be written to.
            concurrency: tasks at a time; of a class: actors, or (least, most), or (least, most, initial).
            udf_modifying_row_count: no effect: limits stay behind functions of batches.

        Raises:
            ValueError, TypeError: the arguments do not fit together.
        """
        from runtime.data._block.batch import FORMATS

        if batch_format is not None and batch_format not in FORMATS:
            raise ValueError(f"batch_format must be one of {', '.join(FORMATS)}, not {batch_format!r}.")
        if batch_size == "default":
            batch_size = 1024
        if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
            raise ValueError(f"batch_size must be at least 1, not {batch_size!r}.")
        udf = Udf(
            "map_batches",
            _callable(fn),
            batch_size,
            batch_format,
            zero_copy_batch,
            tuple(fn_args or ()),
            dict(fn_kwargs or {}),
            tuple(fn_constructor_args or ()),
            dict(fn_constructor_kwargs or {}),
        )
        resources = {"num_cpus": num_cpus, "num_gpus": num_gpus, "memory": memory}
        if ray_remote_args_fn is not None:
            ray_remote_args = {**ray_remote_args, **ray_remote_args_fn()}
        return self._with(
            nodes.Transform(self._node, udf, compute_of(fn, compute, concurrency, resources, ray_remote_args))
        )

    def map(self, fn: Callable[..., Any], **options: Any) -> Self:
        """Applies a function to each row, which is a dict. Options: as for `map_batches`."""
        return self._by_row("map", fn, options)

    def flat_map(self, fn: Callable[..., Any], **options: Any) -> Self:
        """Applies a function that makes a list of rows of each row. Options: as for `map_batches`."""
        return self._by_row("flat_map", fn, options)

    def filter(self, fn: Callable[..., Any] | None = None, expr: Any = None, **options: Any) -> Self:
        """Keeps the rows for which a function or an expression is true. Options: as for `map_batches`.

        Args:
            fn: Gets a row, which is a dict.
            expr: For example `col("a") > 1`, or as text, "a > 1".
        """
        if (fn is None) == (expr is None):
            raise ValueError("filter needs either a function or `expr`.")
        if fn is not None:
            return self._by_row("filter", fn, options)
        if isinstance(expr, str):
            from runtime.data._predicate_text import parse

            expr = parse(expr)
        compute = options.pop("compute", None)
        concurrency = options.pop("concurrency", None)
        return self._with(nodes.Filter(self._node, expr, compute_of(None, compute, concurrency, options, {})))

    def _by_row(self, kind: nodes.UdfKind, fn: Callable[..., Any], options: dict[str, Any]) -> Self:
        udf = Udf(
            kind,
            _callable(fn),
            args=tuple(options.pop("fn_args", None) or ()),
            kwargs=dict(options.pop("fn_kwargs", None) or {}),
            constructor_args=tuple(options.pop("fn_constructor_args", None) or ()),
            constructor_kwargs=dict(options.pop("fn_constructor_kwargs", None) or {}),
        )
        compute, concurrency = options.pop("compute", None), options.pop("concurrency", None)
        per_task = options.pop("ray_remote_args_fn", None)
        remote_args = {**options, **(per_task() if per_task is not None else {})}
        return self._with(
            nodes.Transform(self._node, udf, compute_of(fn, compute, concurrency, {}, remote_args))
        )

    def limit(self, limit: int) -> Self:
        """The first rows."""
        if limit < 0:
            raise ValueError(f"limit needs a number of rows, not {limit}.")
        return self._with(nodes.Limit(self._node, limit))

    def union(self, *other: Self) -> Self:
        """The rows of this one, then those of the others."""
        return self._with(nodes.Union((self._node, *(each._node for each in other)))) if other else self

    def zip(self, *other: Self) -> Self:
        """The columns of several with the same number of rows side by side; names that exist get a number."""
        return self._with(nodes.Zip((self._node, *(each._node for each in other)))) if other else self

    def repartition(
        self,
        num_blocks: int | None = None,
        target_num_rows_per_block: int | None = None,
        *,
        strict: bool = False,
        shuffle: bool = False,
        keys: Sequence[str] | None = None,
        sort: bool = False,
    ) -> Self:
        """The same rows in other blocks: so many, or of so many rows each.

        Args:
            target_num_rows_per_block: of the rows of one task; the last block of a task may be smaller.
            strict: no effect.
            shuffle: no effect without keys: rows keep their order.
            keys: rows with equal keys are in one block; `sort` orders each block by them.
        """
        if (num_blocks is None) == (target_num_rows_per_block is None):
            raise ValueError("repartition needs either num_blocks or target_num_rows_per_block.")
        if target_num_rows_per_block is not None:
            if target_num_rows_per_block < 1 or keys:
                raise ValueError("target_num_rows_per_block must be at least 1, and goes without keys.")
            return self._with(nodes.Rebatch(self._node, target_num_rows_per_block))
        assert num_blocks is not None
        if num_blocks < 1:
            raise ValueError(f"num_blocks must be at least 1, not {num_blocks}.")
        return self._with(nodes.Repartition(self._node, num_blocks, tuple(keys or ()), sort))

    def random_shuffle(
        self, *, seed: Any = None, num_blocks: int | None = None, **ray_remote_args: Any
    ) -> Self:
        """All rows in random order."""
        return self._with(nodes.Shuffle(self._node, seed, num_blocks))

    def randomize_block_order(self, *, seed: Any = None) -> Self:
        """Whole blocks in random order."""
        return self._with(nodes.Shuffle(self._node, seed, None, rows_too=False))

    def random_sample(self, fraction: float, *, seed: Any = None) -> Self:
        """Each row with this probability."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"fraction must be between 0 and 1, not {fraction}.")
        return self._with(nodes.Sample(self._node, fraction, seed))

    def sort(
        self,
        key: str | Sequence[str],
        descending: bool | Sequence[bool] = False,
        boundaries: Sequence[Any] | None = None,
    ) -> Self:
        """The rows in order.

        Args:
            boundaries: of the first key, in its order: block i has the rows before boundary i.
        """
        keys = (key,) if isinstance(key, str) else tuple(key)
        down = (descending,) * len(keys) if isinstance(descending, bool) else tuple(descending)
        if not keys or len(keys) != len(down):
            raise ValueError(f"sort needs keys, and one direction for each: {keys} and {down}.")
        return self._with(
            nodes.Sort(self._node, keys, down, None if boundaries is None else tuple(boundaries))
        )

    def join(
        self,
        ds: Self,
        join_type: str,
        num_partitions: int | None = None,
        on: Sequence[str] = ("id",),
        right_on: Sequence[str] | None = None,
        left_suffix: str | None = None,
        right_suffix: str | None = None,
        *,
        partition_size_hint: int | None = None,
        aggregator_ray_remote_args: Mapping[str, Any] | None = None,
        validate_schemas: bool = False,
    ) -> Self:
        """The rows of both that have equal keys.

        Args:
            join_type: inner, left_outer, right_outer, full_outer, or left or right with _semi or _anti.
            num_partitions: how many tasks join, and more if one key has very many rows; None: by size.
            on, right_on: the keys on both sides; `right_on` by default as `on`.
        """
        if join_type not in JOINS:
            raise ValueError(f"join_type must be one of {', '.join(JOINS)}, not {join_type!r}.")
        keys = (on,) if isinstance(on, str) else tuple(on)
        other = keys if right_on is None else (right_on,) if isinstance(right_on, str) else tuple(right_on)
        if not keys or len(keys) != len(other):
            raise ValueError(f"join needs as many keys on both sides: {keys} and {other}.")
        node = nodes.Join(
            self._node, ds._node, keys, other, join_type, left_suffix, right_suffix, num_partitions
        )
        return self._with(node)


def _callable(fn: Callable[..., Any]) -> Callable[..., Any]:
    if not callable(fn):
        raise ValueError(f"A function or a class is needed, not {fn!r}.")
    return fn
