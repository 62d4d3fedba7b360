"""The pipeline before a learner's update."""

from __future__ import annotations

from typing import Any, ClassVar

from runtime.rllib._core.types import ALL_MODULES
from runtime.rllib.utils.metrics import (
    LEARNER_CONNECTOR,
    LEARNER_CONNECTOR_SUM_EPISODES_LENGTH_IN,
    LEARNER_CONNECTOR_SUM_EPISODES_LENGTH_OUT,
)

from ..connector_pipeline_v2 import ConnectorPipelineV2
from ..connector_v2 import Batch


class LearnerConnectorPipeline(ConnectorPipelineV2):
    """Makes the batch for an update from episodes."""

    columns_method: ClassVar[str | None] = "on_rollout"

    def __call__(
        self,
        *,
        rl_module: Any,
        batch: Batch | None = None,
        episodes: list[Any],
        explore: bool | None = False,
        shared_data: dict[str, Any] | None = None,
        metrics: Any = None,
        **kwargs: Any,
    ) -> Batch:
        kwargs.setdefault("metrics_prefix_key", (ALL_MODULES, LEARNER_CONNECTOR))
        if metrics is not None:
            metrics.log_value(
                (ALL_MODULES, LEARNER_CONNECTOR_SUM_EPISODES_LENGTH_IN), sum(map(len, episodes))
            )
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
            metrics.log_value(
                (ALL_MODULES, LEARNER_CONNECTOR_SUM_EPISODES_LENGTH_OUT), sum(map(len, episodes))
            )
        return result
