"""Methods of `Dataset` that run the plan and give its rows to this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

from runtime.data._libraries import load
from runtime.data._plan import nodes
from runtime.data._plan.explain import explain
from runtime.data._plan.rules import fused, known_rows, optimize
from runtime.data.iterator import DataIterator, DatasetIterator

from .plan_holder import PlanHolder
from .schema import Schema

if TYPE_CHECKING:
    from runtime.data.random_access_dataset import RandomAccessDataset


class Consuming(PlanHolder):
    """See `Dataset`."""

    def iterator(self) -> DataIterator:
        """Iterates over the rows, once for each call of its methods."""
        return DatasetIterator(self)

    def iter_rows(self) -> Iterable[dict[str, Any]]:
        """The rows as dicts."""
        return self.iterator().iter_rows()

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
        """Batches of so many rows; see `DataIterator.iter_batches`."""
        return self.iterator().iter_batches(
            prefetch_batches=prefetch_batches,
            batch_size=batch_size,
            batch_format=batch_format,
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
            _collate_fn=_collate_fn,
        )

    def iter_torch_batches(self, **options: Any) -> Iterable[Any]:
        """Batches of tensors; see `DataIterator.iter_torch_batches`."""
        return self.iterator().iter_torch_batches(**options)

    def iter_tf_batches(self, **options: Any) -> Iterable[Any]:
        """Batches of TensorFlow's tensors; see `DataIterator.iter_tf_batches`."""
        return self.iterator().iter_tf_batches(**options)

    def to_tf(self, feature_columns: Any, label_columns: Any, **options: Any) -> Any:
        """A `tf.data.Dataset`; see `DataIterator.to_tf`."""
        return self.iterator().to_tf(feature_columns, label_columns, **options)

    def to_torch(self, **options: Any) -> Any:
        """A `torch.utils.data.IterableDataset`; see `DataIterator.to_torch`."""
        return self.iterator().to_torch(**options)

    def iter_jax_batches(self, **options: Any) -> Iterable[Any]:
        """Batches of JAX arrays; see `DataIterator.iter_jax_batches`."""
        return self.iterator().iter_jax_batches(**options)

    def take(self, limit: int = 20) -> list[dict[str, Any]]:
        """The first rows."""
        from runtime.data._block.batch import rows

        if limit < 0:
            raise ValueError(f"take needs a number of rows, not {limit}.")
        return [row for table in self._tables(nodes.Limit(self._node, limit)) for row in rows(table)]

    def take_all(self, limit: int | None = None) -> list[dict[str, Any]]:
        """All rows.

        Raises:
            ValueError: there are more than `limit`.
        """
        from runtime.data._block.batch import rows

        if limit is None:
            return [row for table in self._tables() for row in rows(table)]
        found = self.take(limit + 1)
        if len(found) > limit:
            raise ValueError(f"The data set has more than {limit} rows.")
        return found

    def take_batch(self, batch_size: int = 20, *, batch_format: str | None = "default") -> Any:
        """The first rows as one batch.

        Raises:
            ValueError: there are none.
        """
        from runtime.data._block.batch import to_batch
        from runtime.data._block.schema_diff import concat

        tables = [table for table in self._tables(nodes.Limit(self._node, batch_size)) if table.num_rows]
        if not tables:
            raise ValueError("The data set is empty.")
        return to_batch(concat(tables), batch_format)

    def show(self, limit: int = 20) -> None:
        """Prints the first rows."""
        for row in self.take(limit):
            print(row)

    def count(self) -> int:
        """The number of rows; of files with footers and of blocks that exist without reading them."""
        node = optimize(nodes.Count(self._node))
        source = node.inputs[0] if isinstance(node, nodes.Count) else node
        known = known_rows(source)
        if known is not None:
            return known
        from runtime.data._exec import local

        if local.can_run(source, self._context):
            return sum(table.num_rows for table in local.tables(source, self._context))
        return sum(bundle.rows for _, bundle in self._bundles(source, holds=False))

    def schema(self, fetch_if_missing: bool = True) -> Schema | None:
        """The names and types of the columns; of the first block. None for no rows, or if it is not known and not
        wanted."""
        known = _known_schema(self._node)
        if known is not None:
            return Schema(known)
        if not fetch_if_missing:
            return None
        for table in self._tables(nodes.Limit(self._node, 1)):
            if table.num_columns:
                return Schema(table.schema)
        return None

    def materialize(self) -> Self:
        """Runs the plan and keeps its blocks in the object store."""
        blocks = [
            nodes.GivenBlock(ref, bundle.rows, bundle.size_bytes, bundle.start)
            for ref, bundle in self._bundles(optimize(self._node), holds=False)
        ]
        filled = tuple(block for block in blocks if block.rows) or tuple(blocks[:1])
        made = self._kept_with(filled)
        made._summary = self._summary
        return made

    def num_blocks(self) -> int:
        """How many blocks a materialized data set has.

        Raises:
            NotImplementedError: it is not materialized.
        """
        return len(self._given_blocks())

    def _given_blocks(self) -> tuple[nodes.GivenBlock, ...]:
        if not isinstance(self._node, nodes.Given):
            raise NotImplementedError(
                "Only a materialized data set knows its blocks: materialize() it first."
            )
        return self._node.blocks

    def size_bytes(self) -> int:
        """The bytes of all blocks in memory; runs the plan unless it is materialized or only reads."""
        if isinstance(self._node, nodes.Read):
            size = self._node.source.estimate_inmemory_data_size()
            if size is not None:
                return int(size)
        if isinstance(self._node, nodes.Given):
            return sum(block.size_bytes for block in self._node.blocks)
        return sum(bundle.size_bytes for _, bundle in self._bundles(optimize(self._node), holds=False))

    def input_files(self) -> list[str]:
        """The files that it reads."""
        files: set[str] = set()

        def visit(node: nodes.Node) -> None:
            if isinstance(node, nodes.Read):
                for task in node.source.get_read_tasks(1):
                    files.update(task.metadata.input_files or ())
            for each in node.inputs:
                visit(each)

        visit(self._node)
        return sorted(files)

    def explain(self) -> None:
        """Prints the plan: as it was written, after the rules, and as the tasks of its stages."""
        from runtime.data._exec import local

        after = optimize(self._node)
        parts = [("Plan", explain(self._node)), ("Optimized", explain(after))]
        gathered = local.gathered(after, self._context)
        if local.can_run(after, self._context):
            parts.append(("Runs in this process, without tasks", ""))
        elif gathered:
            parts += [("Stages", explain(fused(each))) for each in gathered]
            parts.append(("The rest runs in this process, without tasks", ""))
        else:
            parts.append(("Stages", explain(fused(after))))
        print("\n\n".join(f"{title}:\n{text}" if text else f"{title}." for title, text in parts))

    def stats(self) -> str:
        """What the last execution of this data set has done."""
        return self._summary

    # ------------------------------------------------------------ as other objects

    def to_pandas(self, limit: int | None = None) -> Any:
        """A data frame with all rows.

        Raises:
            ValueError: there are more than `limit`.
        """
        from runtime.data._block.batch import to_batch
        from runtime.data._block.schema_diff import concat

        node = self._node if limit is None else nodes.Limit(self._node, limit + 1)
        tables = list(self._tables(node))
        if limit is not None and sum(table.num_rows for table in tables) > limit:
            raise ValueError(f"The data set has more than {limit} rows.")
        if not tables:
            return load("pandas", "to_pandas").DataFrame()
        return to_batch(concat(tables), "pandas")

    def to_arrow_refs(self) -> list[Any]:
        """A reference to an Arrow table for each block."""
        return [ref for ref, _ in self._whole_blocks()]

    def get_internal_block_refs(self) -> list[Any]:
        """See `to_arrow_refs`."""
        return self.to_arrow_refs()

    def to_pandas_refs(self) -> list[Any]:
        """A reference to a data frame for each block."""
        import runtime
        from runtime.data._block.batch import to_batch

        return [runtime.put(to_batch(runtime.get(ref), "pandas")) for ref in self.to_arrow_refs()]

    def to_numpy_refs(self, *, column: str | None = None) -> list[Any]:
        """A reference to a dict of arrays for each block, or to the array of one column."""
        import runtime
        from runtime.data._block.batch import to_batch

        batches = (to_batch(runtime.get(ref), "numpy") for ref in self.to_arrow_refs())
        return [runtime.put(batch if column is None else batch[column]) for batch in batches]

    def _whole_blocks(self) -> Iterator[tuple[Any, int]]:
        """References to blocks of which every row counts, with their rows."""
        import runtime

        for block in self.materialize()._given_blocks():
            table = runtime.get(block.ref)
            if block.rows == table.num_rows:
                yield block.ref, block.rows
            else:
                yield runtime.put(table.slice(block.start, block.rows)), block.rows

    def to_random_access_dataset(self, key: str, num_workers: int | None = None) -> RandomAccessDataset:
        """Sorts the rows by a column, of which actors then find them by value.

        Args:
            key: a column whose values are unique; of rows with equal values one is found.
            num_workers: actors; None: four for each node.
        """
        import runtime
        from runtime.data.random_access_dataset import RandomAccessDataset

        whole = self._with(nodes.Sort(self._node, (key,), (False,))).materialize()
        workers = 4 * len(runtime.nodes()) if num_workers is None else num_workers
        return RandomAccessDataset(whole._given_blocks(), key, workers)


def _known_schema(node: nodes.Node) -> Any:
    """The schema of a source that knows it."""
    match node:
        case nodes.Given(_, schema):
            return schema
        case nodes.Read(source):
            return getattr(source, "schema", None)
        case nodes.Limit() | nodes.Sort() | nodes.Shuffle() | nodes.Repartition() | nodes.Filter():
            return _known_schema(node.inputs[0])
    return None
