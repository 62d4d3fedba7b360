"""Default piece: from tensors to arrays."""

from __future__ import annotations

from typing import Any, ClassVar

from runtime.rllib._core import trees

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
        result: Batch = trees.tree_map(
            lambda leaf: leaf.detach().cpu().numpy() if hasattr(leaf, "detach") else leaf, batch
        )
        return result
