"""Default piece: from arrays to tensors."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from runtime.rllib.core.columns import Columns

from ..connector_v2 import Batch, ConnectorV2


class NumpyToTensor(ConnectorV2):
    """Makes a torch tensor of each array in the batch, at any depth; float64 becomes float32. "infos" stay as they are.

    Args:
        pin_memory: Whether to put the tensors into pinned memory, if there is a GPU.
        device: Where to put the tensors. None: the CPU.
    """

    is_default_piece: ClassVar[bool] = True

    def __init__(
        self,
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        pin_memory: bool = False,
        device: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self._pin_memory = pin_memory
        self._device = device

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
        if rl_module is None:
            return batch
        return {name: self._converted(name, data) for name, data in batch.items()}

    def _converted(self, name: Any, data: Any) -> Any:
        if name == Columns.INFOS:
            return data
        if isinstance(data, dict):
            return {key: self._converted(key, below) for key, below in data.items()}
        if isinstance(data, tuple):
            return tuple(self._converted(None, below) for below in data)
        if isinstance(data, list):
            return [self._converted(None, below) for below in data]
        return self._tensor(data)

    def _tensor(self, data: Any) -> Any:
        import torch  # here, so that pipelines can be made without it

        from runtime.rllib.utils.torch_utils import convert_to_torch_tensor

        if not isinstance(data, np.ndarray | np.generic | torch.Tensor):
            return data
        return convert_to_torch_tensor(data, self._device, self._pin_memory)
