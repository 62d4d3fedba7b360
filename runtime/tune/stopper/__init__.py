"""Stoppers, with Ray Tune's names: rules that end trials or the whole study by their results.

They know nothing of the rest of `runtime.tune`.
"""

from .experiment_plateau import ExperimentPlateauStopper
from .function_stopper import FunctionStopper
from .maximum_iteration import MaximumIterationStopper
from .noop import NoopStopper
from .stopper import CombinedStopper, DictionaryStopper, Stopper
from .timeout import TimeoutStopper
from .trial_plateau import TrialPlateauStopper

__all__ = [
    "CombinedStopper",
    "DictionaryStopper",
    "ExperimentPlateauStopper",
    "FunctionStopper",
    "MaximumIterationStopper",
    "NoopStopper",
    "Stopper",
    "TimeoutStopper",
    "TrialPlateauStopper",
]
