"""`Dataset` and `MaterializedDataset`, as in Ray Data. The methods are in `_api`, by what they do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from runtime.data._api.compute import ActorPoolStrategy, TaskPoolStrategy
from runtime.data._api.schema import Schema
from runtime.data._api.writing import Writing
from runtime.data._plan import nodes
from runtime.data._plan.explain import explain
from runtime.data.context import DataContext

__all__ = ["ActorPoolStrategy", "Dataset", "MaterializedDataset", "Schema", "TaskPoolStrategy"]


class Dataset(Writing):
    """Rows with named columns, which are computed when they are needed and stream through the cluster.

    Methods that extend the plan return at once. Those that consume rows run it, with as many tasks as there are CPUs
    for, and never hold more blocks than their budget (`DataContext.execution_options`). Rows come in order.
    """

    @classmethod
    def _from_datasource(
        cls,
        datasource: Any,
        ray_remote_args: Mapping[str, Any] | None = None,
        override_num_blocks: int | None = None,
        concurrency: int | None = None,
    ) -> Dataset:
        """The rows of a source.

        Args:
            override_num_blocks: how many read tasks; None: by size and cores.
            concurrency: how many of them run at a time.
        """
        if override_num_blocks is not None and override_num_blocks < 1:
            raise ValueError(f"override_num_blocks must be at least 1, not {override_num_blocks}.")
        compute = nodes.Compute(dict(ray_remote_args or {}), concurrency)
        return Dataset(nodes.Read(datasource, override_num_blocks, compute))

    @property
    def context(self) -> DataContext:
        """Its options."""
        return self._context

    @property
    def name(self) -> str | None:
        """Its name in reports, if it has one."""
        return self._name

    def set_name(self, name: str | None) -> None:
        """Gives it a name for reports."""
        self._name = name

    @classmethod
    def copy(cls, ds: Self, _deep_copy: bool = False, _as: type | None = None) -> Dataset:
        """Another data set of the same plan, with its own options."""
        return Dataset(ds._node, ds._context.copy(), ds._name)

    def serialize_lineage(self) -> bytes:
        """The plan, for `deserialize_lineage` in another cluster.

        Raises:
            ValueError: it begins with blocks in this cluster's memory.
        """
        from runtime import cloudpickle

        if not self.has_serializable_lineage():
            raise ValueError("The plan begins with blocks in memory, which another cluster does not have.")
        return cloudpickle.dumps((self._node, self._context, self._name))

    def has_serializable_lineage(self) -> bool:
        """Whether all rows come from data sources."""

        def reads_only(node: nodes.Node) -> bool:
            return not isinstance(node, nodes.Given) and all(map(reads_only, node.inputs))

        return reads_only(self._node)

    @staticmethod
    def deserialize_lineage(serialized_ds: bytes) -> Dataset:
        """See `serialize_lineage`."""
        from runtime import cloudpickle

        return Dataset(*cloudpickle.loads(serialized_ds))

    def __repr__(self) -> str:
        return f"{self._described()}\n{explain(self._node)}"

    def _described(self, **counts: int) -> str:
        """Its name, numbers and columns, as far as they are known without running it."""
        schema = self.schema(fetch_if_missing=False)
        told = [f"name={self._name!r}"] if self._name else []
        told += [f"{name}={count}" for name, count in counts.items()]
        told.append(f"schema={'unknown' if schema is None else f'{{{schema.brief()}}}'}")
        return f"{type(self).__name__}({', '.join(told)})"

    def __iter__(self) -> Any:
        raise TypeError("A Dataset is not iterable: use iter_rows() or iter_batches().")

    def __len__(self) -> int:
        raise AttributeError("Use count() for the number of rows.")


class MaterializedDataset(Dataset):
    """Rows that lie in the object store."""

    _node: nodes.Given

    def __repr__(self) -> str:
        blocks = self._node.blocks
        return self._described(num_blocks=len(blocks), num_rows=sum(block.rows for block in blocks))

    def materialize(self) -> Self:
        return self


Dataset._plain = Dataset
Dataset._kept = MaterializedDataset
