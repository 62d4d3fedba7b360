"""Default piece: from tensors to arrays."""

from __future__ import annotations

from typing import Any, ClassVar

from runtime.rllib.utils.numpy import convert_to_numpy

from ..connector_v2 import Batch, ConnectorV2


class TensorToNumpy(ConnectorV2):
    """Makes an array of each tensor in the batch, at any depth."""

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
        result: Batch = convert_to_numpy(batch, reduce_type=False)
        return result
