"""BC's default module."""

from __future__ import annotations

from typing import Any

from runtime.rllib.algorithms.bc.bc_catalog import BCCatalog
from runtime.rllib.core.columns import Columns
from runtime.rllib.core.models.base import ENCODER_OUT
from runtime.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule

__all__ = ["DefaultBCTorchRLModule"]


class DefaultBCTorchRLModule(TorchRLModule):
    """An encoder and a policy head: all that behaviour cloning trains."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["catalog_class"] = kwargs.get("catalog_class") or BCCatalog
        super().__init__(*args, **kwargs)

    def setup(self) -> None:
        """Builds the networks of the catalog."""
        super().setup()
        self._encoder = self.catalog.build_encoder(framework=self.framework)
        self._pi_head = self.catalog.build_pi_head(framework=self.framework)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        encoded = self._encoder(batch)
        outputs = {Columns.ACTION_DIST_INPUTS: self._pi_head(encoded[ENCODER_OUT])}
        if Columns.STATE_OUT in encoded:
            outputs[Columns.STATE_OUT] = encoded[Columns.STATE_OUT]
        return outputs

    def get_initial_state(self) -> Any:
        """Of a recurrent encoder, else {}."""
        return self._encoder.get_initial_state() if hasattr(self._encoder, "get_initial_state") else {}
