"""Iterators of data sets: the thread that prepares batches, and epochs that go on where others were left."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runtime.data._plan import nodes
from runtime.data._plan.rules import optimize
from runtime.data._plan.skipping import without_first_rows
from runtime.data.collate_fn import NumpyBatchCollateFn
from runtime.data.dataset import Dataset
from runtime.data.iterator import DataIterator
from tests.polling import eventually
from tests.under_test import ray

pytestmark = pytest.mark.usefixtures("session")


def numbers(rows: int = 1000, blocks: int = 7) -> Dataset:
    return ray.data.range(rows, override_num_blocks=blocks)  # type: ignore[no-any-return]


def ids(batches: Any) -> list[int]:
    return [int(n) for batch in batches for n in batch["id"]]


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name in ("prefetch", "data set")]


class TestPrefetching:
    def test_batches_are_made_in_another_thread_in_order(self) -> None:
        names: set[str] = set()

        def collate(batch: Any) -> Any:
            names.add(threading.current_thread().name)
            return batch

        made = numbers().map_batches(lambda batch: batch)
        assert ids(made.iter_batches(batch_size=10, prefetch_batches=3, _collate_fn=collate)) == list(
            range(1000)
        )
        assert names == {"prefetch"}
        assert ids(made.iter_batches(batch_size=10, prefetch_batches=0)) == list(range(1000))
        assert not threads()

    def test_errors_come_to_the_consumer(self) -> None:
        def collate(batch: Any) -> Any:
            if batch["id"][0] == 20:
                raise KeyError("twenty")
            return batch

        batches = iter(numbers().iter_batches(batch_size=10, _collate_fn=collate))
        assert ids([next(batches), next(batches)]) == list(range(20))
        with pytest.raises(KeyError, match="twenty"):
            next(batches)
        assert not threads()

    @pytest.mark.parametrize("way", ["break", "raise", "close"])
    def test_nothing_runs_after_an_iterator_that_was_left(self, way: str, tmp_path: Any) -> None:
        """Also if the next block would never come."""

        def waits(batch: Any) -> Any:
            while batch["id"][0] and not (tmp_path / "go").exists():
                threading.Event().wait(0.01)
            return batch

        made = numbers(10, 10).map_batches(waits)
        if way == "close":
            batches = iter(made.iter_batches(batch_size=1))
            next(batches)
            batches.close()  # type: ignore[attr-defined]
        else:
            try:
                for _ in made.iter_batches(batch_size=1):
                    if way == "raise":
                        raise KeyboardInterrupt
                    break
            except KeyboardInterrupt:
                pass
        eventually(lambda: not threads())
        (tmp_path / "go").touch()

    def test_consumers_that_hold_all_cpus_lend_them(self) -> None:
        @ray.remote
        def whole() -> int:
            made = numbers(100, 4).map_batches(lambda batch: batch)
            return len(ids(made.iter_batches(batch_size=7)))

        @ray.remote
        def part(iterator: Any) -> int:
            return len(ids(iterator.iter_batches(batch_size=7)))

        cpus = int(ray.cluster_resources()["CPU"])

        @ray.remote(num_cpus=cpus)
        def unprepared() -> list[int]:
            made = numbers(100, 4).map_batches(lambda batch: batch)
            batches = made.iter_batches(batch_size=7, prefetch_batches=0)
            return [len(ids(batches)), sum(1 for _ in made.iter_rows()), made.materialize().count()]

        @ray.remote(num_cpus=cpus)
        def in_threads() -> list[int]:
            made = numbers(100, 4).map_batches(lambda batch: batch)
            ways = [made.iter_batches(batch_size=7, prefetch_batches=n) for n in (0, 1)]
            with ThreadPoolExecutor() as threads:
                return [*threads.map(lambda each: len(ids(each)), ways)]

        assert ray.get(in_threads.remote(), timeout=60) == [100] * 2
        assert ray.get([whole.remote() for _ in range(cpus)], timeout=120) == [100] * cpus
        assert ray.get(unprepared.remote(), timeout=60) == [100] * 3

        @ray.remote(num_cpus=cpus)
        class Actor:
            def whole(self) -> list[int]:
                made = numbers(100, 4).map_batches(lambda batch: batch)
                ways = [made.iter_batches(batch_size=7, prefetch_batches=n) for n in (0, 1)]
                found: list[int] = []
                thread = threading.Thread(target=lambda: found.extend(len(ids(each)) for each in ways))
                thread.start()
                thread.join()
                return [*found, *(len(ids(each)) for each in ways), made.count()]

            def part(self, iterator: Any, prefetch_batches: int) -> int:
                return len(ids(iterator.iter_batches(prefetch_batches=prefetch_batches)))

        actor = Actor.remote()
        assert ray.get(actor.whole.remote(), timeout=60) == [100] * 5
        for ahead in (0, 1):
            (part_of_one,) = numbers(40, 4).map_batches(lambda batch: batch).streaming_split(1)
            assert ray.get(actor.part.remote(part_of_one, ahead), timeout=60) == 40
        assert eventually(lambda: ray.available_resources().get("CPU", 0) == 0)
        ray.kill(actor)
        assert eventually(lambda: ray.available_resources().get("CPU", 0) == cpus)
        parts = numbers(10 * cpus, 5).map_batches(lambda batch: batch).streaming_split(cpus, equal=True)
        assert ray.get([part.remote(each) for each in parts], timeout=120) == [10] * cpus

    def test_consumers_in_a_placement_group_that_holds_all_cpus(self) -> None:
        cpus = int(ray.cluster_resources()["CPU"])
        group = ray.util.placement_group([{"CPU": cpus}])
        ray.get(group.ready(), timeout=60)
        inside = {
            "num_cpus": cpus,
            "scheduling_strategy": ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group),
        }

        @ray.remote(**inside)
        class Actor:
            def whole(self) -> int:
                return len(ids(numbers(100, 4).map_batches(lambda batch: batch).iter_batches(batch_size=7)))

        @ray.remote(**inside)
        def task() -> int:
            return len(ids(numbers(100, 4).map_batches(lambda batch: batch).iter_batches(batch_size=7)))

        assert ray.get(task.remote(), timeout=60) == 100
        assert ray.get(Actor.remote().whole.remote(), timeout=60) == 100
        ray.util.remove_placement_group(group)
        assert eventually(lambda: ray.available_resources().get("CPU", 0) == cpus)


def resumed(make: Any, options: dict[str, Any], batches: int) -> tuple[list[int], list[int]]:
    """The rows of a whole epoch, and those of one that another iterator ended."""
    first: DataIterator = make()
    before: list[int] = []
    passes = first.iter_batches(**options)
    for number, batch in enumerate(passes):
        before += ids([batch])
        if number == batches - 1:
            break
    second = make()
    second.load_state_dict(first.state_dict())
    return before, before + ids(second.iter_batches(**options))


class TestStates:
    @pytest.mark.parametrize("batches", [1, 30, 100])
    @pytest.mark.parametrize("shuffled", [{}, {"local_shuffle_buffer_size": 50}])
    def test_an_epoch_goes_on(self, batches: int, shuffled: dict[str, Any]) -> None:
        made = numbers(1000).materialize()
        before, rows = resumed(made.iterator, {"batch_size": 10, **shuffled}, batches)
        assert len(before) == 10 * batches
        assert sorted(rows) == list(range(1000))
        if not shuffled:
            assert rows == list(range(1000))

    def test_of_a_plan_that_is_computed_again(self) -> None:
        made = numbers(100, 5).map_batches(lambda batch: batch)
        _, rows = resumed(made.iterator, {"batch_size": 10}, 3)
        assert rows == list(range(100))

    def test_count_what_the_consumer_got(self) -> None:
        iterator = numbers(100).iterator()
        assert iterator.state_dict() == {"epoch": 0, "rows": 0, "seed": None}
        for _ in iterator.iter_batches(batch_size=30, prefetch_batches=3, local_shuffle_seed=5):
            break
        assert iterator.state_dict() == {"epoch": 0, "rows": 30, "seed": 5}
        assert len(ids(iterator.iter_batches())) == 100  # another pass is whole
        assert iterator.state_dict()["epoch"] == 2
        assert iterator.state_dict()["rows"] == 0

    def test_of_equal_parts(self) -> None:
        def part() -> DataIterator:
            made: DataIterator = numbers(100, 10).streaming_split(2, equal=True)[1]
            return made

        _, rows = resumed(part, {"batch_size": 8}, 3)
        assert rows == ids(part().iter_batches())
        unequal = numbers(100, 10).streaming_split(2)[0]
        with pytest.raises(ValueError, match="equal=True"):
            unequal.load_state_dict(unequal.state_dict())


def images(batch: dict[str, Any]) -> dict[str, Any]:
    """512 KiB of 32 rows."""
    return {"image": np.full((len(batch["id"]), 64, 64), batch["id"][:, None, None], np.float32)}


class TestTensors:
    def test_of_batches_that_are_put_together_are_not_copied(self) -> None:
        made = ray.data.range(64, override_num_blocks=1).map_batches(images, batch_size=32)
        (batch,) = made.iter_batches(batch_size=64)
        assert batch["image"][:, 0, 0].tolist() == list(range(64))
        memory = batch["image"]
        while isinstance(memory, np.ndarray):
            memory = memory.base
        assert isinstance(memory, pa.Buffer)

    def test_of_torch(self) -> None:
        torch = pytest.importorskip("torch")

        class Doubled(NumpyBatchCollateFn):
            def __call__(self, batch: Any) -> Any:
                return torch.from_numpy(batch["id"] * 2)

        made = numbers(10, 3)
        assert [b["id"].tolist() for b in made.iter_torch_batches(batch_size=6)] == [
            [*range(6)],
            [*range(6, 10)],
        ]
        batch = next(iter(made.iter_torch_batches(dtypes={"id": torch.float32}, device="cpu")))
        assert batch["id"].dtype == torch.float32
        assert next(iter(made.iter_torch_batches(collate_fn=Doubled()))).tolist() == list(range(0, 20, 2))
        shuffled = [b["id"] for b in made.iter_torch_batches(batch_size=2, local_shuffle_buffer_size=4)]
        assert sorted(torch.cat(shuffled).tolist()) == list(range(10))
        with pytest.raises(ValueError, match="dtypes"):
            made.iter_torch_batches(collate_fn=Doubled(), dtypes=torch.float32)

    def test_pairs_for_torch(self) -> None:
        torch = pytest.importorskip("torch")
        made = numbers(10, 3).map(lambda row: {"a": row["id"], "b": row["id"] * 2, "y": row["id"] % 2})
        pairs = made.to_torch(label_column="y", feature_column_dtypes=torch.float32, batch_size=4)
        for _ in range(2):
            assert [(x.shape, y.shape) for x, y in pairs] == [((n, 2), (n, 1)) for n in (4, 4, 2)]
        (_, none), *_ = made.to_torch(feature_columns=["a"])
        assert none is None

    def test_of_jax(self) -> None:
        pytest.importorskip("jax")
        made = numbers(10, 3).iter_jax_batches(batch_size=4, paddings=-1)
        assert [batch["id"].tolist() for batch in made][2] == [8, 9, -1, -1]

    def test_of_libraries_that_are_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = numbers(10)
        for library, use in {
            "tensorflow": [made.iter_tf_batches, lambda: made.to_tf("id", "id")],
            "torch": [made.iter_torch_batches, made.to_torch],
            "jax": [made.iter_jax_batches],
        }.items():
            for module in [name for name in sys.modules if name.partition(".")[0] == library]:
                monkeypatch.setitem(sys.modules, module, None)
            monkeypatch.setitem(sys.modules, library, None)
            for each in use:
                with pytest.raises(ImportError, match=f"pip install {library}"):
                    each()


class TestSkipping:
    def test_given_blocks_are_not_read(self) -> None:
        blocks = tuple(nodes.GivenBlock(f"block {i}", 10, 80) for i in range(3))
        plan = nodes.Rename(nodes.Given(blocks), {"id": "n"})
        node, left = without_first_rows(plan, 15)
        assert left == 0
        (source,) = node.inputs
        assert isinstance(source, nodes.Given)
        assert [(block.ref, block.start, block.rows) for block in source.blocks] == [
            ("block 1", 5, 5),
            ("block 2", 0, 10),
        ]
        assert without_first_rows(plan, 0) == (plan, 0)

    def test_files_are_not_read(self, tmp_path: Any) -> None:
        for part in range(4):
            pq.write_table(pa.table({"id": range(10 * part, 10 * part + 10)}), tmp_path / f"{part}.parquet")
        made = ray.data.read_parquet(str(tmp_path), override_num_blocks=4)
        node, left = without_first_rows(optimize(made._node), 25)
        assert isinstance(node, nodes.Read)
        assert left == 0
        tasks = node.source.get_read_tasks(4)
        assert [task.metadata.num_rows for task in tasks] == [5, 10]
        assert [n for task in tasks for table in task() for n in table["id"].to_pylist()] == [*range(25, 40)]
        assert without_first_rows(optimize(made.limit(30)._node), 25)[1] == 25
        for plan in (made, made.map_batches(lambda batch: batch), made.map(lambda row: row)):
            _, rows = resumed(plan.iterator, {"batch_size": 5}, 5)
            assert rows == list(range(40))

    def test_what_changes_the_number_of_rows_is_computed(self) -> None:
        plan = nodes.Sample(nodes.Given((nodes.GivenBlock("block", 10, 80),)), 0.5)
        assert without_first_rows(plan, 3) == (plan, 3)


def test_a_shutdown_ends_an_iterator() -> None:
    batches = iter(numbers(10, 10).map_batches(lambda batch: batch).iter_batches(batch_size=1))
    next(batches)
    ray.shutdown()
    with pytest.raises(Exception):  # noqa: B017 - that the session is over
        list(batches)
    assert not threads()
