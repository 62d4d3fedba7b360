"""Data sets on a cluster: plans run as tasks, in order, with every operation."""

from __future__ import annotations

import itertools
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from runtime.data._api.compute import ActorPoolStrategy
from runtime.data._plan import nodes
from runtime.data.context import DataContext
from runtime.data.dataset import Dataset
from runtime.data.datasource import BlockMetadata, Datasource, ReadTask
from runtime.data.expressions import col
from runtime.data.from_api import from_items
from tests.under_test import exceptions, ray


class Numbers(Datasource):
    """The numbers below `rows`, as `id`."""

    def __init__(self, rows: int, fails_at: int | None = None) -> None:
        self.rows = rows
        self.fails_at = fails_at

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: Any = None, data_context: Any = None
    ) -> Any:
        parts = min(parallelism, self.rows)
        borders = [self.rows * i // parts for i in range(parts + 1)]
        return [self._task(low, high) for low, high in itertools.pairwise(borders)]

    def _task(self, low: int, high: int) -> ReadTask:
        def read() -> Iterator[pa.Table]:
            yield pa.table({"id": pa.array(range(low, high), pa.int64())})

        return ReadTask(read, BlockMetadata(high - low, 8 * (high - low)))


def numbers(rows: int = 1000, blocks: int | None = 7) -> Dataset:
    return Dataset._from_datasource(Numbers(rows), override_num_blocks=blocks)


def ids(dataset: Dataset, column: str = "id") -> list[int]:
    return [row[column] for row in dataset.take_all()]


pytestmark = pytest.mark.usefixtures("session")


class TestFunctions:
    def test_of_batches_keep_the_order(self) -> None:
        assert ids(numbers().map_batches(lambda batch: {"id": batch["id"] * 2})) == list(range(0, 2000, 2))

    def test_yield_several_batches(self) -> None:
        def halves(batch: Any) -> Iterator[Any]:
            middle = len(batch["id"]) // 2
            yield {"id": batch["id"][:middle]}
            yield {"id": batch["id"][middle:]}

        assert ids(numbers().map_batches(halves, batch_size=10)) == list(range(1000))

    def test_of_rows(self) -> None:
        doubled = numbers(100).map(lambda row: {"id": row["id"] + 1}).filter(lambda row: row["id"] % 2 == 0)
        assert ids(doubled.flat_map(lambda row: [row, row])) == [
            n for n in range(1, 101) if n % 2 == 0 for _ in "ab"
        ]

    @pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow"])
    def test_get_the_format_that_they_want(self, batch_format: str) -> None:
        seen = numbers(10, 1).map_batches(lambda b: {"kind": [type(b).__name__]}, batch_format=batch_format)
        assert seen.take_all() == [
            {"kind": {"numpy": "dict", "pandas": "DataFrame", "pyarrow": "Table"}[batch_format]}
        ]

    def test_of_classes_are_constructed_once_in_each_actor(self) -> None:
        class Adds:
            def __init__(self, amount: int) -> None:
                self.amount = amount
                self.calls = 0

            def __call__(self, batch: Any) -> Any:
                self.calls += 1
                return {"id": batch["id"] + self.amount, "calls": [self.calls] * len(batch["id"])}

        rows = (
            numbers(100, 10)
            .map_batches(Adds, concurrency=1, fn_constructor_args=[5], batch_size=10)
            .take_all()
        )
        assert [row["id"] for row in rows] == list(range(5, 105))
        assert rows[-1]["calls"] == 10

    def test_that_are_coroutines_run_side_by_side(self) -> None:
        async def slow(batch: Any) -> Any:
            import asyncio

            await asyncio.sleep(0.01)
            return batch

        assert ids(numbers(100, 2).map_batches(slow, batch_size=5)) == list(range(100))

    def test_may_write_to_batches_that_are_copies(self) -> None:
        def add(batch: Any) -> Any:
            batch["id"] += 1
            return batch

        assert ids(numbers(10, 2).materialize().map_batches(add, zero_copy_batch=False)) == list(range(1, 11))

    def test_an_error_names_the_function_and_the_row(self) -> None:
        def inverse(row: Any) -> Any:
            return {"x": 1 // (row["id"] - 5)}

        with pytest.raises(ZeroDivisionError) as caught:
            numbers(10, 1).map(inverse).take_all()
        assert "map(inverse), at row 5 of its block" in str(caught.value)

    def test_failed_tasks_are_left_out_if_the_context_says_so(self) -> None:
        def picky(batch: Any) -> Any:
            if 150 in batch["id"]:
                raise ValueError("no")
            return batch

        context = DataContext.get_current()
        context.max_errored_blocks = 1
        try:
            assert len(ids(numbers(1000, 10).map_batches(picky))) == 900
        finally:
            context.max_errored_blocks = 0

    def test_a_pool_grows_with_its_work(self) -> None:
        class Sleeps:
            def __call__(self, batch: Any) -> Any:
                time.sleep(0.02)
                return {"pid": [ray.get_runtime_context().get_actor_id()]}

        strategy = ActorPoolStrategy(min_size=1, max_size=2, max_tasks_in_flight_per_actor=1)
        rows = numbers(40, 40).map_batches(Sleeps, compute=strategy).take_all()
        assert 1 <= len({row["pid"] for row in rows}) <= 2


class TestAllRows:
    def test_limit_cuts_off_what_is_before_it(self) -> None:
        assert ids(numbers(10_000, 50).map(lambda row: row).limit(25)) == list(range(25))

    def test_union_and_zip(self) -> None:
        assert ids(numbers(10).union(numbers(5, 2))) == [*range(10), *range(5)]
        zipped = numbers(100, 3).zip(numbers(100, 7).map(lambda row: {"id": -row["id"]})).take_all()
        assert zipped == [{"id": n, "id_1": -n} for n in range(100)]
        with pytest.raises(ValueError, match="10, 11"):
            numbers(10).map(lambda row: row).zip(numbers(11)).take_all()

    def test_repartition(self) -> None:
        made = numbers(100).repartition(3).materialize()
        assert made.num_blocks() == 3
        assert ids(made) == list(range(100))
        keyed = numbers(100).map(lambda row: {"k": row["id"] % 5}).repartition(4, keys=["k"]).materialize()
        homes: dict[int, set[int]] = {}
        for number, ref in enumerate(keyed.to_arrow_refs()):
            for key in ray.get(ref)["k"].to_pylist():
                homes.setdefault(key, set()).add(number)
        assert all(len(places) == 1 for places in homes.values())

    def test_sort(self) -> None:
        rng = np.random.default_rng(1)
        values = rng.permutation(5000).tolist()
        shuffled = numbers(5000, 9).map_batches(lambda b: {"v": np.array(values)[b["id"]], "s": b["id"] % 3})
        assert ids(shuffled.sort("v"), "v") == list(range(5000))
        rows = shuffled.sort(["s", "v"], descending=[False, True]).take_all()
        assert [(row["s"], -row["v"]) for row in rows] == sorted((row["s"], -row["v"]) for row in rows)
        kept = shuffled.materialize()
        cut = kept.map(lambda row: row).sort("v", boundaries=[10, 4000]).materialize()
        assert [ray.get(ref).num_rows for ref in cut.to_arrow_refs()] == [10, 3990, 1000]
        assert ids(cut, "v") == list(range(5000))

    def test_random_shuffle_has_every_row_once_and_a_seed_repeats_it(self) -> None:
        first = ids(numbers().map(lambda row: row).random_shuffle(seed=3))
        assert first != list(range(1000))
        assert sorted(first) == list(range(1000))
        assert ids(numbers().map(lambda row: row).random_shuffle(seed=3)) == first

    def test_groups(self) -> None:
        from runtime.data.aggregate import Count, Mean, Sum

        keyed = numbers(1000).map_batches(lambda b: {"k": b["id"] % 7, "v": b["id"]})
        rows = (
            keyed.groupby("k")
            .aggregate(Count(), Sum("v", alias_name="s"), Mean("v", alias_name="m"))
            .take_all()
        )
        expected = {k: list(range(k, 1000, 7)) for k in range(7)}
        assert {row["k"]: (row["count()"], row["s"], row["m"]) for row in rows} == {
            k: (len(v), sum(v), sum(v) / len(v)) for k, v in expected.items()
        }
        spans = (
            keyed.groupby("k")
            .map_groups(
                lambda group: {"k": group["k"][:1], "n": [f"{len(group)} in a {type(group).__name__}"]}
            )
            .materialize()
        )
        assert {row["k"]: row["n"] for row in spans.take_all()} == {
            k: f"{len(v)} in a DataFrame" for k, v in expected.items()
        }
        assert spans.num_blocks() > 1  # few rows as they are, all cores have some

    def test_joins(self) -> None:
        left = numbers(10).map(lambda row: {"id": row["id"], "a": row["id"] * 2})
        right = numbers(20).map(lambda row: {"id": row["id"] + 5, "b": row["id"]})
        inner = left.join(right, "inner", num_partitions=3, on=["id"]).take_all()
        assert sorted((row["id"], row["a"], row["b"]) for row in inner) == [
            (n, 2 * n, n - 5) for n in range(5, 10)
        ]
        outer = left.join(right, "left_outer", on=["id"]).take_all()
        assert sum(row["b"] is None for row in outer) == 5

    def test_split(self) -> None:
        parts = numbers(100).split(3, equal=True)
        assert [part.count() for part in parts] == [33, 33, 33]
        train, test = numbers(100).train_test_split(0.25)
        assert (ids(train), ids(test)) == (list(range(75)), list(range(75, 100)))

    def test_parts_of_the_rows_and_blocks_in_another_order(self) -> None:
        made = numbers(100, 10).materialize()
        assert sorted(ids(made.randomize_block_order(seed=1))) == list(range(100))
        assert 0 < len(ids(made.random_sample(0.5, seed=1))) < 100
        assert [part.count() for part in made.split_at_indices([10, 30])] == [10, 20, 70]
        assert [part.count() for part in made.split_proportionately([0.2, 0.3])] == [20, 30, 50]
        assert made.take_batch(5)["id"].tolist() == list(range(5))

    def test_streaming_split_gives_every_row_once_in_each_epoch(self) -> None:
        first, second = numbers(100, 10).streaming_split(2)
        for _ in range(2):
            left, right = ([row["id"] for row in part.iter_rows()] for part in (first, second))
            assert sorted(left + right) == list(range(100))
        equal = numbers(101, 10).streaming_split(2, equal=True)
        assert [sum(1 for _ in part.iter_rows()) for part in equal] == [50, 50]


class TestConsuming:
    def test_batches_cross_blocks(self) -> None:
        made = numbers(100, 7).map(lambda row: row)
        sizes = [len(batch["id"]) for batch in made.iter_batches(batch_size=32)]
        assert sizes == [32, 32, 32, 4]
        shuffled = [
            n for b in made.iter_batches(batch_size=10, local_shuffle_buffer_size=30) for n in b["id"]
        ]
        assert sorted(shuffled) == list(range(100))

    def test_an_iterator_that_is_left_early_ends_the_execution(self) -> None:
        batches = iter(numbers(1000, 50).map(lambda row: row).iter_batches(batch_size=10))
        assert next(batches)["id"].tolist() == list(range(10))
        batches.close()  # type: ignore[attr-defined]

    def test_materialized_blocks_are_reused(self) -> None:
        made = numbers(100).map(lambda row: {"id": row["id"], "at": time.time()}).materialize()
        assert made.take_all() == made.take_all()
        assert made.count() == 100
        assert made.schema() is not None
        assert made.schema().names == ["id", "at"]  # type: ignore[union-attr]

    def test_stats_name_the_operators(self) -> None:
        made = numbers(100).map(lambda row: row).materialize()
        assert "ReadNumbers->map(<lambda>): 7 tasks, 7 blocks" in made.stats()
        assert isinstance(made._node, nodes.Given)


class TestNumbers:
    def test_of_one_column_and_of_several(self) -> None:
        made = numbers(100).map(lambda row: {"id": row["id"], "b": 2.0 * row["id"]})
        assert made.sum("id") == 4950
        assert made.aggregate(*_aggregations()) == {"count()": 100, "max(b)": 198.0}
        assert made.mean(["id", "b"]) == {"mean(id)": 49.5, "mean(b)": 99.0}
        assert sorted(numbers(10).map(lambda row: {"k": row["id"] % 3}).unique("k")) == [0, 1, 2]


def _aggregations() -> tuple[Any, ...]:
    from runtime.data.aggregate import Count, Max

    return Count(), Max("b")


class TestColumns:
    def test_are_chosen_made_and_named(self) -> None:
        from runtime.data.expressions import col

        made = numbers(10).map(lambda row: {"a": row["id"], "b": 1})
        assert made.with_column("c", col("a") + col("b")).select_columns(["c"]).take(2) == [
            {"c": 1},
            {"c": 2},
        ]
        assert made.rename_columns({"a": "x"}).drop_columns(["b"]).columns() == ["x"]
        assert made.filter(expr=col("a") >= 8).count() == 2
        assert made.add_column("d", lambda frame: frame["a"] * 2).take(2)[1] == {"a": 1, "b": 1, "d": 2}


class TestWriting:
    def test_files_hold_every_row_once(self, tmp_path: Any) -> None:
        import pyarrow.parquet as pq

        numbers(1000).map(lambda row: row).write_parquet(str(tmp_path / "p"))
        assert sorted(pq.read_table(tmp_path / "p")["id"].to_pylist()) == list(range(1000))

    def test_a_failed_write_leaves_no_files(self, tmp_path: Any) -> None:
        def fail(batch: Any) -> Any:
            if 500 in batch["id"]:
                raise ValueError("no")
            return batch

        with pytest.raises(ValueError, match="no"):
            numbers(1000).map_batches(fail).write_parquet(str(tmp_path / "p"))
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]


class TestFailures:
    def test_a_killed_worker_changes_nothing(self, tmp_path: Any) -> None:
        mark = str(tmp_path / "died")

        def dies_once(batch: Any) -> Any:
            if 500 in batch["id"]:
                try:
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    return batch
                os.kill(os.getpid(), signal.SIGKILL)
            return batch

        assert ids(numbers(1000, 20).map_batches(dies_once)) == list(range(1000))
        assert os.path.exists(mark)

    def test_a_killed_actor_of_a_pool_changes_nothing(self, tmp_path: Any) -> None:
        mark = str(tmp_path / "died")

        class DiesOnce:
            def __call__(self, batch: Any) -> Any:
                if 50 in batch["id"]:
                    try:
                        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                    except FileExistsError:
                        return batch
                    os.kill(os.getpid(), signal.SIGKILL)
                return batch

        assert ids(numbers(100, 10).map_batches(DiesOnce, concurrency=2)) == list(range(100))
        assert os.path.exists(mark)

    def test_a_function_that_ends_its_process_fails_after_a_few_attempts(self) -> None:
        with pytest.raises(exceptions.WorkerCrashedError, match="exit code 3"):
            numbers(10, 1).map_batches(lambda batch: os._exit(3)).take_all()

    def test_a_class_that_ends_its_process_fails_after_a_few_attempts(self) -> None:
        class Ends:
            def __init__(self, at_once: bool) -> None:
                if at_once:
                    os._exit(3)

            def __call__(self, batch: Any) -> Any:
                os._exit(3)

        def run(at_once: bool) -> None:
            numbers(10, 1).map_batches(Ends, fn_constructor_args=(at_once,), concurrency=1).take_all()

        with pytest.raises(RuntimeError, match="3 members in a row died before they were ready"):
            run(at_once=True)
        with pytest.raises(exceptions.RayActorError) as caught:
            run(at_once=False)
        assert "In map_batches(Ends): 4 attempts have failed." in caught.value.__notes__

    def test_sys_exit_is_an_error_of_the_function(self) -> None:
        with pytest.raises(RuntimeError, match=r"map\(<lambda>\): the function has called sys.exit\(5\)"):
            numbers(10, 1).map(lambda row: sys.exit(5)).take_all()

    def test_an_error_in_a_constructor_is_that_of_the_data_set(self) -> None:
        class Broken:
            def __init__(self) -> None:
                raise ValueError("no model")

            def __call__(self, batch: Any) -> Any:
                return batch

        with pytest.raises(ValueError, match="no model"):
            numbers(10).map_batches(Broken, concurrency=1).take_all()


def test_a_slow_consumer_stops_the_tasks_before_the_budget_is_exceeded() -> None:
    mib = 1 << 20
    context = DataContext.get_current()
    context.execution_options.resource_limits.object_store_memory = 16 * mib
    try:
        made = numbers(40, 40).map_batches(lambda batch: {"x": np.zeros((len(batch["id"]), mib), np.uint8)})
        rows = 0
        for batch in made.iter_batches(batch_size=1):
            rows += len(batch["x"])
            time.sleep(0.002)
    finally:
        context.execution_options.resource_limits.object_store_memory = None
    assert rows == 40
    held = re.search(r"held at most: ([\d.]+) MiB", made.stats())
    assert held is not None
    assert float(held[1]) <= 16


class TestNoRows:
    """Of blocks without rows the columns may be unknown: nothing may ask for them by name."""

    @pytest.mark.parametrize(
        "operation",
        [
            lambda dataset: dataset.select_columns(["id"]),
            lambda dataset: dataset.rename_columns({"id": "key"}).rename_columns({"key": "id"}),
            lambda dataset: dataset.with_column("other", col("id") + 1).drop_columns(["other"]),
            lambda dataset: dataset.filter(expr="id >= 0"),
            lambda dataset: dataset.join(numbers(20), "inner", 2, on=("id",)).sort("id"),
        ],
    )
    def test_blocks_without_rows_among_others(self, operation: Any) -> None:
        some = numbers(8, blocks=4).flat_map(lambda row: [row] if row["id"] > 5 else [])
        assert ids(operation(some)) == [6, 7]
        assert operation(from_items([])).take_all() == []
