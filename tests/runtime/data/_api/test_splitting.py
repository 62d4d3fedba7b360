"""Parts of data sets: how many rows each has, and which."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest

from runtime.data._exec import split_server
from runtime.data.dataset import Dataset
from tests.polling import eventually
from tests.under_test import ray

MIB = 1 << 20
pytestmark = pytest.mark.usefixtures("session")


def numbers(rows: int, blocks: int = 1) -> Dataset:
    return ray.data.range(rows, override_num_blocks=blocks)  # type: ignore[no-any-return]


def ids(dataset: Any) -> list[int]:
    return [row["id"] for row in dataset.take_all()]


def counts(parts: Any) -> list[int]:
    return [part.count() for part in parts]


def test_blocks_are_divided_as_numpy_divides_arrays() -> None:
    assert counts(numbers(70, 7).split(3)) == [30, 20, 20]
    assert counts(numbers(10, 1).split(3)) == [3, 3, 4]
    assert counts(numbers(10, 4).split(3, equal=True)) == [3, 3, 3]
    with pytest.raises(ValueError, match="locality_hints"):
        numbers(10).split(2, locality_hints=[None])


def test_indices() -> None:
    assert [ids(part) for part in numbers(10, 3).split_at_indices([2, 2, 5, 20])] == [
        [0, 1],
        [],
        [2, 3, 4],
        [5, 6, 7, 8, 9],
        [],
    ]
    for wrong in ([], [5, 2], [-1, 3]):
        with pytest.raises(ValueError, match="in order"):
            numbers(10).split_at_indices(wrong)


def test_shares_have_rows() -> None:
    assert counts(numbers(10).split_proportionately([0.2, 0.5])) == [2, 5, 3]
    assert counts(numbers(10).split_proportionately([0.35, 0.02])) == [2, 1, 7]  # no part is empty
    for wrong in ([], [0.5, 0.5], [0.5, -0.1]):
        with pytest.raises(ValueError, match="shares"):
            numbers(10).split_proportionately(wrong)
    with pytest.raises(ValueError, match="too few"):
        numbers(2).split_proportionately([0.5, 0.4])


def test_streams_of_equal_length() -> None:
    """Rows that cannot be divided are left out, wherever blocks end."""
    for rows, blocks, parts in ((101, 7, 3), (5, 5, 2), (2, 2, 3)):
        made = numbers(rows, blocks).streaming_split(parts, equal=True)
        found = [[int(n) for batch in part.iter_batches() for n in batch["id"]] for part in made]
        assert [len(each) for each in found] == [rows // parts] * parts
        assert len({n for each in found for n in each}) == rows // parts * parts
    with pytest.raises(ValueError, match="locality_hints"):
        numbers(10).streaming_split(2, locality_hints=["node"])


def test_a_reader_that_has_stopped_is_named_and_its_rows_do_not_pile_up(
    tmp_path: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def large(batch: Any) -> Any:
        (tmp_path / str(batch["id"][0])).touch()
        return {"data": np.zeros((2, MIB // 8), np.int8)}

    monkeypatch.setattr(split_server, "SLOW_S", 0.2)
    made = numbers(40, 40).map_batches(large)
    made.context.execution_options.resource_limits.object_store_memory = 2 * MIB
    server = split_server.SplitServer(made, 2, equal=True)
    taken = [0, 1]

    def read(part: int) -> None:
        while server.next(part, 0):
            taken[part] += 1

    assert server.next(1, 0)
    reader = threading.Thread(target=read, args=(0,))
    reader.start()
    assert eventually(lambda: "nothing was read of part 1, for which 2 MiB wait. Part 0 waits" in caplog.text)
    assert len(list(tmp_path.iterdir())) < 30
    read(1)
    reader.join()
    assert taken == [40, 40]
    assert server.next(0, 1)
    with pytest.raises(ValueError, match="has begun epoch 1"):
        server.next(0, 0)
    server._epochs.clear()


class TestTrainAndTest:
    def test_shares_and_numbers(self) -> None:
        train, test = numbers(8).train_test_split(0.25)
        assert (ids(train), ids(test)) == (list(range(6)), [6, 7])
        assert counts(numbers(10).train_test_split(0.25)) == [7, 3]
        assert counts(numbers(10, 3).train_test_split(4)) == [6, 4]

    def test_in_random_order(self) -> None:
        train, test = numbers(100, 3).train_test_split(0.3, shuffle=True, seed=1)
        assert sorted(ids(train) + ids(test)) == list(range(100))
        assert ids(test) != list(range(70, 100))

    def test_parts_have_the_same_shares_of_each_value(self) -> None:
        made = numbers(100, 4).map(lambda row: {"id": row["id"], "kind": "abc"[min(2, row["id"] % 10)]})
        for test_size in (0.3, 30):
            train, test = made.train_test_split(test_size, stratify="kind")
            assert Counter(row["kind"] for row in train.take_all()) == {"a": 7, "b": 7, "c": 56}
            assert Counter(row["kind"] for row in test.take_all()) == {"a": 3, "b": 3, "c": 24}
            assert sorted(ids(train) + ids(test)) == list(range(100))
            assert test.schema().names == ["id", "kind"]

    def test_wrong_sizes(self) -> None:
        for wrong in (0, 10, 1.5, 0.0):
            with pytest.raises(ValueError, match="test_size"):
                numbers(10).train_test_split(wrong)
        with pytest.raises(TypeError):
            numbers(10).train_test_split("1")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="stratify"):
            numbers(10).train_test_split(0.5, shuffle=True, stratify="id")
