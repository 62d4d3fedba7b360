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


class LearnerConnectorPipeline(ConnectorPipelineV2):
    """Makes the batch for an update from episodes."""

    columns_method: ClassVar[str | None] = "on_rollout"
    length_keys: ClassVar[tuple[Any, Any] | None] = (
        (ALL_MODULES, LEARNER_CONNECTOR_SUM_EPISODES_LENGTH_IN),
        (ALL_MODULES, LEARNER_CONNECTOR_SUM_EPISODES_LENGTH_OUT),
    )
    metrics_prefix: ClassVar[tuple[str, ...]] = (ALL_MODULES, LEARNER_CONNECTOR)
    explores: ClassVar[bool | None] = False
