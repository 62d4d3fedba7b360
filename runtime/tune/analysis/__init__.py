"""The results of an experiment, as `tune.run` returns them."""

from __future__ import annotations

from runtime.tune.analysis.experiment_analysis import ExperimentAnalysis

__all__ = ["ExperimentAnalysis"]
