"""How the data sets of a trainer are divided among its workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal


class DataConfig:
    """Divides data sets.

    Args:
        datasets_to_split: the names of those of which each worker has a part; of the others each worker has all rows.
            "all": every one is divided.
        execution_options: of the data sets, one for all or by name (`runtime.data.ExecutionOptions`).
        enable_shard_locality: a worker prefers blocks that are on its node.

    Raises:
        TypeError: `datasets_to_split` is neither "all" nor a list.
    """

    def __init__(
        self,
        datasets_to_split: Literal["all"] | Sequence[str] = "all",
        execution_options: Any = None,
        enable_shard_locality: bool = True,
    ) -> None:
        if datasets_to_split != "all" and not isinstance(datasets_to_split, list | tuple | set):
            raise TypeError(f'datasets_to_split must be "all" or a list of names, not {datasets_to_split!r}.')
        self._datasets_to_split = datasets_to_split
        self._execution_options = execution_options
        self._enable_shard_locality = enable_shard_locality

    def configure(
        self,
        datasets: Mapping[str, Any],
        world_size: int,
        worker_handles: Sequence[Any] | None,
        worker_node_ids: Sequence[str] | None,
    ) -> list[dict[str, Any]]:
        """What each rank gets: iterators by name.

        Args:
            datasets: by name.
            world_size: the number of ranks.
            worker_handles: not given by this library.
            worker_node_ids: the nodes of the ranks.
        """
        shards: list[dict[str, Any]] = [{} for _ in range(world_size)]
        hints = list(worker_node_ids) if worker_node_ids and self._enable_shard_locality else None
        for name, dataset in datasets.items():
            options = self._options_of(name)
            if options is not None:
                dataset = dataset.copy()
                dataset.context.execution_options = options
            if self._datasets_to_split == "all" or name in self._datasets_to_split:
                parts = dataset.streaming_split(world_size, equal=True, locality_hints=hints)
            else:
                parts = [dataset.iterator() for _ in range(world_size)]
            for shard, part in zip(shards, parts, strict=True):
                shard[name] = part
        return shards

    def _options_of(self, name: str) -> Any:
        options = self._execution_options
        return options.get(name) if isinstance(options, Mapping) else options
