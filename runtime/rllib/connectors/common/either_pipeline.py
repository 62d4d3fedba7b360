"""Pieces that are in the pipelines of runners and, in another way, in those of learners."""

from __future__ import annotations

from typing import Any

from ..connector_v2 import ConnectorV2


class EitherPipelineConnector(ConnectorV2):
    """A piece between environment and module, or before a learner's update.

    Args:
        as_learner_connector: Whether the piece is in a learner pipeline.
    """

    def __init__(
        self,
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        as_learner_connector: bool = False,
        **kwargs: Any,
    ) -> None:
        self._as_learner_connector = as_learner_connector
        super().__init__(input_observation_space, input_action_space, **kwargs)
