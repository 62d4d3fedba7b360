"""Methods of `Dataset` that choose, make, name and group by columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from runtime.data._plan import nodes
from runtime.data.grouped import GroupedData

from .compute import compute_of
from .transforms import Transforms


class Columns(Transforms):
    """See `Dataset`."""

    def select_columns(self, cols: str | Sequence[str], **options: Any) -> Self:
        """Keeps these columns, in this order.

        Raises:
            ValueError: one is named twice, or none is named.
        """
        names = [cols] if isinstance(cols, str) else list(cols)
        if not all(isinstance(name, str) for name in names):
            raise ValueError(f"select_columns needs names of columns, not {names!r}.")
        if len(set(names)) < len(names):
            raise ValueError(f"select_columns: a column is named twice in {names}.")
        return self._with(nodes.Project(self._node, tuple((name, _col(name)) for name in names), False))

    def drop_columns(self, cols: str | Sequence[str], **options: Any) -> Self:
        """Leaves these columns out."""
        names = [cols] if isinstance(cols, str) else list(cols)
        if len(set(names)) < len(names):
            raise ValueError(f"drop_columns: a column is named twice in {names}.")
        return self._with(nodes.Drop(self._node, tuple(names)))

    def rename_columns(self, names: Mapping[str, str] | Sequence[str], **options: Any) -> Self:
        """Gives columns other names: a dict of old to new names, or the new names of all columns.

        Raises:
            ValueError: an empty name, or new names that are equal.
        """
        if not isinstance(names, Mapping):
            current = self.columns() or []
            if len(current) != len(names):
                raise ValueError(f"rename_columns got {len(names)} names for {len(current)} columns.")
            names = dict(zip(current, names, strict=True))
        if not names or not all(isinstance(each, str) and each for pair in names.items() for each in pair):
            raise ValueError(f"rename_columns needs names of columns, not {names!r}.")
        if len(set(names.values())) < len(names):
            raise ValueError(f"rename_columns: several columns would get one name: {sorted(names.values())}.")
        return self._with(nodes.Rename(self._node, dict(names)))

    def with_column(self, column_name: str, expr: Any, **options: Any) -> Self:
        """Adds or replaces a column by an expression (`runtime.data.expressions`)."""
        return self.with_columns({column_name: expr}, **options)

    def with_columns(self, exprs: Mapping[str, Any], **options: Any) -> Self:
        """Adds or replaces columns by expressions."""
        for name, expr in exprs.items():
            if not hasattr(expr, "evaluate"):
                raise TypeError(f"with_column {name!r} needs an expression, e.g. col('a') + 1, not {expr!r}.")
        compute = compute_of(
            None, options.pop("compute", None), options.pop("concurrency", None), options, {}
        )
        return self._with(nodes.Project(self._node, tuple(exprs.items()), True, compute))

    def add_column(
        self, col: str, fn: Callable[[Any], Any], *, batch_format: str | None = "pandas", **options: Any
    ) -> Self:
        """Adds a column that a function makes of each batch."""

        def with_new_column(batch: Any) -> Any:
            values = fn(batch)
            if hasattr(batch, "append_column"):
                place = batch.schema.get_field_index(col)
                return batch.append_column(col, values) if place < 0 else batch.set_column(place, col, values)
            if isinstance(batch, dict):
                return {**batch, col: values}
            copy = batch.copy()
            copy[col] = values
            return copy

        if batch_format not in ("pandas", "pyarrow", "numpy", "default"):
            raise ValueError(f"batch_format must be 'pandas', 'pyarrow' or 'numpy', not {batch_format!r}.")
        return self.map_batches(with_new_column, batch_format=batch_format, **options)

    def groupby(self, key: str | Sequence[str] | None, num_partitions: int | None = None) -> GroupedData:
        """The groups of rows with equal keys.

        Args:
            num_partitions: how many blocks the result of its methods has; None: by size.
        """
        keys = () if key is None else (key,) if isinstance(key, str) else tuple(key)
        if num_partitions is not None and num_partitions < 1:
            raise ValueError(f"num_partitions must be at least 1, not {num_partitions}.")
        return GroupedData(self, keys, num_partitions)

    def columns(self, fetch_if_missing: bool = True) -> list[str] | None:
        """The names of the columns; None if that is not known without running the plan, and not wanted."""
        schema = self.schema(fetch_if_missing)
        return None if schema is None else list(schema.names)


def _col(name: str) -> Any:
    from runtime.data.expressions import col

    return col(name)
