"""Each rank reads its share of a data loader, as with torch's own sampler."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, SequentialSampler

from runtime.train.torch._loaders import divided, moved

ROWS = list(range(10))
Pair = namedtuple("Pair", "x y")


class Stream(IterableDataset[Any]):  # type: ignore[misc]
    def __iter__(self) -> Iterator[int]:
        return iter(ROWS)


def read(loader: Any) -> list[int]:
    return [row for batch in loader for row in batch.tolist()]


class TestShares:
    def test_in_order(self) -> None:
        loader = DataLoader(ROWS, batch_size=2)
        assert [read(divided(loader, 2, rank)) for rank in (0, 1)] == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]

    def test_shuffled_by_epoch_as_torch_does(self) -> None:
        loader: Any = divided(DataLoader(ROWS, batch_size=2, shuffle=True), 2, 1)
        sampler = DistributedSampler(ROWS, num_replicas=2, rank=1, shuffle=True)
        orders = []
        for epoch in (0, 1):
            loader.sampler.set_epoch(epoch)
            sampler.set_epoch(epoch)
            orders.append(read(loader))
            assert orders[-1] == list(sampler)
        assert orders[0] != orders[1]

    def test_the_loader_s_options_stay(self) -> None:
        def collate(rows: list[int]) -> Any:
            return torch.tensor(rows) * 2

        loader: Any = divided(DataLoader(ROWS, batch_size=3, drop_last=True, collate_fn=collate), 2, 0)
        assert read(loader) == [0, 4, 8]
        assert loader.drop_last
        workers: Any = divided(
            DataLoader(ROWS, num_workers=1, persistent_workers=True, prefetch_factor=3), 2, 0
        )
        assert (workers.num_workers, workers.persistent_workers, workers.prefetch_factor) == (1, True, 3)

    def test_without_batches(self) -> None:
        assert list(divided(DataLoader(ROWS, batch_size=None), 5, 4)) == [4, 9]

    def test_what_cannot_be_divided_or_is_already(self) -> None:
        stream = DataLoader(Stream())
        assert divided(stream, 2, 0) is stream
        own = DataLoader(ROWS, sampler=DistributedSampler(ROWS, num_replicas=2, rank=0))
        assert divided(own, 2, 0) is own
        batches = DataLoader(ROWS, batch_sampler=BatchSampler(SequentialSampler(ROWS), 2, False))
        with pytest.raises(ValueError, match="batch_sampler cannot be divided"):
            divided(batches, 2, 0)


def test_tensors_are_moved_wherever_they_lie() -> None:
    device = torch.device("meta")
    x = torch.zeros(2)
    got = moved({"a": [x, 1], "b": Pair(x, "text"), "c": (x, None)}, device, is_ahead=False)
    assert got["a"][0].device == got["b"].x.device == got["c"][0].device == device
    assert (got["a"][1], got["b"].y, got["c"][1]) == (1, "text", None)
    assert isinstance(got["b"], Pair)
    assert isinstance(got["c"], tuple)
