"""Search with Optuna: TPE by default, or any of its samplers."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import cloudpickle

from runtime.tune.search.conversion import check_points, require, undefined
from runtime.tune.search.library import DEFAULT_METRIC
from runtime.tune.search.optuna.space import OptunaSpace
from runtime.tune.search.searcher import Searcher
from runtime.tune.space.compiled import Space

if TYPE_CHECKING:
    import optuna

logger = logging.getLogger(__name__)


class OptunaSearch(Searcher):
    """Suggests what Optuna suggests: with one seed and space it asks for the same values as Optuna alone.

    Args:
        space: Optuna's distributions by name (dicts may be nested), or a define-by-run function that takes an
            `optuna.Trial`, calls its `suggest_*` methods and returns a dict of further values or None. None to use
            the tuner's `param_space`, of which values of `choice` may have parameters themselves.
        metric: The value to optimize, or a list of them for multi-objective search.
        mode: "min" or "max", or a list with one per metric ("obs" for those that are only observed).
        points_to_evaluate: Configurations to try first. Parameters left out are suggested.
        sampler: A sampler of Optuna; TPESampler if None.
        study_name: The study's name in the storage.
        storage: A storage of Optuna; in memory if None.
        seed: The seed of the default sampler. With None a seed is drawn.
        evaluated_rewards: The metric's values of `points_to_evaluate`, which are then not tried.

    Attributes:
        seed: The seed in use, None with a sampler of the user's.

    Raises:
        ImportError: Optuna is not installed.
    """

    def __init__(
        self,
        space: Mapping[str, Any] | Callable[[optuna.Trial], Any] | None = None,
        metric: str | list[str] | None = None,
        mode: str | list[str] | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        sampler: optuna.samplers.BaseSampler | None = None,
        study_name: str | None = None,
        storage: optuna.storages.BaseStorage | None = None,
        seed: int | None = None,
        evaluated_rewards: list[Any] | None = None,
    ) -> None:
        library = require("optuna", "OptunaSearch", "optuna")
        super().__init__(metric, mode)
        if sampler is not None and not isinstance(sampler, library.samplers.BaseSampler):
            raise TypeError(f"`sampler` must be a sampler of Optuna, got {sampler!r}")
        if storage is not None and not isinstance(storage, library.storages.BaseStorage):
            raise TypeError(f"`storage` must be a storage of Optuna, got {storage!r}")
        if sampler is not None and seed is not None:
            logger.warning("OptunaSearch ignores `seed`, since it has a `sampler`: give that one the seed")
        check_points(points_to_evaluate, evaluated_rewards)
        self.seed = None
        if sampler is None:
            self.seed = random.SystemRandom().getrandbits(32) if seed is None else seed
            sampler = library.samplers.TPESampler(seed=self.seed)
        self._sampler = sampler
        self._study_name = study_name or "optuna"
        self._storage = storage
        self._points = list(points_to_evaluate or [])
        self._rewards = evaluated_rewards
        self._space: OptunaSpace | None = None
        self._define: Callable[[optuna.Trial], Any] | None = None
        self._ot_study: optuna.Study | None = None
        self._ot_trials: dict[str, optuna.Trial] = {}
        self._suggested: dict[str, dict[Any, Any]] = {}
        self._last_step: dict[str, int] = {}
        self._points_left = 0
        self._is_deterministic = True
        if callable(space):
            if evaluated_rewards:
                raise TypeError(
                    "`evaluated_rewards` need a space of distributions, not a define-by-run function"
                )
            self._define = space
        elif space:
            self._space = _read_space(space)
        self._start()

    @staticmethod
    def convert_search_space(spec: Mapping[str, Any]) -> dict[str, Any]:
        """Returns Optuna's distributions for a search space, by name.

        Raises:
            ValueError: Optuna has nothing that corresponds to a parameter; the message names it.
        """
        return OptunaSpace.of_param_space(spec).distributions

    def set_search_properties(
        self,
        metric: str | list[str] | None,
        mode: str | list[str] | None,
        config: dict[str, Any],
        **spec: Any,
    ) -> bool:
        """Takes the metric and mode, if they are not set yet, and the space, if the searcher has none."""
        if self._ot_study is not None:
            return False
        takes_space = self._space is None and self._define is None
        if takes_space:
            self._space = OptunaSpace.of_param_space(config)
        Searcher.__init__(self, metric or self._metric, mode or self._mode)
        self._start()
        return takes_space

    def _start(self) -> None:
        """Creates the study once space and mode are known."""
        if not (self._space or self._define) or not self._mode:
            return
        if self._metric is None:
            if isinstance(self._mode, list):
                raise ValueError("With a list of modes there must be a list of metrics")
            self._metric = DEFAULT_METRIC
        import optuna

        directions = ["minimize" if mode == "min" else "maximize" for _, mode in self._objectives()]
        self._ot_study = optuna.create_study(
            storage=self._storage,
            sampler=self._sampler,
            pruner=optuna.pruners.NopPruner(),
            study_name=self._study_name,
            directions=directions,
            load_if_exists=True,
        )
        if self._rewards:
            for point, reward in zip(self._points, self._rewards, strict=True):
                self.add_evaluated_point(point, reward)
            return
        for point in self._points:
            self._enqueue(point)
        self._points_left = len(self._points)

    def _objectives(self) -> list[tuple[str, str]]:
        if isinstance(self._mode, str):
            return [(self._metric, self._mode)]  # type: ignore[list-item]
        assert self._metric is not None
        assert self._mode is not None
        return [pair for pair in zip(self._metric, self._mode, strict=True) if pair[1] != "obs"]

    def _running_study(self) -> optuna.Study:
        if self._ot_study is None:
            raise undefined("OptunaSearch", self._metric, self._mode, self._space or self._define)
        return self._ot_study

    def _enqueue(self, point: dict[str, Any]) -> None:
        if self._space is None:
            self._running_study().enqueue_trial(point)
            return
        self._space.check_names(point)
        self._running_study().enqueue_trial(self._space.flat(point)[0])

    def suggest(self, trial_id: str) -> dict[str, Any]:
        """Returns the configuration that Optuna suggests; asked again for a running trial, the same one.

        Raises:
            RuntimeError: There is no space, metric or mode.
        """
        if trial_id not in self._ot_trials:
            study = self._running_study()
            self._points_left = max(0, self._points_left - 1)
            if self._space is not None:
                trial, config = self._space.ask(study)
            else:
                trial, config = self._run_definition(study)
            self._ot_trials[trial_id] = trial
            self._suggested[trial_id] = config
        return self._suggested[trial_id]

    def _run_definition(self, study: optuna.Study) -> tuple[optuna.Trial, dict[Any, Any]]:
        assert self._define is not None
        trial = study.ask()
        constants = self._define(trial)
        if constants is not None and not (
            isinstance(constants, dict) and all(isinstance(k, str) for k in constants)
        ):
            raise TypeError(
                f"The define-by-run function must return None or a dict with names as keys, got {constants!r}"
            )
        values = trial.params | (constants or {})
        if not any("/" in name for name in values):
            return trial, values
        config: dict[Any, Any] = {}
        for name, value in values.items():
            *outer, last = name.split("/")
            inner = config
            for key in outer:
                inner = inner.setdefault(key, {})
            inner[last] = value
        return trial, config

    def replay(self, trial_id: str, config: dict[str, Any]) -> None:
        """Repeats a suggestion of an experiment that is being restored.

        Optuna is asked as it was then, so that a seeded sampler ends in the same state. If it suggests something else,
        which samplers without a seed do, the trial that it started is marked as failed; this one and those that follow
        get their values without asking the sampler, whose random numbers then start anew.
        """
        study = self._running_study()
        if self._is_deterministic or self._points_left:
            suggested = self.suggest(trial_id)
            if _includes(config, suggested):
                return
            study.tell(self._ot_trials.pop(trial_id), state=_states().FAIL)
            del self._suggested[trial_id]
            self._is_deterministic = False
            # Otherwise the sampler would suggest its first random values once more after the restore.
            self._sampler.reseed_rng()
        values = self._space.flat(config)[0] if self._space is not None else _flat_names(config)
        study.enqueue_trial(values)
        self.suggest(trial_id)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Reports an intermediate value to Optuna, unless there are several objectives."""
        trial = self._ot_trials.get(trial_id)
        objectives = self._objectives()
        if trial is None or len(objectives) > 1:
            return
        value, step = result.get(objectives[0][0]), result.get("training_iteration")
        if value is not None and step is not None and step > self._last_step.get(trial_id, -1):
            self._last_step[trial_id] = (
                step  # a trial that starts over after a failure reports its steps again
            )
            trial.report(value, step)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tells Optuna the metric's value.

        Without one the trial counts as pruned, with its last intermediate value, or as failed if `error` is set. NaN
        counts as a failure.
        """
        trial = self._ot_trials.pop(trial_id, None)
        if trial is None:
            logger.warning("OptunaSearch ignores the completion of trial %s: it is not running", trial_id)
            return
        self._suggested.pop(trial_id, None)
        self._last_step.pop(trial_id, None)
        found = [(result or {}).get(metric) for metric, _ in self._objectives()]
        values = [float(value) for value in found if value is not None]
        states = _states()
        if len(values) < len(found):
            self._running_study().tell(trial, state=states.FAIL if error else states.PRUNED)
        elif any(math.isnan(value) for value in values):
            self._running_study().tell(trial, state=states.FAIL)
        else:
            self._running_study().tell(trial, values, state=states.COMPLETE)

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Adds a result that was obtained elsewhere.

        Args:
            parameters: The configuration; values that are no parameters are left out.
            value: The metric's value; a list for multi-objective search.
            error: Whether the evaluation failed.
            pruned: Whether it was stopped early.
            intermediate_values: The metric's values before the last.

        Raises:
            RuntimeError: There is no space, metric or mode.
            TypeError: The space is a define-by-run function.
            ValueError: A parameter is missing or has a value that it cannot have.
        """
        study = self._running_study()
        if self._space is None:
            raise TypeError(
                "Results from elsewhere need a space of distributions, not a define-by-run function"
            )
        import optuna

        values, distributions = self._space.flat(parameters)
        if missing := self._space.distributions.keys() - values.keys():
            raise ValueError(
                f"A result from elsewhere has no value of parameter '{min(missing)}': {parameters!r}"
            )
        states = _states()
        state = states.FAIL if error else states.PRUNED if pruned else states.COMPLETE
        objectives: Any = None if error else list(value) if isinstance(value, (list, tuple)) else [value]
        study.add_trial(
            optuna.trial.create_trial(
                state=state,
                values=objectives,
                params=values,
                distributions=distributions,
                intermediate_values=dict(enumerate(intermediate_values)) if intermediate_values else None,
            )
        )

    def save(self, checkpoint_path: str) -> None:
        """Writes everything, the study included, to a file."""
        with open(checkpoint_path, "wb") as file:
            cloudpickle.dump(self.__dict__, file)

    def restore(self, checkpoint_path: str) -> None:
        """Reads what `save` wrote."""
        with open(checkpoint_path, "rb") as file:
            self.__dict__.update(cloudpickle.load(file))


def _states() -> Any:
    from optuna.trial import TrialState

    return TrialState


def _read_space(space: Mapping[str, Any]) -> OptunaSpace:
    if not Space(space).is_open:
        return OptunaSpace.of_distributions(space)
    logger.warning("OptunaSearch converts its `space`; spaces of tune can as well be the tuner's param_space")
    return OptunaSpace.of_param_space(space)


def _flat_names(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat.update(_flat_names(value, f"{prefix}{key}/"))
        else:
            flat[prefix + key] = value
    return flat


def _includes(config: Mapping[Any, Any], part: Mapping[Any, Any]) -> bool:
    """Whether nested dicts hold everything that other ones hold."""
    return all(
        key in config
        and (
            _includes(config[key], value)
            if isinstance(value, dict) and isinstance(config[key], dict)
            else bool(config[key] == value)
        )
        for key, value in part.items()
    )
