"""Runs an experiment in the program that asks for it."""

from __future__ import annotations

import logging
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

import runtime
from runtime import cloudpickle
from runtime._controllers.cluster import ClusterEngine
from runtime._controllers.loop import Loop
from runtime._extension import workers
from runtime._system import settings
from runtime.train._run.storage import RunStorage
from runtime.tune._api.callback import Callback
from runtime.tune._api.config import ResumeConfig, RunConfig, TuneConfig
from runtime.tune._api.exceptions import TuneError
from runtime.tune._api.resources import PlacementGroupFactory, resources_to_factory
from runtime.tune._api.trainable import Equipped, Trainable
from runtime.tune._core import records
from runtime.tune._core.experiment import Experiment, Setting
from runtime.tune._core.names import Naming
from runtime.tune._core.study import Rules, Study
from runtime.tune._core.trial import Trial
from runtime.tune._run import journal, progress, simulation
from runtime.tune._run.keeper import ExperimentKeeper
from runtime.tune._run.place import Folder
from runtime.tune._run.runner import Runner, Setup
from runtime.tune._run.used_modules import used_modules
from runtime.tune.logger import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback, TBXLoggerCallback
from runtime.tune.logger.tensorboardx import is_installed
from runtime.tune.registry import publish_envs
from runtime.tune.schedulers import FIFOScheduler
from runtime.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Searcher
from runtime.tune.stopper import CombinedStopper, DictionaryStopper, FunctionStopper, NoopStopper, Stopper

log = logging.getLogger(__name__)
DEFINITION = "tuner.pkl"
STALL_S = 60.0
"""After so long without news the experiment says what it waits for."""
MOST_WAITING = 16
"""Trials that wait for runners; one, where a searcher learns from results."""
AHEAD = 64
"""Results that a trial may be ahead of the experiment, where nobody decides about single ones."""


@dataclass
class Definition:
    """An experiment as it is kept in its folder, for a restore.

    Attributes:
        stamp, date: of the names of trials.
    """

    param_space: dict[str, Any]
    tune: TuneConfig
    run: RunConfig
    stamp: str
    date: str


def define(param_space: Mapping[str, Any] | None, tune: TuneConfig, run: RunConfig) -> Definition:
    """A new experiment."""
    return Definition(
        dict(param_space or {}), tune, run, uuid.uuid4().hex[:5], datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    )


def storage_of(run: RunConfig) -> RunStorage:
    """The storage of an experiment's folder."""
    assert run.name is not None
    return RunStorage(run.storage_path or "~/ray_results", run.name, run.storage_filesystem)


def load(storage: RunStorage) -> Definition:
    """The definition of an experiment in its folder.

    Raises:
        TuneError: there is none, or it cannot be read.
    """
    data = storage.read(DEFINITION)
    if not data:
        raise TuneError(f"There is no experiment in {storage.folder}: it has no {DEFINITION}.")
    try:
        definition: Definition = cloudpickle.loads(data)
    except Exception as error:
        raise TuneError(f"{storage.folder}/{DEFINITION} cannot be read: {error}") from error
    return definition


def fit(trainable: Equipped, definition: Definition, resume: ResumeConfig | None = None) -> list[Trial]:
    """Runs an experiment to its end, or until Ctrl-C. Returns the trials.

    Args:
        trainable: the function or class.
        definition: of the experiment.
        resume: how an experiment that is in the folder goes on; None: it is a new one.

    Raises:
        TuneError: it cannot go on.
        BaseException: a trial's error, with `fail_fast="raise"`.
    """
    if not runtime.is_initialized():
        runtime.init()
    publish_envs()
    storage = storage_of(definition.run)
    storage.open()
    staging = storage.folder if storage.is_local else tempfile.mkdtemp(prefix="tune-")
    past = journal.read(storage, definition.stamp)
    seed = past[0][2] if past else None
    rules = _rules(trainable, definition, seed, storage.folder, staging)
    if resume is not None and past and past[0][1] != records.VERSION:
        raise TuneError(
            f"The journal in {storage.folder} is of version {past[0][1]}; this program reads version {records.VERSION}."
        )
    progress.check(definition.run.progress_reporter)
    if resume is None:
        storage.write(DEFINITION, cloudpickle.dumps(definition))
    study = Study(rules, _Nowhere())
    _search_begins(definition, study)
    folder = Folder(storage.path, storage.name, definition.run.storage_filesystem, DEFINITION)
    reports = progress.reports_of(definition.run, definition.tune, study)
    callbacks = _callbacks(definition)
    total = getattr(study.rules.searcher, "total", study.rules.num_samples)
    for callback in callbacks:
        callback.setup(
            stop=definition.run.stop, num_samples=definition.tune.num_samples, total_num_samples=total
        )
    keeper = ExperimentKeeper(storage, definition.stamp, folder, staging, callbacks, study.get_trials)
    study.replay(past[1:], keeper)
    if not past:
        study.begin(getattr(rules.searcher, "seed", None))
    if resume is not None:
        study.resume(resume)
    setting = _setting(trainable, definition, folder, rules)
    if reports is not None:
        callbacks.append(reports)  # after the replay, which is no progress
        setting = msgspec.structs.replace(setting, view=progress.reported(reports))
    experiment = Experiment(study, setting, keeper.flush)
    loop = Loop(experiment, ClusterEngine(), f"experiment {storage.name}", STALL_S)
    shown = progress.Progress(loop, definition.run, definition.tune.metric, storage.folder, reports)
    try:
        shown.start()
        loop.run()
    except KeyboardInterrupt:
        log.warning(
            "The experiment %s was interrupted. Its state is in %s: go on with Tuner.restore().",
            storage.name,
            storage.folder,
        )
    finally:
        for group in experiment.groups.values():
            _removed(group)
        shown.stop(study)
        for callback in keeper.callbacks:
            callback.on_experiment_end(trials=study.trials)
        keeper.close()
        if not storage.is_local:
            shutil.rmtree(staging, ignore_errors=True)
    return study.trials


def past_trials(definition: Definition) -> list[Trial]:
    """The trials of an experiment as its folder tells."""
    storage = storage_of(definition.run)
    staging = storage.folder
    past = journal.read(storage, definition.stamp)
    seed = past[0][2] if past else None
    study = Study(_rules(Equipped(_nothing), definition, seed, storage.folder, staging), _Nowhere())
    _search_begins(definition, study)
    study.replay(past[1:], _Nowhere())
    return study.trials


def _nothing(config: dict[str, Any]) -> None:
    """Stands for a trainable that is not run."""


class _Nowhere:
    """A keeper that keeps nothing."""

    def write(self, record: records.Record) -> None: ...

    def tell(self, what: str, trial: Trial, **info: Any) -> None: ...

    def delete(self, trial: Trial, saved: Any) -> None: ...

    def log_line(self, file_name: str, text: str) -> None: ...


def _rules(
    trainable: Equipped, definition: Definition, seed: int | None, folder: str, local_folder: str
) -> Rules:
    tune, run = definition.tune, definition.run
    assert run.failure_config is not None
    assert run.checkpoint_config is not None
    searcher = tune.search_alg if tune.search_alg is not None else BasicVariantGenerator(random_state=seed)
    if not isinstance(searcher, Searcher):
        raise TypeError(f"search_alg must be a Searcher, not {searcher!r}.")
    if tune.max_concurrent_trials and not isinstance(searcher, BasicVariantGenerator | ConcurrencyLimiter):
        searcher = ConcurrencyLimiter(searcher, tune.max_concurrent_trials)
    scheduler = tune.scheduler if tune.scheduler is not None else FIFOScheduler()
    stopper = _stopper_of(run.stop)
    is_basic = isinstance(searcher, BasicVariantGenerator)
    naming = Naming(
        folder,
        local_folder,
        definition.stamp,
        definition.date,
        trainable.__name__,
        definition.param_space,
        searcher.tag_of if is_basic else None,
        tune.trial_name_creator,
        tune.trial_dirname_creator,
    )
    checkpoints = run.checkpoint_config
    return Rules(
        searcher=searcher,
        scheduler=scheduler,
        stops=stopper,
        stops_all=stopper.stop_all,
        resources_of=_resources_of(trainable),
        naming=naming,
        max_failures=run.failure_config.max_failures,
        fail_fast=run.failure_config.fail_fast,
        num_to_keep=checkpoints.num_to_keep,
        score_attribute=checkpoints.checkpoint_score_attribute,
        score_order=checkpoints.checkpoint_score_order,
        metric=tune.metric if isinstance(tune.metric, str) else None,
        mode=tune.mode if isinstance(tune.mode, str) else "max",
        num_samples=None if is_basic or tune.num_samples == -1 else tune.num_samples,
        saves=isinstance(trainable.trainable, type) and _can_save(trainable.trainable),
        total_resources=runtime.cluster_resources,
    )


def _stopper_of(stop: Any) -> Stopper:
    """What RunConfig.stop means.

    Raises:
        ValueError: nothing.
    """
    if stop is None:
        return NoopStopper()
    if isinstance(stop, Stopper):
        return stop
    if isinstance(stop, Mapping):
        return DictionaryStopper(stop)
    if isinstance(stop, list | tuple):
        return CombinedStopper(*map(_stopper_of, stop))
    if callable(stop):
        return FunctionStopper(stop)
    raise ValueError(
        f"RunConfig.stop must be a dict, a function of trial id and result, or a Stopper, not {stop!r}."
    )


def _can_save(cls: type[Trainable]) -> bool:
    return cls.save_checkpoint is not Trainable.save_checkpoint


def _resources_of(trainable: Equipped) -> Callable[[dict[str, Any]], PlacementGroupFactory]:
    given, inner = trainable.resources, trainable.trainable
    if callable(given) and not isinstance(given, PlacementGroupFactory):
        return lambda config: resources_to_factory(given(config))
    if given is not None:
        fixed = resources_to_factory(given)
        return lambda _config: fixed
    if isinstance(inner, type) and issubclass(inner, Trainable):
        return lambda config: resources_to_factory(inner.default_resource_request(config))
    one = resources_to_factory(None)
    return lambda _config: one


def _search_begins(definition: Definition, study: Study) -> None:
    tune, searcher, space = definition.tune, study.rules.searcher, definition.param_space
    if isinstance(searcher, BasicVariantGenerator):
        searcher.configure(space, tune.num_samples)
    elif not searcher.set_search_properties(tune.metric, tune.mode, space) and _has_choices(space):
        raise ValueError(
            f"The param_space has values to choose, and {type(searcher).__name__} has a space of its own. Leave one of "
            "them out."
        )
    if not study.rules.scheduler.set_search_properties(tune.metric, tune.mode):
        raise ValueError(
            f"The scheduler {type(study.rules.scheduler).__name__} has a metric and a mode of its own, and the "
            "TuneConfig has them, too. Leave one of them out."
        )


def _has_choices(space: Mapping[str, Any]) -> bool:
    from runtime.tune._core.names import is_choice

    return any(
        is_choice(value) or (isinstance(value, Mapping) and _has_choices(value)) for value in space.values()
    )


def _setting(trainable: Equipped, definition: Definition, folder: Folder, rules: Rules) -> Setting:
    tune, run = definition.tune, definition.run
    checkpoints = run.checkpoint_config
    assert checkpoints is not None
    is_class = isinstance(trainable.trainable, type)
    if not is_class and (checkpoints.checkpoint_frequency or checkpoints.checkpoint_at_end):
        raise ValueError(
            "checkpoint_frequency and checkpoint_at_end are for classes. A function reports its checkpoints: "
            "tune.report(metrics, checkpoint=...)."
        )
    setup = Setup(
        trainable=trainable.trainable,
        parameters=trainable.parameters,
        folder=folder,
        checkpoint_frequency=checkpoints.checkpoint_frequency,
        checkpoint_at_end=bool(checkpoints.checkpoint_at_end),
        reuses=tune.reuse_actors,
        changes_folder=settings.TUNE_CHANGES_FOLDER.get(),
        log_to_file=run.log_files,
    )
    preloads = trainable.trainable.preloaded_modules if is_class else ()
    is_basic = isinstance(rules.searcher, BasicVariantGenerator)
    decides = run.stop is not None or not isinstance(rules.scheduler, FIFOScheduler) or not is_basic
    return Setting(
        runner=runtime.remote(Runner),
        args=(runtime.put(setup),),
        options_of=partial(_options, [*preloads, *used_modules(trainable.trainable)]),
        place=_Places(),
        remove=_removed,
        leaves=is_class,
        reuses=tune.reuse_actors,
        most_waiting=MOST_WAITING if is_basic else 1,
        most_running=tune.max_concurrent_trials or 0,
        budget_s=tune.budget_s,
        ahead=1 if decides else AHEAD,
        view=progress.view_of,
        cpus=_cpus,
    )


def _cpus() -> float:
    cpus: float = runtime.cluster_resources().get("CPU", 0.0)
    return cpus


def _options(modules: Sequence[str], factory: PlacementGroupFactory, group: Any) -> dict[str, Any]:
    resources = dict(factory.bundles[0])
    options: dict[str, Any] = {
        "num_cpus": resources.pop("CPU", 0),
        "num_gpus": resources.pop("GPU", 0),
        "max_restarts": 0,
        "max_concurrency": 3,
        "runtime_env": workers.preloaded("runtime.tune._run.runner", *modules),
        "_metadata": {workers.SPARE: True},
    }
    if "memory" in resources:
        options["memory"] = resources.pop("memory")
    if resources:
        options["resources"] = resources
    if group is not None:
        from runtime.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
        )
    return options


class _Places:
    """Makes the placement groups of trials, and warns, once for each size, if the cluster is too small for one."""

    def __init__(self) -> None:
        self._told: set[PlacementGroupFactory] = set()

    def __call__(self, factory: PlacementGroupFactory) -> Any:
        from runtime.util.placement_group import placement_group

        if factory not in self._told:
            self._told.add(factory)
            if text := too_large(factory, runtime.cluster_resources()):
                log.warning("%s", text)
        bundles = [bundle or {"CPU": 0.001} for bundle in factory.bundles]
        return placement_group(bundles, strategy=factory.strategy)  # the actor waits for it


def too_large(factory: PlacementGroupFactory, cluster: Mapping[str, float]) -> str:
    """What to say of a trial that needs more than all nodes together have; empty if it does not."""
    needs = factory.required_resources
    lacking = {name: amount for name, amount in needs.items() if amount > cluster.get(name, 0.0)}
    if not lacking:
        return ""
    needed = ", ".join(f"{amount:g} {name}" for name, amount in lacking.items())
    has = ", ".join(f"{cluster.get(name, 0.0):g}" for name in lacking)
    return (
        f"A trial needs {needed} and all nodes together have {has}: trials wait until the cluster is larger. Otherwise "
        "stop with Ctrl-C and lower what one needs: tune.with_resources(...), or num_env_runners and num_learners of "
        f"an algorithm. Its bundles: {factory.bundles}."
    )


def _removed(group: Any) -> None:
    from runtime.util.placement_group import remove_placement_group

    remove_placement_group(group)


def _callbacks(definition: Definition) -> list[Callback]:
    given = list(definition.run.callbacks or ())
    wrong = [each for each in given if not isinstance(each, Callback)]
    if wrong:
        raise ValueError(f"callbacks must be instances of tune.Callback, not {wrong[0]!r}.")
    defaults: list[type[LoggerCallback]] = [JsonLoggerCallback, CSVLoggerCallback]
    if is_installed():
        defaults.append(TBXLoggerCallback)
    return given + [cls() for cls in defaults if not any(isinstance(each, cls) for each in given)]


def virtual_study(definition: Definition) -> Study:
    """The study of an experiment that runs nowhere."""
    study = Study(_rules(Equipped(_nothing), definition, None, "simulated", "simulated"), _Nowhere())
    _search_begins(definition, study)
    return study


def simulated(
    definition: Definition, curve: simulation.Curve, workers: int, start_s: float
) -> tuple[list[Trial], simulation.VirtualCluster, float]:
    """The trials of an experiment that runs on a virtual clock, the cluster, and how long it took there."""
    study = virtual_study(definition)
    tune, rules = definition.tune, study.rules
    is_basic = isinstance(rules.searcher, BasicVariantGenerator)
    setting = Setting(
        runner=None,
        args=(),
        options_of=simulation.options_of,
        place=_unplaced,
        remove=_unplaced,
        reuses=tune.reuse_actors,
        most_waiting=MOST_WAITING if is_basic else 1,
        most_running=tune.max_concurrent_trials or 0,
        budget_s=tune.budget_s,
    )
    cluster = simulation.simulate(study, setting, _Nowhere(), curve, workers, start_s)
    return study.trials, cluster, cluster.now()


def _unplaced(_what: Any) -> None:
    """Virtual workers need no placement groups."""
