"""Schedulers of trials, with Ray Tune's names: which trial runs next, pauses, stops early or changes its config.

They are pure: no clock, no threads, no I/O. They see a study through `_controller.Controller` only, and import
nothing else of `runtime.tune`. The cost of an event does not grow with the number of trials.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from .async_hyperband import ASHAScheduler, AsyncHyperBandScheduler
from .hb_bohb import HyperBandForBOHB
from .hyperband import HyperBandScheduler
from .median_stopping_rule import MedianStoppingRule
from .pbt import PopulationBasedTraining, PopulationBasedTrainingReplay
from .resource_changing_scheduler import ResourceChangingScheduler
from .trial_scheduler import FIFOScheduler, TrialScheduler

__all__ = [
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "FIFOScheduler",
    "HyperBandForBOHB",
    "HyperBandScheduler",
    "MedianStoppingRule",
    "PopulationBasedTraining",
    "PopulationBasedTrainingReplay",
    "ResourceChangingScheduler",
    "TrialScheduler",
    "create_scheduler",
]

_CLASSES: dict[str, str] = {
    "fifo": "trial_scheduler.FIFOScheduler",
    "async_hyperband": "async_hyperband.AsyncHyperBandScheduler",
    "asynchyperband": "async_hyperband.AsyncHyperBandScheduler",
    "median_stopping_rule": "median_stopping_rule.MedianStoppingRule",
    "medianstopping": "median_stopping_rule.MedianStoppingRule",
    "hyperband": "hyperband.HyperBandScheduler",
    "hb_bohb": "hb_bohb.HyperBandForBOHB",
    "pbt": "pbt.PopulationBasedTraining",
    "pbt_replay": "pbt.PopulationBasedTrainingReplay",
    "pb2": "pb2.PB2",
    "resource_changing": "resource_changing_scheduler.ResourceChangingScheduler",
}


def create_scheduler(scheduler: str, **kwargs: Any) -> TrialScheduler:
    """Makes a scheduler by name.

    Args:
        scheduler: a name such as "async_hyperband" or "pbt", in any case.
        kwargs: arguments of the scheduler's class. Those it does not have are ignored, so that one set of arguments
            can serve several schedulers.

    Raises:
        ValueError: there is no scheduler of this name.
    """
    path = _CLASSES.get(scheduler.lower())
    if path is None:
        raise ValueError(f"scheduler must be one of {sorted(_CLASSES)}, not {scheduler!r}.")
    module, name = path.split(".")
    found = getattr(importlib.import_module(f".{module}", __name__), name)
    known = inspect.signature(found).parameters
    created: TrialScheduler = found(**{key: value for key, value in kwargs.items() if key in known})
    return created
