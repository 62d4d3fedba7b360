"""`DataIterator`: rows and batches of a data set, as often as they are asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from runtime.data._libraries import load
from runtime.data.context import DataContext

if TYPE_CHECKING:
    import pyarrow as pa

    from runtime.data._api.schema import Schema


class Rows(Protocol):
    """What an iterator asks of a data set."""

    _context: DataContext

    def _tables(self, node: Any = None, ahead: int = 2) -> Iterator[pa.Table]: ...

    def schema(self, fetch_if_missing: bool = True) -> Schema | None: ...

    def stats(self) -> str: ...

    def materialize(self) -> Any: ...


class _Again:
    """An iterable that begins anew with each iteration."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self._begin()


class DataIterator(ABC):
    """Iterates over a data set, or over one part of a `streaming_split`."""

    @abstractmethod
    def _blocks(self, ahead: int) -> Iterator[pa.Table]:
        """The blocks of one pass. `ahead`: how many are fetched before they are needed."""

    @abstractmethod
    def schema(self) -> Schema | None:
        """See `Dataset.schema`."""

    @abstractmethod
    def stats(self) -> str:
        """See `Dataset.stats`."""

    @abstractmethod
    def get_context(self) -> DataContext:
        """The options of its data set."""

    def iter_rows(self) -> Iterable[dict[str, Any]]:
        """The rows as dicts."""
        from runtime.data._block.batch import rows

        return _Again(lambda: (row for table in self._blocks(1) for row in rows(table)))

    def iter_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        batch_format: str | None = "default",
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        _collate_fn: Callable[[Any], Any] | None = None,
    ) -> Iterable[Any]:
        """Batches of so many rows, with rows of several blocks where one ends.

        Args:
            prefetch_batches: how many batches are fetched before they are needed, in whole blocks.
            batch_size: None: one batch for each block.
            batch_format: see `Dataset.map_batches`. Arrays may be views of the object store, and read-only.
            drop_last: leaves a last, smaller batch out.
            local_shuffle_buffer_size: draws rows at random from at least so many.
        """
        if local_shuffle_buffer_size is not None and batch_size is None:
            raise ValueError("local_shuffle_buffer_size needs a batch_size.")

        def begin() -> Iterator[Any]:
            from runtime.data._block.batch import to_batch
            from runtime.data._block.batcher import batches, shuffled_batches

            blocks = self._blocks(max(0, prefetch_batches))
            if local_shuffle_buffer_size is None:
                tables = batches(blocks, batch_size, drop_last)
            else:
                assert batch_size is not None
                tables = shuffled_batches(
                    blocks, batch_size, local_shuffle_buffer_size, local_shuffle_seed, drop_last
                )
            for table in tables:
                batch = to_batch(table, batch_format)
                yield batch if _collate_fn is None else _collate_fn(batch)

        return _Again(begin)

    def iter_torch_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        dtypes: Any = None,
        device: Any = "auto",
        collate_fn: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        pin_memory: bool = False,
    ) -> Iterable[Any]:
        """Batches of tensors, one for each column.

        Args:
            dtypes: of all tensors, or a dict by column.
            device: "auto": the CPU, or the first GPU that the process was given.
            collate_fn: makes something else of a batch of numpy arrays.
        """
        if collate_fn is not None and dtypes is not None:
            raise ValueError("collate_fn chooses the types itself: leave dtypes out.")

        def collate(batch: Mapping[str, Any]) -> Any:
            return _tensors(batch, dtypes, _device(device), pin_memory)

        return self.iter_batches(
            prefetch_batches=prefetch_batches,
            batch_size=batch_size,
            batch_format="numpy",
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
            _collate_fn=collate_fn or collate,
        )

    def iter_tf_batches(self, *, dtypes: Any = None, **options: Any) -> Iterable[Any]:
        """Batches of TensorFlow's tensors, one for each column. Options: as for `iter_batches`."""

        def collate(batch: Mapping[str, Any]) -> Any:
            tf = load("tensorflow", "iter_tf_batches")
            types = dtypes if isinstance(dtypes, Mapping) else dict.fromkeys(batch, dtypes)
            return {
                name: tf.convert_to_tensor(values, dtype=types.get(name)) for name, values in batch.items()
            }

        return self.iter_batches(batch_format="numpy", _collate_fn=collate, **options)

    def to_tf(
        self, feature_columns: str | Sequence[str], label_columns: str | Sequence[str], **options: Any
    ) -> Any:
        """A `tf.data.Dataset` of pairs of features and labels. Options: as for `iter_batches`."""
        tf = load("tensorflow", "to_tf")

        def chosen(batch: Mapping[str, Any], columns: str | Sequence[str]) -> Any:
            if isinstance(columns, str):
                return batch[columns]
            return {name: batch[name] for name in columns}

        def pairs() -> Iterator[Any]:
            for batch in self.iter_batches(batch_format="numpy", **options):
                yield chosen(batch, feature_columns), chosen(batch, label_columns)

        def spec(values: Any) -> Any:
            if isinstance(values, dict):
                return {name: spec(each) for name, each in values.items()}
            return tf.TensorSpec((None, *values.shape[1:]), tf.as_dtype(values.dtype))

        first = next(pairs())
        return tf.data.Dataset.from_generator(pairs, output_signature=tuple(map(spec, first)))

    @abstractmethod
    def materialize(self) -> Any:
        """A `MaterializedDataset` with the rows of one pass."""


def _device(device: Any) -> Any:
    if device != "auto":
        return device
    return "cuda" if load("torch", "iter_torch_batches").cuda.is_available() else "cpu"


def _tensors(batch: Mapping[str, Any], dtypes: Any, device: Any, pin_memory: bool) -> dict[str, Any]:
    """Tensors over memory of their own: the arrays may be views of the object store, which must not change."""
    import numpy as np

    torch = load("torch", "iter_torch_batches")
    tensors = {}
    for name, values in batch.items():
        dtype = dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes
        if values.dtype == object:
            try:
                values = np.stack(list(values))
            except (TypeError, ValueError):
                pass
            if values.dtype == object or values.dtype.kind in "US":
                raise TypeError(
                    f"Column {name!r} has no type that torch knows: drop it, or give a collate_fn."
                )
        tensor = torch.from_numpy(values if values.flags.writeable else values.copy())
        if pin_memory:
            tensor = tensor.pin_memory()
        if dtype is not None or str(device) != "cpu":
            tensor = tensor.to(device=device, dtype=dtype, non_blocking=pin_memory)
        tensors[name] = tensor
    return tensors


class DatasetIterator(DataIterator):
    """Runs the plan of a data set for each pass."""

    def __init__(self, dataset: Rows) -> None:
        self._dataset = dataset

    def __repr__(self) -> str:
        return f"DataIterator({self._dataset!r})"

    def _blocks(self, ahead: int) -> Iterator[pa.Table]:
        return self._dataset._tables(ahead=ahead)

    def schema(self) -> Schema | None:
        return self._dataset.schema()

    def stats(self) -> str:
        return self._dataset.stats()

    def get_context(self) -> DataContext:
        return self._dataset._context

    def materialize(self) -> Any:
        return self._dataset.materialize()
