"""The networks of BC's default module."""

from __future__ import annotations

from typing import Any

from runtime.rllib.algorithms.ppo.ppo_catalog import PPOCatalog
from runtime.rllib.core.models.catalog import Catalog

__all__ = ["BCCatalog"]


class BCCatalog(PPOCatalog):
    """An encoder and the policy head of `PPOCatalog`; there is no value function."""

    def build_encoder(self, framework: str) -> Any:
        """The encoder of the policy; it is recurrent with `use_lstm`."""
        return Catalog.build_encoder(self, framework)
