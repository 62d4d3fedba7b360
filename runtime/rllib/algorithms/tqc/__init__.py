"""TQC: its settings and the algorithm; modules and learners are in `torch`."""

from __future__ import annotations

from runtime.rllib.algorithms.tqc.tqc import TQC, TQCConfig

__all__ = ["TQC", "TQCConfig"]
