"""The base of networks in torch."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..base import Model


class TorchModel(nn.Module, Model):
    """A network whose `forward` is `_forward`."""

    def __init__(self, config: Any) -> None:
        nn.Module.__init__(self)
        Model.__init__(self, config)

    def forward(self, inputs: Any, **kwargs: Any) -> Any:
        """The network's result."""
        return self._forward(inputs, **kwargs)

    def get_num_parameters(self) -> tuple[int, int]:
        parameters = list(self.parameters())
        trainable = sum(p.numel() for p in parameters if p.requires_grad)
        return trainable, sum(p.numel() for p in parameters) - trainable
