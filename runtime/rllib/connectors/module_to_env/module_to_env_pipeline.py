"""The pipeline between module and environment."""

from __future__ import annotations

from typing import ClassVar

from ..connector_pipeline_v2 import ConnectorPipelineV2


class ModuleToEnvPipeline(ConnectorPipelineV2):
    """Makes actions for a runner's environments from what a module's forward pass gave."""

    columns_method: ClassVar[str | None] = "on_vector_actions"
