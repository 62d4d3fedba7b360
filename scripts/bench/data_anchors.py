"""The workloads of data.py through what a user would take instead of a data library, with two threads or processes.

A tool that is not installed is left out.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import data_functions as functions
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq
from data_input import ROWS_A_FILE, TPCH_TABLES, Inputs
from data_measuring import Timing, equal
from data_queries import SQL, Queries
from data_workloads import BATCH, CPUS, SLOW_BLOCKS, TENSOR_ROWS, slow_double

POOL = "a pool of processes"
LOADER = "DataLoader"
PARTS = 16
"""Of the rows that a pool of processes takes."""


def connection(**options: Any) -> Any:
    import duckdb

    return duckdb.connect(config={"threads": CPUS, **options})


class Anchors:
    """Of what is installed here.

    Args:
        timing: of them.
        inputs: what is read.
    """

    def __init__(self, timing: Timing, inputs: Inputs) -> None:
        self.t = timing
        self.inputs = inputs
        pa.set_cpu_count(CPUS)
        os.environ["POLARS_MAX_THREADS"] = str(CPUS)

    def group_by(self) -> None:
        for name, single in (("one key", True), ("a million keys", False)):
            self._group_by(f"group-by of 1 M rows, {name}", self.inputs.keyed(single))

    def _group_by(self, name: str, table: pa.Table) -> None:
        check = functions.sums_of_keys(table)

        def polars() -> float:
            import polars as pl

            frame = pl.from_arrow(table)
            return self.t.seconds_of(lambda: frame.group_by("k").agg(pl.col("v").sum()).to_arrow(), check)

        def duckdb() -> float:
            with connection() as db:
                db.register("input", table)
                query = "select k, sum(v)::bigint from input group by k"
                return self.t.seconds_of(lambda: db.sql(query).to_arrow_table(), check)

        self.t.seconds(name, lambda: table.group_by("k").aggregate([("v", "sum")]), check, "pyarrow")
        self.t.take(name, duckdb, "DuckDB")
        self.t.take(name, polars, "Polars")

    def parquet(self) -> None:
        folder = self.inputs.tpch
        queries = Queries(folder)
        lines = pq.ParquetDataset(folder / "lineitem").fragments
        rows = sum(fragment.count_rows() for fragment in lines)
        statements = {f"TPC-H {query}": (text, queries.check(query)) for query, text in SQL.items()}
        statements["count of Parquet"] = "select count(*) from lineitem", equal([(rows,)])
        for name, (text, check) in statements.items():
            self._query(name, text, check)
        self._query(
            "take(5) of Parquet", "select * from lineitem limit 5", lambda found: equal(5)(len(found))
        )

    def _query(self, name: str, text: str, check: Callable[[Any], None]) -> None:
        paths = {table: str(self.inputs.tpch / table / "*.parquet") for table in TPCH_TABLES}

        def duckdb() -> float:
            with connection() as db:
                for table, path in paths.items():
                    db.execute(f"create view {table} as from read_parquet('{path}')")
                return self.t.seconds_of(lambda: db.sql(text).fetchall(), check)

        def polars() -> float:
            import polars as pl

            context = pl.SQLContext({table: pl.scan_parquet(path) for table, path in paths.items()})
            return self.t.seconds_of(lambda: context.execute(text).collect().rows(), check)

        self.t.take(name, duckdb, "DuckDB")
        self.t.take(name, polars, "Polars")

    def batches(self) -> None:
        names = ("iter_batches", "iter_torch_batches", "iter_torch_batches, local shuffle")
        if not self.t.m.wants(*names):
            return
        expected = functions.epoch_of(self.inputs.features)[1]
        for name, shuffle in zip(names, (False, False, True), strict=True):

            def rate(shuffle: bool = shuffle) -> float:
                import torch

                rows = torch.utils.data.TensorDataset(torch.from_numpy(np.concatenate(self.inputs.features)))
                loader = torch.utils.data.DataLoader(rows, BATCH, shuffle, num_workers=CPUS)
                epoch = lambda: functions.epoch_of(batch[0] for batch in loader)  # noqa: E731
                return self.t.rate_of_epochs(epoch, equal(expected))

            self.t.take(name, rate, LOADER)

    def batches_of_parquet(self) -> None:
        rows = self.inputs.wide_rows

        def epoch() -> tuple[int, int]:
            batches = pa.dataset.dataset(self.inputs.wide).to_batches(batch_size=4096)
            return rows, sum(int(batch.column("id").to_numpy().sum()) for batch in batches)

        self.t.epochs("iter_batches of Parquet", epoch, equal(sum(range(rows))), "pyarrow")

    def small_files(self) -> None:
        texts, csv, files = self.inputs.texts, self.inputs.csv, self.inputs.files
        paths = sorted(texts.glob("*.txt"))
        with multiprocessing.Pool(CPUS) as pool:
            self.t.passes(
                "2,000 text files: first batch",
                "2,000 text files: all",
                lambda: pool.imap(functions.lines_of, paths, 20),
                functions.characters,
                sum(functions.characters(functions.lines_of(path)) for path in paths),
                POOL,
            )
        expected = sum(range(files * ROWS_A_FILE))
        self.t.passes(
            "2,000 CSV files: first batch",
            "2,000 CSV files: all",
            lambda: pa.dataset.dataset(csv, format="csv").to_batches(),
            lambda batch: pc.sum(batch.column("id")).as_py() or 0,
            expected,
            "pyarrow",
        )

        def polars() -> int:
            import polars as pl

            found: int = pl.scan_csv(csv / "*.csv").select(pl.col("id").sum()).collect().item()
            return found

        self.t.seconds("2,000 CSV files: all", polars, equal(expected), "Polars")

    def images(self) -> None:
        def rate() -> float:
            paths = list(self.inputs.photos.glob("*.jpg"))
            expected = sum(map(functions.light_of_file, paths))
            with multiprocessing.Pool(CPUS) as pool:
                total = lambda: sum(pool.imap(functions.light_of_file, paths, 50))  # noqa: E731
                return len(paths) / self.t.seconds_of(total, equal(expected))

        self.t.take("5,000 JPEG images", rate, POOL)

    def row_wise(self) -> None:
        rows = self.inputs.scaled(100_000)
        tables = (squares, triples, evens)
        with multiprocessing.Pool(CPUS) as pool:
            for (name, (column, expected, count)), make in zip(
                functions.rows_of(rows).items(), tables, strict=True
            ):

                def total(column: str = column, make: Callable[[Any], pa.Table] = make) -> int:
                    made = pool.imap(make, np.array_split(np.arange(rows), PARTS))
                    return sum(pc.sum(table[column]).as_py() for table in made)

                self.t.rate(name, count, total, equal(expected), POOL)

    def write(self) -> None:
        table = pq.read_table(self.inputs.wide)
        parts = [table.slice(0, table.num_rows // 2), table.slice(table.num_rows // 2)]
        check = functions.ids_written(table.num_rows)

        def folder() -> Path:
            return Path(tempfile.mkdtemp(dir=self.inputs.folder))

        def check_and_remove(folder: Path) -> None:
            check(folder)
            shutil.rmtree(folder)

        def with_pyarrow() -> Path:
            target = folder()
            with ThreadPoolExecutor(CPUS) as pool:
                list(pool.map(lambda n: pq.write_table(parts[n], target / f"{n}.parquet"), range(len(parts))))
            return target

        def with_duckdb() -> float:
            with connection() as db:
                db.register("input", table)

                def written() -> Path:
                    target = folder()
                    db.execute(f"copy input to '{target}/out' (format parquet, per_thread_output)")
                    return target

                return table.num_rows / self.t.seconds_of(written, check_and_remove)

        self.t.rate("write_parquet", table.num_rows, with_pyarrow, check_and_remove, "pyarrow")
        self.t.take("write_parquet", with_duckdb, "DuckDB")

    def killed(self) -> None:
        """Without a worker killed: a pool waits for its result forever."""

        def doubled() -> list[int]:
            parts = [{"id": part} for part in np.array_split(np.arange(6400), 64)]
            with_none = zip(parts, itertools.repeat(None))
            return sorted(int(n) for batch in pool.starmap(slow_double, with_none, 1) for n in batch["id"])

        with multiprocessing.Pool(CPUS) as pool:
            self.t.seconds("map_batches of 64 blocks", doubled, equal(list(range(0, 12800, 2))), POOL)

    def tensors(self) -> None:
        rows = self.inputs.scaled(TENSOR_ROWS)
        gib = rows * functions.SIDE**2 * 4 / 2**30

        def consumed() -> tuple[int, int]:
            parts = np.array_split(np.arange(rows), max(1, rows // 64))
            return functions.consume_tensors(loaded(parts, tensors))

        self.t.watched("tensors", lambda s: gib / s, consumed, equal((rows, sum(range(rows)))), LOADER)

    def slow_consumer(self) -> None:
        blocks = self.inputs.scaled(SLOW_BLOCKS)

        def consumed() -> list[int]:
            return functions.consume_slowly(loaded([np.array([n]) for n in range(blocks)], large_block))

        self.t.watched("slow consumer", lambda s: s, consumed, equal(list(range(blocks))), LOADER)

    def sort(self) -> None:
        self._beyond("sort of 512 MiB", "key", True)

    def shuffle(self) -> None:
        self._beyond("random_shuffle of 512 MiB", "random()", False)

    def _beyond(self, name: str, order: str, in_order: bool) -> None:
        """DuckDB with the memory that the others have as their store."""
        records = self.inputs.records
        query = f"select key, payload from read_parquet('{records}/*.parquet') order by {order}"

        def consumed() -> tuple[int, int, bool, float]:
            with (
                tempfile.TemporaryDirectory(dir=self.inputs.folder) as spilled,
                connection(memory_limit="256MiB", temp_directory=spilled) as db,
            ):
                return functions.consume_keys(db.sql(query).to_arrow_reader(100_000))

        gib = self.inputs.record_rows / 2**22
        check = functions.keys_in(records, in_order)
        self.t.watched(name, lambda s: gib / s, consumed, check, "DuckDB")


def loaded(parts: list[np.ndarray], make: Callable[[np.ndarray], Any]) -> Iterator[dict[str, np.ndarray]]:
    """What torch's DataLoader makes of the parts in its processes."""
    import torch

    class Made(torch.utils.data.Dataset):  # type: ignore[misc,type-arg]
        def __len__(self) -> int:
            return len(parts)

        def __getitem__(self, n: int) -> dict[str, Any]:
            return {name: torch.from_numpy(value) for name, value in make(parts[n]).items()}

    for batch in torch.utils.data.DataLoader(Made(), batch_size=None, num_workers=CPUS):
        yield {name: value.numpy() for name, value in batch.items()}


def tensors(ids: np.ndarray) -> functions.Batch:
    made = functions.shift(functions.scale(functions.make_tensors({"id": ids})))
    return functions.Model()(made)


def large_block(ids: np.ndarray) -> functions.Batch:
    return next(functions.large_blocks({"id": ids}))


def squares(ids: np.ndarray) -> pa.Table:
    return pa.Table.from_pylist([functions.square(row) for row in _rows(ids)])


def triples(ids: np.ndarray) -> pa.Table:
    return pa.Table.from_pylist([row for each in _rows(ids) for row in functions.triple(each)])


def evens(ids: np.ndarray) -> pa.Table:
    return pa.Table.from_pylist([row for row in _rows(ids) if functions.even(row)])


def _rows(ids: np.ndarray) -> list[dict[str, int]]:
    rows: list[dict[str, int]] = pa.table({"id": ids}).to_pylist()
    return rows
