"""Experiments: many trials of one function or class, with Ray Tune's API.

`Tuner.fit` runs an experiment in the process that calls it; the experiment is a pure state machine (`_core`), and what
carries it out is in `_run`. Names are imported on first use. This package uses the engine's public API,
`runtime._extension` and `runtime._controllers`.
"""

from __future__ import annotations

import importlib
from typing import Any

_PUBLIC = {
    "runtime.train._api.checkpoint": ("Checkpoint",),
    "runtime.tune._api.callback": ("Callback",),
    "runtime.tune._api.config": (
        "CheckpointConfig",
        "FailureConfig",
        "ResumeConfig",
        "RunConfig",
        "SyncConfig",
        "TuneConfig",
    ),
    "runtime.tune._api.exceptions": ("TuneError",),
    "runtime.tune._api.experiment": ("Experiment", "run", "run_experiments"),
    "runtime.tune._api.reporting": ("TuneContext", "get_checkpoint", "get_context", "report"),
    "runtime.tune._api.resources": ("PlacementGroupFactory",),
    "runtime.tune._api.result_grid": ("Result", "ResultGrid"),
    "runtime.tune._api.simulate": ("simulate",),
    "runtime.tune._api.trainable": (
        "Trainable",
        "TrainingResult",
        "register_trainable",
        "with_parameters",
        "with_resources",
    ),
    "runtime.tune._api.tuner": ("Tuner",),
    "runtime.tune.analysis": ("ExperimentAnalysis",),
    "runtime.tune.progress_reporter": ("CLIReporter", "JupyterNotebookReporter", "ProgressReporter"),
    "runtime.tune.registry": ("register_env",),
    "runtime.tune.search": ("create_searcher",),
    "runtime.tune.search.sample": (
        "choice",
        "lograndint",
        "loguniform",
        "qlograndint",
        "qloguniform",
        "qrandint",
        "qrandn",
        "quniform",
        "randint",
        "randn",
        "sample_from",
        "uniform",
    ),
    "runtime.tune.search.variant_generator": ("grid_search",),
    "runtime.tune.schedulers": ("create_scheduler",),
    "runtime.tune.stopper": ("Stopper",),
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}
_PACKAGES = (
    "analysis",
    "integration",
    "logger",
    "plot",
    "progress_reporter",
    "registry",
    "schedulers",
    "search",
    "stopper",
)

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"runtime.tune.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_PACKAGES})
