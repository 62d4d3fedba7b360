"""`DataIterator`: rows and batches of a data set, as often as they are asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from runtime.data._exec import waiting
from runtime.data._iteration.batching import Batching
from runtime.data._iteration.jax_arrays import sharder
from runtime.data._iteration.position import Position
from runtime.data._iteration.prefetch import Cancellation, Feed, ahead
from runtime.data._iteration.tensors import Copies, device_of, moved, tensors_of
from runtime.data._iteration.torch_dataset import beside, check_features, features, iterable_dataset
from runtime.data._libraries import load
from runtime.data.collate_fn import batch_format_of
from runtime.data.context import DataContext

if TYPE_CHECKING:
    import pyarrow as pa

    from runtime.data._api.schema import Schema


class Rows(Protocol):
    """What an iterator asks of a data set."""

    _context: DataContext

    def _tables(
        self,
        node: Any = None,
        ahead: int = 2,
        cancellation: Cancellation | None = None,
        skip: int = 0,
    ) -> Iterator[pa.Table]: ...

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

    _position: Position | None = None

    @abstractmethod
    def _blocks(
        self, ahead: int, cancellation: Cancellation | None = None, epoch: int | None = None, skip: int = 0
    ) -> Iterator[pa.Table]:
        """The blocks of one pass.

        Args:
            ahead: how many are fetched before they are needed.
            cancellation: ends a wait for a block, from another thread.
            epoch: None: the next one.
            skip: without so many of the first rows.
        """

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
            prefetch_batches: how many batches a thread makes before they are needed, and how many blocks are asked
                for; several small batches count as one. 0: everything happens in the consumer's thread.
            batch_size: None: one batch for each block.
            batch_format: see `Dataset.map_batches`. Arrays may be views of the object store, and read-only.
            drop_last: leaves a last, smaller batch out.
            local_shuffle_buffer_size: draws rows at random from at least so many.
            local_shuffle_seed: None: another order in each pass.
        """
        return self._iter(
            prefetch_batches,
            local_shuffle_seed,
            Batching(
                batch_size,
                batch_format,
                drop_last,
                local_shuffle_buffer_size,
                _collate_fn,
            ),
        )

    def _iter(self, prefetch_batches: int, seed: int | None, batching: Batching) -> Iterable[Any]:
        if prefetch_batches < 0:
            raise ValueError(f"prefetch_batches is {prefetch_batches}, but must be at least 0.")

        def begin() -> Iterator[Any]:
            position = self._where()
            start = position.begin(seed)
            is_shuffled = batching.shuffle_rows is not None

            def batches(feed: Feed | None) -> Iterator[tuple[int, Any]]:
                cancellation = None if feed is None else feed.cancellation
                skip = 0 if is_shuffled else start.rows
                blocks = self._blocks(prefetch_batches, cancellation, start.epoch, skip)
                if feed is not None:
                    blocks = feed.flushing(blocks)
                return batching.batches(blocks, start.seed, start.rows)

            wait = waiting.wait_of_consumer()
            made = ahead(batches, prefetch_batches, wait) if prefetch_batches else batches(None)
            for rows, batch in made:
                position.advance(start.epoch, rows)
                yield batch
                del batch  # or it would be held while the next one is waited for
            position.end(start.epoch)

        return _Again(begin)

    def _where(self) -> Position:
        if self._position is None:
            self._position = Position()
        return self._position

    def state_dict(self) -> dict[str, Any]:
        """How far the batches of this iterator have got: a small dict of numbers, for `load_state_dict`.

        Rows count when the consumer gets their batch, not when they are prepared. If several passes run at the same
        time, the one that began last counts. `iter_rows` does not count.
        """
        return self._where().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next pass goes on where another iterator was when it gave this `state_dict`; later ones are whole.

        The rows must come in the same order as before: the plan is the same, keeps order (as is the default), its
        `random_shuffle` has a seed, and its functions give the same rows again. Blocks that exist and Parquet files are
        not read again. Of other plans, rows are computed again and left out. A local shuffle is done again with the
        seed of the state.

        Raises:
            ValueError: it is no state, or this iterator's rows have no order (`streaming_split` without `equal`).
        """
        self._position = Position.of(state)

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
            collate_fn: makes something else of a batch: a `CollateFn` of a table, of a dict of arrays or of a data
                frame, or a function of a dict of arrays. Tensors that it returns are put on the device.
            pin_memory: tensors on the CPU are in locked pages.

        Raises:
            ImportError: torch is not installed.
        """
        if collate_fn is not None and dtypes is not None:
            raise ValueError("collate_fn chooses the types itself: leave dtypes out.")
        chosen, copies = device_of(device), Copies()

        def finalize(batch: Any) -> Any:
            return moved(batch, chosen, pin_memory)

        return self._iter(
            prefetch_batches,
            local_shuffle_seed,
            Batching(
                batch_size,
                batch_format_of(collate_fn),
                drop_last,
                local_shuffle_buffer_size,
                collate_fn or (lambda batch: tensors_of(batch, dtypes, copies)),
                finalize,
            ),
        )

    def iter_tf_batches(self, *, dtypes: Any = None, **options: Any) -> Iterable[Any]:
        """Batches of TensorFlow's tensors, one for each column. Options: as for `iter_batches`.

        Raises:
            ImportError: tensorflow is not installed.
        """
        tf = load("tensorflow", "iter_tf_batches")

        def collate(batch: Mapping[str, Any]) -> Any:
            types = dtypes if isinstance(dtypes, Mapping) else dict.fromkeys(batch, dtypes)
            return {
                name: tf.convert_to_tensor(values, dtype=types.get(name)) for name, values in batch.items()
            }

        return self.iter_batches(batch_format="numpy", _collate_fn=collate, **options)

    def iter_jax_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int = 256,
        dtypes: Any = None,
        collate_fn: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        synchronize_batches: bool = False,
        paddings: Any = None,
    ) -> Iterable[Any]:
        """Batches of JAX arrays, one for each column, sharded by rows over the devices of all processes.

        Args:
            batch_size: rows of this process, a multiple of its devices.
            dtypes: of all arrays, or a dict by column.
            collate_fn: see `iter_torch_batches`; makes an array or a dict of arrays.
            synchronize_batches: must be False: every process gives batches of the same sizes.
            paddings: what a last, smaller batch is filled up with, or a dict by column.

        Raises:
            ImportError: JAX is not installed.
        """
        if synchronize_batches:
            raise NotImplementedError(
                "iter_jax_batches does not compare the batches of processes: leave synchronize_batches out, and "
                "give each process as many rows, e.g. by streaming_split(equal=True)."
            )
        return self._iter(
            prefetch_batches,
            local_shuffle_seed,
            Batching(
                batch_size,
                batch_format_of(collate_fn),
                drop_last,
                local_shuffle_buffer_size,
                collate_fn,
                sharder(batch_size, dtypes, paddings),
            ),
        )

    def to_torch(
        self,
        *,
        label_column: str | None = None,
        feature_columns: Any = None,
        label_column_dtype: Any = None,
        feature_column_dtypes: Any = None,
        batch_size: int = 1,
        prefetch_batches: int = 1,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        unsqueeze_label_tensor: bool = True,
        unsqueeze_feature_tensors: bool = True,
    ) -> Any:
        """A `torch.utils.data.IterableDataset` of pairs of features and labels. Use it without a `DataLoader`.

        Args:
            label_column: None: labels are None.
            feature_columns: of one tensor of shape (rows, columns); a list or dict of lists: of so many tensors.
                None: all columns but the label.
            label_column_dtype: None: as the column is.
            feature_column_dtypes: one type, or a list or dict of them as `feature_columns` is.
            unsqueeze_label_tensor: labels have shape (rows, 1) rather than (rows,).
            unsqueeze_feature_tensors: columns get a dimension each, along which they are put together.

        Raises:
            ImportError: torch is not installed.
        """
        columns = feature_columns or None
        check_features(columns, feature_column_dtypes)

        def pair(batch: Mapping[str, Any]) -> Any:
            wanted = columns or [name for name in batch if name != label_column]
            label = None
            if label_column is not None:
                label = beside(batch, [label_column], label_column_dtype, unsqueeze_label_tensor)
            return features(batch, wanted, feature_column_dtypes, unsqueeze_feature_tensors), label

        batching = Batching(batch_size, "numpy", drop_last, local_shuffle_buffer_size, pair)
        pairs = self._iter(prefetch_batches, local_shuffle_seed, batching)
        return iterable_dataset(lambda: iter(pairs))

    def to_tf(
        self,
        feature_columns: str | Sequence[str],
        label_columns: str | Sequence[str],
        *,
        additional_columns: str | Sequence[str] | None = None,
        feature_type_spec: Any = None,
        label_type_spec: Any = None,
        additional_type_spec: Any = None,
        **options: Any,
    ) -> Any:
        """A `tf.data.Dataset` of pairs of features and labels, and of `additional_columns` if there are any.

        Args:
            feature_type_spec: a `tf.TypeSpec`, or a dict by column; None: that of the first batch. So are the others.
            options: as for `iter_batches`.

        Raises:
            ImportError: tensorflow is not installed.
        """
        tf = load("tensorflow", "to_tf")
        groups = [feature_columns, label_columns]
        specs = [feature_type_spec, label_type_spec]
        if additional_columns is not None:
            groups.append(additional_columns)
            specs.append(additional_type_spec)

        def chosen(batch: Mapping[str, Any], columns: str | Sequence[str]) -> Any:
            if isinstance(columns, str):
                return batch[columns]
            return {name: batch[name] for name in columns}

        def rows(**changes: Any) -> Iterator[Any]:
            for batch in self.iter_batches(batch_format="numpy", **{**options, **changes}):
                yield tuple(chosen(batch, columns) for columns in groups)

        def spec(values: Any) -> Any:
            if isinstance(values, dict):
                return {name: spec(each) for name, each in values.items()}
            return tf.TensorSpec((None, *values.shape[1:]), tf.as_dtype(values.dtype))

        if any(each is None for each in specs):
            first = next(rows(batch_size=1, local_shuffle_buffer_size=None))
            specs = [
                spec(values) if given is None else given for given, values in zip(specs, first, strict=True)
            ]
        return tf.data.Dataset.from_generator(rows, output_signature=tuple(specs))

    @abstractmethod
    def materialize(self) -> Any:
        """A `MaterializedDataset` with the rows of one pass."""


class DatasetIterator(DataIterator):
    """Runs the plan of a data set for each pass."""

    def __init__(self, dataset: Rows) -> None:
        self._dataset = dataset

    def __repr__(self) -> str:
        return f"DataIterator({self._dataset!r})"

    def _blocks(
        self, ahead: int, cancellation: Cancellation | None = None, epoch: int | None = None, skip: int = 0
    ) -> Iterator[pa.Table]:
        return self._dataset._tables(None, ahead, cancellation, skip)

    def schema(self) -> Schema | None:
        return self._dataset.schema()

    def stats(self) -> str:
        return self._dataset.stats()

    def get_context(self) -> DataContext:
        return self._dataset._context

    def materialize(self) -> Any:
        return self._dataset.materialize()
