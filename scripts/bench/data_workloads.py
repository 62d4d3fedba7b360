"""The workloads of data.py through a module with Ray's data API."""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import data_functions as functions
import pyarrow as pa
import pyarrow.compute as pc
from data_input import MIB, ROWS_A_FILE, Inputs
from data_measuring import Timing, equal, require
from data_queries import Queries

CPUS = 2
BATCH = 256
TENSOR_ROWS = 8192
TENSOR_BUDGET = 512 * MIB
SLOW_BLOCKS = 192


class Workloads:
    """Of one engine.

    Args:
        timing: of it.
        inputs: what is read.
    """

    def __init__(self, timing: Timing, inputs: Inputs) -> None:
        self.t = timing
        self.inputs = inputs
        self.data: Any = importlib.import_module(f"{timing.m.module}.data")

    def run(self, parts: list[str], store_mib: int) -> None:
        """Runs parts, methods of this, on a fresh cluster."""
        m = self.t.m
        m.init(CPUS, object_store_memory=store_mib * MIB)
        context = self.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        logging.getLogger(f"{m.module}.data").setLevel(logging.ERROR)
        for part in parts:
            m.guard(getattr(self, part))
        m.ray.shutdown()

    # ------------------------------------------------------------ relational

    def group_by(self) -> None:
        for name, single in (("one key", True), ("a million keys", False)):
            table = self.inputs.keyed(single)
            size = -(-table.num_rows // 8)
            ds = self.data.from_arrow([table.slice(n * size, size) for n in range(8)])

            def sums(ds: Any = ds) -> pa.Table:
                found = ds.groupby("k").sum("v")
                return pa.concat_tables(found.iter_batches(batch_size=None, batch_format="pyarrow"))

            self.t.seconds(f"group-by of 1 M rows, {name}", sums, functions.sums_of_keys(table))

    def parquet(self) -> None:
        queries = Queries(self.inputs.tpch)
        for query, run in queries.through(self.data).items():
            self.t.seconds(f"TPC-H {query}", run, queries.check(query))
        lines = str(self.inputs.tpch / "lineitem")
        rows = sum(pa.parquet.read_metadata(path).num_rows for path in Path(lines).glob("*.parquet"))
        self.t.seconds("count of Parquet", lambda: self.data.read_parquet(lines).count(), equal(rows))
        self.t.seconds(
            "take(5) of Parquet", lambda: len(self.data.read_parquet(lines).take(5)), equal(min(5, rows))
        )

    # ------------------------------------------------------------ batches

    def batches(self) -> None:
        names = ("iter_batches", "iter_torch_batches", "iter_torch_batches, local shuffle")
        if not self.t.m.wants(*names):
            return
        expected = functions.epoch_of(self.inputs.features)[1]
        ds = self.data.from_numpy(self.inputs.features).materialize()
        started: list[Callable[[], Any]] = [
            lambda: ds.iter_batches(batch_size=BATCH, batch_format="numpy"),
            lambda: ds.iter_torch_batches(batch_size=BATCH),
            lambda: ds.iter_torch_batches(batch_size=BATCH, local_shuffle_buffer_size=10_000),
        ]
        for name, start in zip(names, started, strict=True):

            def epoch(start: Callable[[], Any] = start) -> tuple[int, float]:
                return functions.epoch_of(batch["data"] for batch in start())

            self.t.epochs(name, epoch, equal(expected))

    def batches_of_parquet(self) -> None:
        rows = self.inputs.wide_rows
        ds = self.data.read_parquet(str(self.inputs.wide))

        def epoch() -> tuple[int, int]:
            batches = ds.iter_batches(batch_size=4096, batch_format="numpy")
            return rows, functions.sum_of("id", batches)

        self.t.epochs("iter_batches of Parquet", epoch, equal(sum(range(rows))))

    def small_files(self) -> None:
        texts, csv, files = self.inputs.texts, self.inputs.csv, self.inputs.files
        names = "2,000 text files: first batch", "2,000 text files: all"
        options = {"batch_size": BATCH, "batch_format": "pyarrow"}
        self.t.passes(
            *names,
            lambda: self.data.read_text(str(texts)).iter_batches(**options),
            lambda batch: pc.sum(pc.utf8_length(batch["text"])).as_py(),
            sum(functions.characters(functions.lines_of(path)) for path in texts.glob("*.txt")),
        )
        names = "2,000 CSV files: first batch", "2,000 CSV files: all"
        self.t.passes(
            *names,
            lambda: self.data.read_csv(str(csv)).iter_batches(**options),
            lambda batch: pc.sum(batch["id"]).as_py(),
            sum(range(files * ROWS_A_FILE)),
        )

    def images(self) -> None:
        def rate() -> float:
            folder = self.inputs.photos
            paths = list(folder.glob("*.jpg"))

            def total() -> int:
                ds = self.data.read_images(str(folder)).map_batches(functions.light_of_batch)
                return functions.sum_of("light", ds.iter_batches(batch_size=None, batch_format="numpy"))

            expected = sum(map(functions.light_of_file, paths))
            return len(paths) / self.t.seconds_of(total, equal(expected))

        self.t.take("5,000 JPEG images", rate)

    # ------------------------------------------------------------ functions, and writing

    def row_wise(self) -> None:
        rows = self.inputs.scaled(100_000)
        started: list[Callable[[], Any]] = [
            lambda: self.data.range(rows).map(functions.square),
            lambda: self.data.range(rows).flat_map(functions.triple),
            lambda: self.data.range(rows).filter(functions.even),
        ]
        for (name, (column, expected, count)), start in zip(
            functions.rows_of(rows).items(), started, strict=True
        ):

            def total(column: str = column, start: Callable[[], Any] = start) -> int:
                return functions.sum_of(column, start().iter_batches(batch_size=None, batch_format="numpy"))

            self.t.rate(name, count, total, equal(expected))

    def write(self) -> None:
        ds = self.data.read_parquet(str(self.inputs.wide)).materialize()

        def written() -> Path:
            folder = Path(tempfile.mkdtemp(dir=self.inputs.folder))
            ds.write_parquet(str(folder))
            return folder

        check = functions.ids_written(self.inputs.wide_rows)

        def check_and_remove(folder: Path) -> None:
            check(folder)
            shutil.rmtree(folder)

        self.t.rate("write_parquet", self.inputs.wide_rows, written, check_and_remove)

    def killed(self) -> None:
        name = "map_batches of 64 blocks"
        expected = list(range(0, 12800, 2))
        self.t.seconds(name, lambda: self._doubled(None), equal(expected))
        with tempfile.TemporaryDirectory() as folder:

            def killed() -> list[int]:
                killing = Path(folder) / str(time.monotonic_ns())
                ids = self._doubled(str(killing))
                require(killing.exists(), "no worker was killed")
                return ids

            self.t.seconds(f"{name}, a worker killed", killed, equal(expected))

    def _doubled(self, killing: str | None) -> list[int]:
        """The ids; of `killing` the worker that can create it kills itself."""
        ds = self.data.range(6400, override_num_blocks=64).map_batches(slow_double, fn_args=[killing])
        return sorted(row["id"] for row in ds.take_all())

    # ------------------------------------------------------------ within limits of memory

    def tensors(self) -> None:
        rows = self.inputs.scaled(TENSOR_ROWS)
        options = self.data.DataContext.get_current().execution_options
        before = options.resource_limits
        options.resource_limits = self.data.ExecutionResources(object_store_memory=TENSOR_BUDGET)

        def consumed() -> tuple[int, int]:
            ds = self.data.range(rows, override_num_blocks=max(1, rows // 64))
            for function in (functions.make_tensors, functions.scale, functions.shift):
                ds = ds.map_batches(function)
            actors = self.data.ActorPoolStrategy(size=1)
            ds = ds.map_batches(functions.Model, compute=actors, batch_size=32)
            return functions.consume_tensors(ds.iter_batches(batch_size=64, batch_format="numpy"))

        gib = rows * functions.SIDE**2 * 4 / 2**30
        try:
            self.t.watched("tensors", lambda s: gib / s, consumed, equal((rows, sum(range(rows)))))
        finally:
            options.resource_limits = before

    def slow_consumer(self) -> None:
        blocks = self.inputs.scaled(SLOW_BLOCKS)

        def consumed() -> list[int]:
            ds = self.data.range(blocks, override_num_blocks=blocks).map_batches(functions.large_blocks)
            return functions.consume_slowly(ds.iter_batches(batch_size=1, batch_format="numpy"))

        self.t.watched("slow consumer", lambda s: s, consumed, equal(list(range(blocks))))

    def sort(self) -> None:
        self._beyond("sort of 512 MiB", lambda ds: ds.sort("key"), True)

    def shuffle(self) -> None:
        self._beyond("random_shuffle of 512 MiB", lambda ds: ds.random_shuffle(seed=7), False)

    def _beyond(self, name: str, of: Callable[[Any], Any], in_order: bool) -> None:
        """All records, which the store does not hold."""
        records = self.inputs.records

        def consumed() -> tuple[int, int, bool, float]:
            ds = of(self.data.read_parquet(str(records)))
            return functions.consume_keys(ds.iter_batches(batch_size=None, batch_format="pyarrow"))

        gib = self.inputs.record_rows / 2**22
        self.t.watched(name, lambda s: gib / s, consumed, functions.keys_in(records, in_order))


def slow_double(batch: Any, killing: str | None) -> dict[str, Any]:
    time.sleep(0.01)
    if killing and 3200 in batch["id"]:
        try:
            os.close(os.open(killing, os.O_CREAT | os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)
        except FileExistsError:
            pass
    return {"id": batch["id"] * 2}
