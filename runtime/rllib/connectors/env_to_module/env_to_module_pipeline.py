"""The pipeline between environment and module."""

from __future__ import annotations

from typing import Any, ClassVar

from runtime.rllib.utils.metrics import (
    ENV_TO_MODULE_SUM_EPISODES_LENGTH_IN,
    ENV_TO_MODULE_SUM_EPISODES_LENGTH_OUT,
)

from ..connector_pipeline_v2 import ConnectorPipelineV2
from ..connector_v2 import Batch


class EnvToModulePipeline(ConnectorPipelineV2):
    """Makes the batch for a module's forward pass from the episodes of a runner's environments."""

    columns_method: ClassVar[str | None] = "on_vector_step"

    def __call__(
        self,
        *,
        rl_module: Any,
        batch: Batch | None = None,
        episodes: list[Any],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        metrics: Any = None,
        **kwargs: Any,
    ) -> Batch:
        if metrics is not None:
            metrics.log_value(ENV_TO_MODULE_SUM_EPISODES_LENGTH_IN, sum(map(len, episodes)))
        result = super().__call__(
            rl_module=rl_module,
            batch={} if batch is None else batch,
            episodes=episodes,
            explore=explore,
            shared_data=shared_data,
            metrics=metrics,
            **kwargs,
        )
        if metrics is not None:
            metrics.log_value(ENV_TO_MODULE_SUM_EPISODES_LENGTH_OUT, sum(map(len, episodes)))
        return result
