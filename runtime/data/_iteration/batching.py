"""Batches of blocks as the user asked for them: cut or drawn at random, in a format, collated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Batching:
    """The options of `DataIterator.iter_batches`. `finalize`: what is done to a batch after `collate`."""

    batch_size: int | None = 256
    batch_format: str | None = "default"
    drop_last: bool = False
    shuffle_rows: int | None = None
    collate: Callable[[Any], Any] | None = None
    finalize: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        from runtime.data._block.batch import FORMATS

        if self.batch_format is not None and self.batch_format not in FORMATS:
            raise ValueError(f"batch_format {self.batch_format!r} is none of {', '.join(FORMATS)}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size}, but a batch has at least one row")
        if self.shuffle_rows is not None and self.batch_size is None:
            raise ValueError("local_shuffle_buffer_size needs a batch_size.")

    def batches(
        self, blocks: Iterable[pa.Table], seed: int | None = None, skip: int = 0
    ) -> Iterator[tuple[int, Any]]:
        """Each batch with the number of its rows.

        Args:
            blocks: without the first `skip` rows of the epoch, unless rows are shuffled.
            skip: with a local shuffle, batches of so many rows are drawn and left out.
        """
        made = self._cut(blocks) if self.shuffle_rows is None else self._drawn(blocks, seed, skip)
        for rows, batch in made:
            if self.collate is not None:
                batch = self.collate(batch)
            yield rows, batch if self.finalize is None else self.finalize(batch)

    def _cut(self, blocks: Iterable[pa.Table]) -> Iterator[tuple[int, Any]]:
        from runtime.data._block.batch import to_batch
        from runtime.data._block.batcher import cut, cut_numpy, runs

        for run in runs(blocks, self.batch_size, self.drop_last):
            left, size = run.num_rows, self.batch_size or run.num_rows
            if self._is_numpy and run.num_columns:
                batches: Iterator[Any] = cut_numpy(run, self.batch_size)
            else:
                batches = (to_batch(table, self.batch_format) for table in cut(run, self.batch_size))
            del run  # or its block would be held until the next one is there
            for batch in batches:
                yield min(left, size), batch
                left -= size
                del batch

    def _drawn(self, blocks: Iterable[pa.Table], seed: int | None, skip: int) -> Iterator[tuple[int, Any]]:
        from runtime.data._block.arrays import make_writable
        from runtime.data._block.batch import to_batch
        from runtime.data._block.batcher import shuffled_batches

        assert self.batch_size is not None
        assert self.shuffle_rows is not None
        for table in shuffled_batches(blocks, self.batch_size, self.shuffle_rows, seed, self.drop_last):
            if skip > 0:
                skip -= table.num_rows
                continue
            batch = to_batch(table, self.batch_format)
            if self._is_numpy:  # over memory that was gathered for this batch
                for values in batch.values():
                    make_writable(values)
            yield table.num_rows, batch

    @property
    def _is_numpy(self) -> bool:
        return self.batch_format in ("default", "numpy")
