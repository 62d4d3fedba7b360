"""Default piece: from arrays to items of episodes."""

from __future__ import annotations

from typing import Any, ClassVar

from runtime.rllib._core.trees import unbatch

from ..connector_v2 import Batch, ConnectorV2


class UnBatchToIndividualItems(ConnectorV2):
    """Makes lists of items under the keys of their episodes of each column, in the order of the module's batch.

    Without an env-to-module pipeline before (in `shared_data`), each column becomes one list.
    """

    is_default_piece: ClassVar[bool] = True

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
        order = (shared_data or {}).get("memorized_map_structure")
        if order is None:
            return {column: unbatch(data) for column, data in batch.items()}
        if isinstance(order, list):
            return {
                column: _by_key([(episode_id,) for episode_id in order], data)
                for column, data in batch.items()
            }
        result: Batch = {}
        for module_id, columns in batch.items():
            if module_id not in order:
                raise KeyError(
                    f"The module gave a batch for {module_id!r}, but the env-to-module pipeline made none for it"
                )
            keys = [(episode_id, agent, module_id) for episode_id, agent in order[module_id]]
            result[module_id] = {column: _by_key(keys, data) for column, data in columns.items()}
        return result


def _by_key(keys: list[tuple[Any, ...]], data: Any) -> dict[tuple[Any, ...], list[Any]]:
    result: dict[tuple[Any, ...], list[Any]] = {}
    for key, item in zip(keys, unbatch(data), strict=True):
        result.setdefault(key, []).append(item)
    return result
