"""Ray Tune's older interface: `tune.run`, and experiments as objects."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from runtime.tune._api.config import (
    CheckpointConfig,
    FailureConfig,
    ResumeConfig,
    ResumeType,
    RunConfig,
    SyncConfig,
    TuneConfig,
)
from runtime.tune._api.exceptions import TuneError
from runtime.tune._api.trainable import Equipped, found_trainable, with_resources

if TYPE_CHECKING:
    from runtime.tune._core.trial import Trial
    from runtime.tune.analysis import ExperimentAnalysis

_REMOVED = {
    "keep_checkpoints_num": "checkpoint_config=CheckpointConfig(num_to_keep=...)",
    "checkpoint_score_attr": "checkpoint_config=CheckpointConfig(checkpoint_score_attribute=...)",
    "checkpoint_freq": "checkpoint_config=CheckpointConfig(checkpoint_frequency=...)",
    "checkpoint_at_end": "checkpoint_config=CheckpointConfig(checkpoint_at_end=...)",
    "chdir_to_trial_dir": "the environment variable RAY_CHDIR_TO_TRIAL_DIR",
    "local_dir": "storage_path=...",
}
_RESTORE = (
    "restore=... is not supported: pass the checkpoint's path in the configuration, and load it in the trainable. "
    "To go on with an experiment use resume=True or Tuner.restore()."
)
_EXPORT = "export_formats is not supported: save the model with a checkpoint."
_SUFFIXES = {
    "ERRORED": ("errored", ResumeType.RESUME),
    "RESTART_ERRORED": ("errored", ResumeType.RESTART),
    "RESTART_UNFINISHED": ("unfinished", ResumeType.RESTART),
    "SKIP_UNFINISHED": ("unfinished", ResumeType.SKIP),
}


class Experiment:
    """What one experiment of `run` or `run_experiments` runs.

    Args:
        name: Of the experiment and its folder. Default: from the trainable and the time.
        run: A function of the configuration, a class of `tune.Trainable`, or a registered name.
        stop: When a trial ends: {"metric": bound}, a function of trial id and result, a Stopper, or a list of Stoppers.
        time_budget_s: All trials are stopped after this time.
        config: The configuration, with domains where values are to be chosen.
        resources_per_trial: Such as {"cpu": 2, "gpu": 0.5}, or a PlacementGroupFactory.
        num_samples: How many trials, or how often the grid is tried.
        storage_path, storage_filesystem: Where the folder is. See `RunConfig`.
        sync_config: Has no effect.
        checkpoint_config: Which checkpoints are made and kept.
        trial_name_creator, trial_dirname_creator: Give the name of a trial and of its folder.
        log_to_file: Whether what trials print goes to files. See `RunConfig`.
        max_failures: How often a trial is tried again.
        export_formats, restore: Not supported.

    Raises:
        TypeError: The trainable cannot be run, the configuration is no dict, or an argument was removed from Ray.
        ValueError: A value cannot be meant, or is not supported.
    """

    def __init__(
        self,
        name: str | None,
        run: Any,
        *,
        stop: Any = None,
        time_budget_s: float | timedelta | None = None,
        config: dict[str, Any] | None = None,
        resources_per_trial: Any = None,
        num_samples: int = 1,
        storage_path: str | None = None,
        storage_filesystem: Any = None,
        sync_config: SyncConfig | Mapping[str, Any] | None = None,
        checkpoint_config: CheckpointConfig | Mapping[str, Any] | None = None,
        trial_name_creator: Callable[[Trial], str] | None = None,
        trial_dirname_creator: Callable[[Trial], str] | None = None,
        log_to_file: bool | str | tuple[str, str] = False,
        export_formats: Sequence[str] | None = None,
        max_failures: int = 0,
        restore: str | None = None,
        **removed: Any,
    ) -> None:
        _refuse("tune.Experiment", removed)
        if restore is not None:
            raise ValueError(_RESTORE)
        if export_formats:
            raise ValueError(_EXPORT)
        # Settings of an algorithm are as good as a dict.
        if config is not None and not hasattr(config, "keys"):
            raise TypeError(f"config must be a dict, not {type(config).__name__}.")
        self.trainable = _with(run, resources_per_trial)
        self.name = name or f"{self.trainable.__name__}_{datetime.now().strftime('%Y-%m-%d_%H-%M-%S')}"
        self.config = dict(config or {})
        self.tune = TuneConfig(
            num_samples=num_samples,
            time_budget_s=time_budget_s,
            trial_name_creator=trial_name_creator,
            trial_dirname_creator=trial_dirname_creator,
        )
        self.run = RunConfig(
            name=self.name,
            storage_path=storage_path,
            storage_filesystem=storage_filesystem,
            failure_config=FailureConfig(max_failures),
            checkpoint_config=(
                CheckpointConfig(**checkpoint_config)
                if isinstance(checkpoint_config, Mapping)
                else checkpoint_config
            ),
            sync_config=SyncConfig(**sync_config) if isinstance(sync_config, Mapping) else sync_config,
            stop=stop,
            log_to_file=log_to_file,
        )

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> Experiment:
        """The experiment of a dict with this class's arguments, "run" among them.

        Raises:
            ValueError: The dict has no "run".
        """
        if "run" not in spec:
            raise ValueError(f'The experiment {name!r} has no trainable: give its dict a "run".')
        return cls(name, **spec)

    @property
    def path(self) -> str:
        """The path of the experiment's folder, on its file system."""
        from runtime.tune._run import driver

        return driver.storage_of(self.run).folder

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}, {self.trainable.__name__})"


def run(
    run_or_experiment: Any,
    *,
    name: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    stop: Any = None,
    time_budget_s: float | timedelta | None = None,
    config: dict[str, Any] | None = None,
    resources_per_trial: Any = None,
    num_samples: int = 1,
    storage_path: str | None = None,
    storage_filesystem: Any = None,
    search_alg: Any = None,
    scheduler: Any = None,
    checkpoint_config: CheckpointConfig | None = None,
    verbose: int | Any | None = None,
    progress_reporter: Any = None,
    log_to_file: bool | str | tuple[str, str] = False,
    trial_name_creator: Callable[[Trial], str] | None = None,
    trial_dirname_creator: Callable[[Trial], str] | None = None,
    sync_config: SyncConfig | None = None,
    export_formats: Sequence[str] | None = None,
    max_failures: int = 0,
    fail_fast: bool | str = False,
    restore: str | None = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    callbacks: Sequence[Any] | None = None,
    max_concurrent_trials: int | None = None,
    **removed: Any,
) -> ExperimentAnalysis:
    """Runs an experiment to its end. `Tuner` does the same with configuration objects.

    Args:
        run_or_experiment: A function of the configuration, a class of `tune.Trainable`, a registered name, or an
            `Experiment`, which has its own name, configuration, resources, storage and stopping rules.
        metric, mode: What is optimized, and whether "min" or "max" is best.
        search_alg: Suggests configurations: a Searcher, or its name.
        scheduler: Stops, pauses and changes trials: a TrialScheduler, or its name.
        verbose, progress_reporter, callbacks: See `RunConfig`.
        fail_fast: Whether the first failed trial ends the experiment; "raise": with its error.
        resume: True or "AUTO" go on with the experiment of this name, where there is one. "AUTO+ERRORED",
            "AUTO+RESTART_ERRORED" and "AUTO+SKIP_UNFINISHED" say what becomes of its trials.
        resume_config: The same as an object.
        reuse_actors: Whether a process runs one trial after the other.
        raise_on_failed_trial: Whether a failed trial raises at the end.
        max_concurrent_trials: How many trials may run at a time.

    For the other arguments see `Experiment`.

    Raises:
        TuneError: A trial failed, or the experiment cannot go on.
        TypeError: The trainable cannot be run, or an argument was removed from Ray.
        ValueError: A value cannot be meant, or is not supported.
    """
    _refuse("tune.run", removed)
    own: dict[str, Any] = {
        "stop": stop,
        "time_budget_s": time_budget_s,
        "config": config,
        "resources_per_trial": resources_per_trial,
        "num_samples": num_samples,
        "storage_path": storage_path,
        "storage_filesystem": storage_filesystem,
        "sync_config": sync_config,
        "checkpoint_config": checkpoint_config,
        "trial_name_creator": trial_name_creator,
        "trial_dirname_creator": trial_dirname_creator,
        "log_to_file": log_to_file,
        "export_formats": export_formats,
        "max_failures": max_failures,
        "restore": restore,
    }
    if isinstance(run_or_experiment, Experiment):
        unset = {"num_samples": 1, "log_to_file": False, "max_failures": 0}
        twice = [key for key, value in {"name": name, **own}.items() if value != unset.get(key)]
        if twice:
            raise ValueError(f"An Experiment has its own {', '.join(twice)}: pass them to the Experiment.")
        experiment = run_or_experiment
    elif isinstance(run_or_experiment, list | tuple):
        raise TypeError("tune.run runs one experiment; use tune.run_experiments for several.")
    else:
        experiment = Experiment(name, run_or_experiment, **own)
    if isinstance(search_alg, str):
        from runtime.tune.search import create_searcher

        search_alg = create_searcher(search_alg)
    tune = replace(
        experiment.tune,
        metric=metric,
        mode=mode,
        search_alg=search_alg,
        scheduler=_scheduler(scheduler),
        max_concurrent_trials=max_concurrent_trials,
        reuse_actors=reuse_actors,
    )
    run_config = replace(
        experiment.run,
        verbose=verbose,
        progress_reporter=progress_reporter,
        callbacks=callbacks,
        failure_config=replace(experiment.run.failure_config or FailureConfig(), fail_fast=fail_fast),
    )
    going_on = _resume(resume, resume_config)
    if going_on is not None and name is None and experiment is not run_or_experiment:
        raise ValueError("resume needs the name of the experiment: tune.run(..., name=..., resume=True).")
    return _fit(experiment, tune, run_config, going_on, raise_on_failed_trial)


def run_experiments(
    experiments: Experiment | Mapping[str, Any] | Sequence[Experiment | Mapping[str, Any]],
    scheduler: Any = None,
    verbose: int | Any | None = None,
    progress_reporter: Any = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    concurrent: bool = True,
    callbacks: Sequence[Any] | None = None,
) -> list[Trial]:
    """Runs experiments one after the other, each with all of the cluster. Returns their trials.

    Args:
        experiments: One or several: `Experiment`, or {name: dict of its arguments, "run" among them}.
        scheduler: Each experiment has a copy of it.
        concurrent: Has no effect: trials of one experiment run in parallel, experiments do not.

    For the other arguments see `run`.

    Raises:
        TuneError: A trial failed, after its experiment has ended; later experiments do not run.
        ValueError: There are no experiments, or a value cannot be meant.
    """
    trials: list[Trial] = []
    for each in list(_experiments(experiments)):
        trials += run(
            each,
            scheduler=copy.deepcopy(scheduler),
            verbose=verbose,
            progress_reporter=copy.deepcopy(progress_reporter),
            resume=resume,
            resume_config=resume_config,
            reuse_actors=reuse_actors,
            raise_on_failed_trial=raise_on_failed_trial,
            callbacks=callbacks,
        ).trials
    return trials


def _experiments(given: Any) -> Iterable[Experiment]:
    several = list(given) if isinstance(given, list | tuple) else [given]
    if not several:
        raise ValueError("run_experiments needs an experiment.")
    for each in several:
        if isinstance(each, Experiment):
            yield each
        elif isinstance(each, Mapping):
            for name, spec in each.items():
                yield spec if isinstance(spec, Experiment) else Experiment.from_json(name, spec)
        else:
            raise TypeError(f"An experiment is a tune.Experiment or a dict of dicts by name, not {each!r}.")


def _fit(
    experiment: Experiment, tune: TuneConfig, run: RunConfig, resume: ResumeConfig | None, raises: bool
) -> ExperimentAnalysis:
    from runtime.tune._run import driver
    from runtime.tune.analysis import ExperimentAnalysis

    storage = driver.storage_of(run)
    if resume is not None and not storage.read(driver.DEFINITION):
        resume = None
    if resume is None:
        definition = driver.define(experiment.config, tune, run)
    else:
        found = driver.load(storage)
        own = {
            key: getattr(run, key)
            for key in ("verbose", "progress_reporter", "callbacks")
            if getattr(run, key) is not None
        }
        place = {key: getattr(run, key) for key in ("name", "storage_path", "storage_filesystem")}
        definition = replace(found, run=replace(found.run, **place, **own))
    trials = driver.fit(experiment.trainable, definition, resume)
    failed = [trial for trial in trials if trial.status == "ERROR"]
    if failed and raises:
        names = ", ".join(map(str, failed[:5])) + (", ..." if len(failed) > 5 else "")
        raise TuneError(
            f"{len(failed)} of {len(trials)} trials failed ({names}). Their errors are in error.txt below "
            f"{storage.folder}; raise_on_failed_trial=False returns the results in spite of them."
        ) from failed[0].error
    metric, mode = definition.tune.metric, definition.tune.mode
    return ExperimentAnalysis(
        storage.folder,
        storage_filesystem=None if storage.is_local else storage.storage_filesystem,
        trials=trials,
        default_metric=metric if isinstance(metric, str) else None,
        default_mode=mode if isinstance(mode, str) else None,
    )


def _resume(resume: bool | str | None, config: ResumeConfig | None) -> ResumeConfig | None:
    """How an experiment goes on. None: it begins anew.

    Raises:
        ValueError: The words cannot be meant.
    """
    if resume and config is not None:
        raise ValueError("resume and resume_config exclude each other.")
    if config is not None or not resume:
        return config
    first, *suffixes = (resume if isinstance(resume, str) else "AUTO").split("+")
    unknown = [each for each in suffixes if each not in _SUFFIXES]
    if first != "AUTO" or unknown:
        raise ValueError(
            f'resume must be True, False or "AUTO", with the suffixes +{", +".join(_SUFFIXES)}, not {resume!r}.'
        )
    return ResumeConfig(**dict(_SUFFIXES[each] for each in suffixes))


def _with(trainable: Any, resources: Any) -> Equipped:
    if resources is None:
        return found_trainable(trainable)
    equipped = found_trainable(trainable)
    if equipped.resources is not None:
        raise ValueError("resources_per_trial and tune.with_resources exclude each other.")
    found: Equipped = with_resources(equipped, resources)
    found.__name__ = equipped.__name__
    return found


def _scheduler(scheduler: Any) -> Any:
    if isinstance(scheduler, str):
        from runtime.tune.schedulers import create_scheduler

        return create_scheduler(scheduler)
    return scheduler


def _refuse(what: str, removed: Mapping[str, Any]) -> None:
    for name in removed:
        if name in _REMOVED:
            raise TypeError(f"{what}() has no argument {name} any more: use {_REMOVED[name]}.")
        raise TypeError(f"{what}() has no argument {name!r}.")
