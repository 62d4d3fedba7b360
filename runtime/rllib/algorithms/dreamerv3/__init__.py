"""DreamerV3: learns a model of the world, and acts by what it learns in dreams.

Hafner et al., "Mastering diverse domains through world models", 2023, https://arxiv.org/abs/2301.04104.
"""

from __future__ import annotations

from .dreamerv3 import DreamerV3, DreamerV3Config

__all__ = ["DreamerV3", "DreamerV3Config"]
