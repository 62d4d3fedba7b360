"""Expressions of columns: `col("price") * col("amount") > 100`, for `filter(expr=)` and `with_column`.

An expression is an immutable tree. It is evaluated on a block by Arrow's compute functions, and readers push it down
into files where all of it is Arrow's (`to_arrow`).
"""

from __future__ import annotations

import functools
import itertools
import logging
import uuid as uuids
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from runtime.data._block import batch
from runtime.data._block.schema_diff import convert
from runtime.data._block.states import one_chunk
from runtime.data._expression import (
    FIRST,
    AliasExpr,
    ColumnExpr,
    Expr,
    FunctionExpr,
    LiteralExpr,
    Position,
    expression,
)
from runtime.data.datatype import arrow_type

__all__ = [
    "AliasExpr",
    "ColumnExpr",
    "DownloadExpr",
    "Expr",
    "FunctionExpr",
    "LiteralExpr",
    "MonotonicallyIncreasingIdExpr",
    "Position",
    "RandomExpr",
    "StarExpr",
    "UDFExpr",
    "UUIDExpr",
    "UnnestExpr",
    "col",
    "download",
    "filter_table",
    "lit",
    "monotonically_increasing_id",
    "project",
    "pyarrow_udf",
    "random",
    "star",
    "udf",
    "unnest",
    "uuid",
]

logger = logging.getLogger(__name__)

_DOWNLOADS = 16
"""Downloads of one block at the same time."""


def col(name: str) -> ColumnExpr:
    """A column."""
    return ColumnExpr(name)


def lit(value: Any) -> LiteralExpr:
    """A value that is the same for all rows."""
    return LiteralExpr(value)


def star() -> StarExpr:
    """All columns, in a projection."""
    return StarExpr()


def unnest(expr: Expr) -> UnnestExpr:
    """The fields of a struct as columns, in a projection."""
    return UnnestExpr(expr)


def monotonically_increasing_id() -> MonotonicallyIncreasingIdExpr:
    """A number for each row, larger for later rows of a task, and of no other row; not without gaps."""
    return MonotonicallyIncreasingIdExpr()


def random(*, seed: int | None = None, reseed_after_execution: bool = True) -> RandomExpr:
    """A random float from 0 up to 1 for each row.

    Args:
        seed: None for other numbers each time.
        reseed_after_execution: accepted as Ray does; numbers of a seed are the same in each execution.
    """
    return RandomExpr(seed)


def uuid() -> UUIDExpr:
    """A random UUID, as text, for each row."""
    return UUIDExpr()


def download(uri_column_name: str, *, filesystem: Any = None) -> DownloadExpr:
    """The bytes of the file that each row names; null where it is missing or cannot be read, which is logged.

    Args:
        filesystem: of fsspec or `pyarrow.fs`; None for the one that the URI names.
    """
    return DownloadExpr(uri_column_name, filesystem)


def udf(return_dtype: Any) -> Callable[[Any], Callable[..., UDFExpr]]:
    """Makes a function of columns one of expressions.

        @udf(DataType.int64())
        def double(x: pa.Array) -> pa.Array: ...

        ds.with_column("y", double(col("x")))

    It is called once for each block, with arrays of Arrow, and returns an array of Arrow or numpy, or a list. Of a
    class with `__call__`, one instance is made in each process: `Model("path")(col("x"))`.

    Args:
        return_dtype: the type of the result: a DataType, or a type of Arrow.
    """
    kind = arrow_type(return_dtype)

    def decorate(function: Any) -> Callable[..., Any]:
        if isinstance(function, type):

            @functools.wraps(function, updated=())
            def construct(*args: Any, **kwargs: Any) -> Callable[..., UDFExpr]:
                return _applied(_Instance(function, args, kwargs), kind)

            return construct
        return functools.wraps(function)(_applied(function, kind))

    return decorate


pyarrow_udf = udf
"""As `udf`, which passes arrays of Arrow too."""


def _applied(function: Callable[..., Any], kind: pa.DataType) -> Callable[..., UDFExpr]:
    def apply(*args: Any, **kwargs: Any) -> UDFExpr:
        values = (*args, *kwargs.values())
        return UDFExpr(function, kind, tuple(map(expression, values)), tuple(kwargs))

    return apply


class _Instance:
    """An instance of a class that is made when it is called first, in each process."""

    def __init__(self, made_of: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._recipe = (made_of, args, kwargs)
        self._instance: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._instance is None:
            made_of, init_args, init_kwargs = self._recipe
            self._instance = made_of(*init_args, **init_kwargs)
        return self._instance(*args, **kwargs)

    def __reduce__(self) -> Any:
        return _Instance, self._recipe

    @property
    def __name__(self) -> str:
        return self._recipe[0].__name__


@dataclass(frozen=True, eq=False, repr=False)
class UDFExpr(Expr):
    """A function of user code."""

    function: Callable[..., Any]
    kind: pa.DataType
    args: tuple[Expr, ...]
    keywords: tuple[str, ...] = ()
    """Names of the last arguments."""

    def _value(self, table: pa.Table, position: Position) -> Any:
        values = [one_chunk(arg.evaluate(table, position)) for arg in self.args]
        count = len(values) - len(self.keywords)
        result = self.function(*values[:count], **dict(zip(self.keywords, values[count:], strict=True)))
        column = batch.column_of(result, repr(self))
        if len(column) != table.num_rows:
            raise ValueError(f"{self!r} returned {len(column)} values for {table.num_rows} rows")
        chunked = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
        return convert(chunked, self.kind)

    def children(self) -> tuple[Expr, ...]:
        return self.args

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return UDFExpr(self.function, self.kind, tuple(children), self.keywords)

    def fingerprint(self) -> Hashable:
        return ("udf", id(self.function), self.keywords, *(arg.fingerprint() for arg in self.args))

    def get_type(self, input_schema: pa.Schema) -> pa.DataType:
        return self.kind

    def is_idempotent(self) -> bool:
        return False

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return f"{name}({', '.join(map(repr, self.args))})"


@dataclass(frozen=True, eq=False, repr=False)
class StarExpr(Expr):
    """All columns."""

    def expand_projection(self, input_schema: pa.Schema | None) -> list[Expr]:
        if input_schema is None:
            return [self]
        return [ColumnExpr(name) for name in input_schema.names]

    def __repr__(self) -> str:
        return "star()"


@dataclass(frozen=True, eq=False, repr=False)
class UnnestExpr(Expr):
    """The fields of a struct."""

    expr: Expr

    def children(self) -> tuple[Expr, ...]:
        return (self.expr,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return UnnestExpr(children[0])

    def expand_projection(self, input_schema: pa.Schema | None) -> list[Expr]:
        if input_schema is None:
            return [self]
        kind = self.expr.get_type(input_schema)
        if not pa.types.is_struct(kind):
            raise TypeError(f"unnest needs a struct, not {kind}")
        return [self.expr.struct.field(part.name).alias(part.name) for part in kind]

    def __repr__(self) -> str:
        return f"unnest({self.expr!r})"


@dataclass(frozen=True, eq=False, repr=False)
class MonotonicallyIncreasingIdExpr(Expr):
    """A number for each row: the task's in 30 bits, then the row's in 33 bits."""

    def _value(self, table: pa.Table, position: Position) -> Any:
        first = (position.task << 33) + position.row
        return pa.array(np.arange(first, first + table.num_rows))

    def is_idempotent(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "monotonically_increasing_id()"


_random_numbers = itertools.count()


@dataclass(frozen=True, eq=False, repr=False)
class RandomExpr(Expr):
    """Random floats."""

    seed: int | None = None
    _number: int = field(default_factory=lambda: next(_random_numbers))

    def _value(self, table: pa.Table, position: Position) -> Any:
        seeds = None if self.seed is None else (self.seed & 0xFFFFFFFFFFFFFFFF, position.task, position.row)
        return pa.array(np.random.default_rng(seeds).random(table.num_rows))

    def is_idempotent(self) -> bool:
        return False

    def fingerprint(self) -> Hashable:
        return ("random", self.seed, self._number if self.seed is None else 0)

    def __repr__(self) -> str:
        return "random()" if self.seed is None else f"random(seed={self.seed})"


@dataclass(frozen=True, eq=False, repr=False)
class UUIDExpr(Expr):
    """Random UUIDs."""

    def _value(self, table: pa.Table, position: Position) -> Any:
        return pa.array([str(uuids.uuid4()) for _ in range(table.num_rows)], pa.string())

    def is_idempotent(self) -> bool:
        return False

    def fingerprint(self) -> Hashable:
        return ("uuid", id(self))

    def __repr__(self) -> str:
        return "uuid()"


@dataclass(frozen=True, eq=False, repr=False)
class DownloadExpr(Expr):
    """The bytes of files."""

    uri_column_name: str
    filesystem: Any = None

    def _value(self, table: pa.Table, position: Position) -> Any:
        uris = ColumnExpr(self.uri_column_name).evaluate(table).to_pylist()
        with ThreadPoolExecutor(min(_DOWNLOADS, max(1, len(uris))), "download") as pool:
            return pa.array(list(pool.map(self._download, uris)), pa.large_binary())

    def _download(self, uri: str | None) -> bytes | None:
        if uri is None:
            return None
        try:
            if hasattr(self.filesystem, "open_input_stream"):
                with self.filesystem.open_input_stream(uri) as stream:
                    data: bytes = stream.readall()
                    return data
            if self.filesystem is not None:
                return bytes(self.filesystem.cat_file(uri))
            import fsspec

            with fsspec.open(uri, "rb") as file:
                return bytes(file.read())
        except (OSError, ValueError, ImportError) as error:
            logger.warning("download of %s failed: %s", uri, error)
            return None

    def columns(self) -> set[str]:
        return {self.uri_column_name}

    def replace_columns(self, by: Mapping[str, Expr]) -> Expr:
        source = by.get(self.uri_column_name)
        if source is None:
            return self
        if isinstance(source, ColumnExpr):
            return DownloadExpr(str(source.name), self.filesystem)
        raise ValueError(f"{self!r} reads a column, not an expression")

    def fingerprint(self) -> Hashable:
        return ("download", self.uri_column_name, id(self.filesystem))

    def is_idempotent(self) -> bool:
        return False

    def get_type(self, input_schema: pa.Schema) -> pa.DataType:
        return pa.large_binary()

    def __repr__(self) -> str:
        return f"download({self.uri_column_name!r})"


def project(table: pa.Table, exprs: Mapping[str, Expr], position: Position = FIRST) -> pa.Table:
    """A block of named expressions, in their order."""
    if not exprs:
        return batch.empty_columns(table.num_rows)
    return pa.table({name: expr.evaluate(table, position) for name, expr in exprs.items()})


def filter_table(table: pa.Table, predicate: Expr, position: Position = FIRST) -> pa.Table:
    """The rows for which the predicate is true; those for which it is null are left out.

    Raises:
        TypeError: the predicate is no truth value.
    """
    mask = predicate.evaluate(table, position)
    if not pa.types.is_boolean(mask.type):
        raise TypeError(
            f"a filter needs an expression that is true or false, not {predicate!r} of type {mask.type}"
        )
    return table.filter(mask)
