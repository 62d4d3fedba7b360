"""TQC: `TQCConfig`, `TQC` and, imported on first use, its modules and learners."""

from __future__ import annotations

from runtime.rllib.algorithms.tqc.tqc import TQC, TQCConfig

__all__ = ["TQC", "TQCConfig"]
