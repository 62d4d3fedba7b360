"""The pipeline between environment and module."""

from __future__ import annotations

from typing import Any, ClassVar

from runtime.rllib.utils.metrics import (
    ENV_TO_MODULE_SUM_EPISODES_LENGTH_IN,
    ENV_TO_MODULE_SUM_EPISODES_LENGTH_OUT,
)

from ..connector_pipeline_v2 import ConnectorPipelineV2


class EnvToModulePipeline(ConnectorPipelineV2):
    """Makes the batch for a module's forward pass from the episodes of a runner's environments."""

    columns_method: ClassVar[str | None] = "on_vector_step"
    length_keys: ClassVar[tuple[Any, Any] | None] = (
        ENV_TO_MODULE_SUM_EPISODES_LENGTH_IN,
        ENV_TO_MODULE_SUM_EPISODES_LENGTH_OUT,
    )
