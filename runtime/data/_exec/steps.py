"""The steps of a task: functions of a stream of tables that give another one. They run in workers, or in the driver
(`local`)."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runtime.data._plan import nodes
from runtime.data._plan.nodes import Udf

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_A_TIME = 4096
"""So many rows are dicts at a time, with what a function makes of them: few enough for the caches of a core."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The task that a step runs in. `order`: see `bundles.Order`. `args`: of its work."""

    order: tuple[int, ...] = ()
    args: tuple[Any, ...] = ()


Tables = Iterator["pa.Table"]
Step = Callable[[Tables, Attempt], Tables]


def step_of(node: nodes.Node) -> Step:
    """What a node of a chain does."""
    match node:
        case nodes.Transform(_, udf):
            return UdfStep(udf)
        case nodes.Filter(_, predicate):
            return Each(node.name, _Keep(predicate))
        case nodes.Project(_, columns, keeps_others):
            return Each(node.name, _Columns(columns, keeps_others))
        case nodes.Rename(_, names):
            return Each(node.name, _NewNames(names))
        case nodes.Drop(_, columns):
            return Each(node.name, _Without(columns))
        case nodes.Sample(_, fraction, seed):
            # A task that runs again must choose the same rows.
            return _RandomRows(fraction, random.getrandbits(63) if seed is None else seed)
        case nodes.Rebatch(_, rows):
            return _Rebatched(rows)
        case nodes.Write(_, sink):
            return _Written(sink, node.name)
    raise TypeError(f"{node.name} does not work on one block at a time")


@dataclass
class Each:
    """Applies a function of one table, which also gets the number of its task and the rows before it in the task."""

    name: str
    function: Callable[[pa.Table, int, int], pa.Table]

    def __call__(self, tables: Tables, attempt: Attempt) -> Tables:
        task, row = task_number(attempt.order), 0
        for table in tables:
            try:
                result = self.function(table, task, row)
            except Exception as error:
                error.add_note(
                    f"In {self.name}, of {table.num_rows} rows with the schema {_brief(table.schema)}."
                )
                raise
            row += table.num_rows
            yield result


def task_number(order: tuple[int, ...]) -> int:
    """A number of 30 bits for the place of a task: its own for places of one level, then most likely its own."""
    if not any(order[1:]):
        return order[0] % (1 << 29) if order else 0
    digest = hashlib.blake2b(repr(order).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") % (1 << 29) + (1 << 29)


def file_number(order: tuple[int, ...]) -> int:
    """A task's own number for the names of its files, which sort as the places of tasks do: six digits for each level,
    and a leading 1 where there are several levels, so that leading zeros are not lost."""
    number = 1 if len(order) > 1 else 0
    for each in order:
        number = number * 1_000_000 + each
    return number


def _brief(schema: pa.Schema) -> str:
    return ", ".join(f"{each.name}: {each.type}" for each in schema)


@dataclass
class _Keep:
    predicate: Any

    def __call__(self, table: pa.Table, task: int, row: int) -> pa.Table:
        from runtime.data.expressions import Position, filter_table

        return filter_table(table, self.predicate, Position(task, row)) if table.num_rows else table


@dataclass
class _Columns:
    columns: tuple[tuple[str, Any], ...]
    keeps_others: bool

    def __call__(self, table: pa.Table, task: int, row: int) -> pa.Table:
        import pyarrow as pa

        from runtime.data.expressions import Position

        if not table.num_columns:
            return table  # nothing is known of the columns of a block without rows
        position = Position(task, row)
        made = {name: expr.evaluate(table, position) for name, expr in self.columns}
        if not self.keeps_others:
            return pa.table(made)
        for name, values in made.items():
            place = table.schema.get_field_index(name)
            table = table.append_column(name, values) if place < 0 else table.set_column(place, name, values)
        return table


@dataclass
class _NewNames:
    names: Mapping[str, str]

    def __call__(self, table: pa.Table, task: int, row: int) -> pa.Table:
        if not table.num_columns:
            return table
        missing = [name for name in self.names if name not in table.column_names]
        if missing:
            raise KeyError(f"There is no column {missing[0]!r}, only {', '.join(table.column_names)}.")
        return table.rename_columns([self.names.get(name, name) for name in table.column_names])


@dataclass
class _Without:
    columns: tuple[str, ...]

    def __call__(self, table: pa.Table, task: int, row: int) -> pa.Table:
        return table.drop_columns(list(self.columns)) if table.num_columns else table


@dataclass
class _RandomRows:
    fraction: float
    seed: int

    def __call__(self, tables: Tables, attempt: Attempt) -> Tables:
        import numpy as np
        import pyarrow as pa

        rng = np.random.default_rng([self.seed, *attempt.order])
        for table in tables:
            yield table.filter(pa.array(rng.random(table.num_rows) < self.fraction))


@dataclass
class _Rebatched:
    rows: int

    def __call__(self, tables: Tables, attempt: Attempt) -> Iterator[Any]:
        from runtime.data._block.batcher import batches

        for table in batches(tables, self.rows):
            yield Ready(table)


@dataclass
class Ready:
    """A table that leaves its task as it is, with more metadata."""

    table: pa.Table
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _Written:
    """Writes all tables; gives one row with what the sink has returned."""

    sink: Any
    name: str

    def __call__(self, tables: Tables, attempt: Attempt) -> Tables:
        import pyarrow as pa

        from runtime import cloudpickle
        from runtime.data.datasource import TaskContext

        seen = [0, 0]

        def counted() -> Tables:
            for table in tables:
                seen[0] += table.num_rows
                seen[1] += table.nbytes
                yield table

        result = self.sink.write(counted(), TaskContext(file_number(attempt.order), self.name))
        packed = cloudpickle.dumps(result)
        yield pa.table(
            {"rows": [seen[0]], "bytes": [seen[1]], "result": pa.array([packed], pa.large_binary())}
        )


# ---------------------------------------------------------------- the user's functions


class UdfStep:
    """Applies the user's function; a class is constructed once for each process."""

    def __init__(self, udf: Udf) -> None:
        self.udf = udf
        self._callable: Callable[..., Any] | None = None
        self._runner: asyncio.Runner | None = (
            None  # of an instance, whose locks and tasks belong to one event loop
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return UdfStep, (self.udf,)

    def prepare(self) -> Callable[..., Any]:
        """The function, or an instance of the class."""
        if self._callable is None:
            fn = self.udf.fn
            if isinstance(fn, type):
                try:
                    fn = fn(*self.udf.constructor_args, **self.udf.constructor_kwargs)
                except Exception as error:
                    error.add_note(f"In the constructor of {self.udf.name}.")
                    raise
            self._callable = fn
        return self._callable

    def __call__(self, tables: Tables, attempt: Attempt) -> Tables:
        fn = self.prepare()
        if self.udf.args or self.udf.kwargs:
            bare, args, kwargs = fn, self.udf.args, self.udf.kwargs

            def fn(value: Any) -> Any:
                return bare(value, *args, **kwargs)

            if _is_async(bare):
                return self._run_async(tables, lambda batch: bare(batch, *args, **kwargs))
        elif _is_async(fn):
            return self._run_async(tables, fn)
        match self.udf.kind:
            case "map_batches" | "map_groups":
                return _by_batch(tables, self.udf, fn)
            case "map":
                return _by_row(tables, self.udf, fn, list.append)
            case "flat_map":
                return _by_row(tables, self.udf, fn, _extend)
            case "filter":
                return _kept(tables, self.udf, fn)
        raise AssertionError(self.udf.kind)

    def _run_async(self, tables: Tables, fn: Callable[..., Any]) -> Tables:
        if not isinstance(self.udf.fn, type):
            with asyncio.Runner() as runner:
                yield from _batches_async(tables, self.udf, fn, runner)
            return
        if self._runner is None:
            self._runner = asyncio.Runner()
        yield from _batches_async(tables, self.udf, fn, self._runner)


def _is_async(fn: Any) -> bool:
    candidates = (fn, getattr(fn, "__call__", None))  # noqa: B004
    return any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in candidates)


def _views(tables: Tables, udf: Udf) -> Iterator[tuple[pa.Table, Any]]:
    """Batches as the user wants them, each with its table."""
    from runtime.data._block.batch import to_batch
    from runtime.data._block.batcher import batches

    for table in batches(tables, udf.batch_size):
        batch = to_batch(table, udf.batch_format)
        yield table, batch if udf.is_zero_copy else _writable(batch)


def _writable(batch: Any) -> Any:
    """Numpy arrays over a block are read-only: copies of these."""
    if isinstance(batch, dict):
        return {name: each if each.flags.writeable else each.copy() for name, each in batch.items()}
    return batch.copy() if hasattr(batch, "iloc") else batch


def _by_batch(tables: Tables, udf: Udf, fn: Callable[..., Any]) -> Tables:
    start = 0
    for table, batch in _views(tables, udf):
        try:
            result = fn(batch)
            if isinstance(result, Iterator):
                for each in result:
                    yield _returned(each, udf)
            else:
                yield _returned(result, udf)
        except Exception as error:
            error.add_note(f"In {udf.name}, in {_told(table, start, udf)}.")
            raise
        start += table.num_rows


def _told(table: pa.Table, start: int, udf: Udf) -> str:
    """What a function got, for its errors."""
    if udf.kind == "map_groups":
        group = table.slice(0, 1).select(list(udf.keys)).to_pylist()
        return f"the group {group[0] if group else {}!r:.300} of {table.num_rows} rows"
    return f"a batch of {table.num_rows} rows that begins at row {start} of its task"


def _returned(batch: Any, udf: Udf) -> pa.Table:
    from runtime.data._block.batch import from_batch

    if batch is None:
        raise TypeError(
            f"{udf.name} returned None: it must return a batch, a dict of arrays, a DataFrame or a pyarrow.Table, or "
            "yield several."
        )
    return from_batch(batch)


def _batches_async(tables: Tables, udf: Udf, fn: Callable[..., Any], runner: asyncio.Runner) -> Tables:
    """Coroutines run side by side, their results in order; async generators one after another."""
    if udf.kind != "map_batches":
        raise TypeError(f"{udf.name}: only map_batches takes async functions.")
    views = list(_views(tables, udf))

    async def one(table: pa.Table, batch: Any) -> list[Any] | Exception:
        try:
            result = fn(batch)
            if inspect.isasyncgen(result):
                return [each async for each in result]
            return [await result]
        except Exception as error:
            error.add_note(f"In {udf.name}, in a batch of {table.num_rows} rows.")
            return error  # raised outside of the event loop, whose frames would come before the user's

    async def together() -> list[list[Any] | Exception]:
        return list(await asyncio.gather(*(one(*view) for view in views)))

    for results in runner.run(together()):
        if isinstance(results, Exception):
            raise results
        for each in results:
            yield _returned(each, udf)


def _extend(made: list[Any], result: Any) -> None:
    # Asking a class of collections.abc takes longer than making a row, and nearly all results are lists.
    if type(result) is not list and (isinstance(result, Mapping) or not isinstance(result, Iterable)):
        raise TypeError(f"flat_map's function must return a list of rows, not {type(result).__name__}.")
    made.extend(result)


def _by_row(
    tables: Tables, udf: Udf, fn: Callable[..., Any], add: Callable[[list[Any], Any], None]
) -> Tables:
    from runtime.data._block.batch import Rows, rows

    for table in tables:
        number, numbered, collected = -1, enumerate(rows(table)), Rows()
        for _ in range(0, table.num_rows, ROWS_AT_A_TIME):
            made: list[Any] = []
            try:
                for number, row in itertools.islice(numbered, ROWS_AT_A_TIME):  # noqa: B007
                    add(made, fn(row))
            except Exception as error:
                _name_row(error, udf, number, table)
                raise
            _require_rows(made, udf)
            collected.add(made)
        if collected:
            yield collected.table()


def _require_rows(made: list[Any], udf: Udf) -> None:
    """Raises TypeError if one of the results is no row."""
    for kind in dict.fromkeys(map(type, made)):
        if not issubclass(kind, Mapping):
            row = next(row for row in made if type(row) is kind)
            raise TypeError(f"{udf.name} must return a dict for each row, not {kind.__name__}: {row!r:.80}")


def _kept(tables: Tables, udf: Udf, fn: Callable[..., Any]) -> Tables:
    import pyarrow as pa

    from runtime.data._block.batch import rows

    for table in tables:
        number = -1
        keep: list[bool] = []
        try:
            for number, row in enumerate(rows(table)):  # noqa: B007
                keep.append(bool(fn(row)))
        except Exception as error:
            _name_row(error, udf, number, table)
            raise
        yield table.filter(pa.array(keep, pa.bool_()))


def _name_row(error: Exception, udf: Udf, number: int, table: pa.Table) -> None:
    row = table.slice(number, 1).to_pylist() if number >= 0 else [{}]
    error.add_note(f"In {udf.name}, at row {number} of its block: {str(row[0])[:300]}")
