"""Default piece: from lists of items to arrays."""

from __future__ import annotations

from typing import Any, ClassVar

from runtime.rllib._core.types import DEFAULT_MODULE_ID
from runtime.rllib.core.columns import Columns

from ..batching import batch_items, is_batched
from ..connector_v2 import Batch, ConnectorV2, is_multi_module


class BatchIndividualItems(ConnectorV2):
    """Makes a tree of arrays [rows, ...] of the items in each column. "infos" stay lists.

    For a `MultiRLModule` without several agents, the columns then are below "default_policy".

    Args:
        multi_agent: Whether the batch is ordered by module.
    """

    is_default_piece: ClassVar[bool] = True

    def __init__(
        self,
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        multi_agent: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self._multi_agent = multi_agent

    def __call__(
        self,
        *,
        rl_module: Any,
        batch: Batch,
        episodes: list[Any],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        metrics: Any = None,
        **kwargs: Any,
    ) -> Batch:
        multi_module = is_multi_module(rl_module)
        for column, data in list(batch.items()):
            if self._multi_agent or (multi_module and column in rl_module):
                if isinstance(data, dict):
                    for name, items in data.items():
                        data[name] = _batched(name, items)
                continue
            if isinstance(data, dict) and all(isinstance(key, tuple) for key in data):
                if column == Columns.OBS and shared_data is not None:
                    shared_data["memorized_map_structure"] = [
                        key[0] for key, items in data.items() for _ in range(sum(map(_rows, items)))
                    ]
                data = [item for items in data.values() for item in items]
            data = _batched(column, data)
            if multi_module:
                del batch[column]
                batch.setdefault(DEFAULT_MODULE_ID, {})[column] = data
            else:
                batch[column] = data
        return batch


def _batched(column: str, items: Any) -> Any:
    if not isinstance(items, list) or not items:
        return items
    if column == Columns.INFOS:
        return [info for item in items for info in (item if isinstance(item, list) else [item])]
    return batch_items(items)


def _rows(item: Any) -> int:
    if not is_batched(item):
        return 1
    while isinstance(item, dict | tuple | list):
        item = next(iter(item.values() if isinstance(item, dict) else item))
    return len(item)
