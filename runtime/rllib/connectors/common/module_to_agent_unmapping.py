"""Default piece of multi-agent pipelines: from modules to agents."""

from __future__ import annotations

from typing import Any, ClassVar

from ..connector_v2 import Batch, ConnectorV2


class ModuleToAgentUnmapping(ConnectorV2):
    """Orders a batch by agent: column -> (episode, agent, module) -> items, from module -> column -> the same."""

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
        by_column: Batch = {}
        for columns in batch.values():
            for column, by_agent in columns.items():
                by_column.setdefault(column, {}).update(by_agent)
        return by_column
