"""Search with Gaussian processes, by the package bayesian-optimization."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from runtime.tune.search.conversion import Nesting, Parameter, parameters_of, require
from runtime.tune.search.library import LibrarySearch, plain, quantized

logger = logging.getLogger(__name__)

_ACQUISITIONS = {
    "ucb": ("UpperConfidenceBound", ("kappa",)),
    "ei": ("ExpectedImprovement", ("xi",)),
    "poi": ("ProbabilityOfImprovement", ("xi",)),
}


class BayesOptSearch(LibrarySearch):
    """Suggests what a Gaussian process of bayesian-optimization suggests, after some random configurations.

    The process learns the random configurations together, once all have completed; until then it suggests nothing
    else. Log-uniform parameters are searched by their logarithms.

    Args:
        space: Bounds by name: `{"width": (0, 20)}`. None for the tuner's `param_space`.
        metric: The value to optimize.
        mode: "min" or "max".
        points_to_evaluate: Configurations to try first, with all parameters. They count as random ones.
        utility_kwargs: The acquisition function: `kind` ("ucb", "ei" or "poi"), `kappa` and `xi`.
        random_state: The seed.
        random_search_steps: How many configurations are random at first.
        verbose: How much the library prints.
        patience: After how many repetitions of one configuration the search ends.
        skip_duplicate: Whether to suggest nothing, for once, instead of a configuration that was tried before.
        analysis: An ExperimentAnalysis whose results are learned first.
        repeat_float_precision: To how many decimals configurations are compared.

    Raises:
        ImportError: bayesian-optimization 2 or later is not installed.
        ValueError: An argument is not possible.
    """

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        utility_kwargs: Mapping[str, Any] | None = None,
        random_state: int = 42,
        random_search_steps: int = 10,
        verbose: int = 0,
        patience: int = 5,
        skip_duplicate: bool = True,
        analysis: Any = None,
        repeat_float_precision: int = 5,
    ) -> None:
        require("bayes_opt.acquisition", "BayesOptSearch", "bayesian-optimization>=2")
        if patience < 1:
            raise ValueError(f"`patience` must be at least 1, got {patience}")
        if repeat_float_precision < 0:
            raise ValueError(f"`repeat_float_precision` must not be negative, got {repeat_float_precision}")
        self._utility = {"kind": "ucb", "kappa": 2.576, "xi": 0.01, **(utility_kwargs or {})}
        if self._utility["kind"] not in _ACQUISITIONS:
            raise ValueError(
                f"`kind` of `utility_kwargs` must be 'ucb', 'ei' or 'poi', got {self._utility['kind']!r}"
            )
        self._random_state = random_state
        self.random_search_trials = random_search_steps
        self._verbose = verbose
        self._patience = patience
        self._skip_duplicate = skip_duplicate
        self._analysis = analysis
        self._precision = repeat_float_precision
        self._dimensions: dict[str, _Dimension] = {}
        self._seen: Counter[tuple[Any, ...]] = Counter()
        self._running: dict[str, dict[str, Any]] = {}
        self._random_asked = 0
        self._random_done: list[tuple[dict[str, Any], float | None]] = []
        super().__init__(space, metric, mode, points_to_evaluate)

    @staticmethod
    def convert_search_space(spec: Mapping[str, Any], join: bool = False) -> dict[str, Any]:
        """Returns the library's bounds for a search space, by name; with `join` beside the fixed values.

        Raises:
            ValueError: The library has nothing that corresponds to a parameter; the message names it.
        """
        bounds = {
            parameter.name: _Dimension(parameter).bounds
            for parameter in parameters_of(spec, "BayesOptSearch")
        }
        return {**spec, **bounds} if join else bounds

    def _read_param_space(self, param_space: Mapping[str, Any]) -> None:
        parameters = parameters_of(param_space, "BayesOptSearch")
        self._dimensions = {parameter.name: _Dimension(parameter) for parameter in parameters}
        self._nesting = Nesting([parameter.path for parameter in parameters], param_space)

    def _read_own_space(self, space: Mapping[str, Any]) -> None:
        self._nesting = Nesting.of_names(space)
        self._dimensions = {
            name: _Dimension(Parameter(name, tuple(name.split("/")), "float", *bounds))
            for name, bounds in space.items()
        }

    def _start(self) -> None:
        from bayes_opt import BayesianOptimization, acquisition

        class_name, arguments = _ACQUISITIONS[self._utility["kind"]]
        self.optimizer = BayesianOptimization(
            f=None,
            pbounds={name: dimension.bounds for name, dimension in self._dimensions.items()},
            acquisition_function=getattr(acquisition, class_name)(
                **{name: self._utility[name] for name in arguments}
            ),
            random_state=self._random_state,
            verbose=self._verbose,
            allow_duplicate_points=True,
        )
        if self._analysis is not None:
            self._is_started = True
            self.add_evaluated_trials(self._analysis, self.metric)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Returns the next configuration.

        None: the random configurations have to complete first, or the one suggested was tried before. FINISHED: one
        was suggested more often than `patience` allows.

        Raises:
            RuntimeError: There is no space, metric or mode.
        """
        self._check_started()
        if self._is_random and self._random_asked >= self.random_search_trials:
            return None
        values = (
            self._next_point()
            if self._points
            else {name: plain(value) for name, value in self.optimizer.suggest().items()}
        )
        key = self._key(values)
        self._seen[key] += 1
        if self._seen[key] > self._patience:
            logger.warning(
                "BayesOptSearch ends: it suggested one configuration %d times, so it seems to have converged. Set "
                "`skip_duplicate=False` or a greater `patience` to go on.",
                self._seen[key],
            )
            return self.FINISHED
        if self._seen[key] > 1 and self._skip_duplicate:
            return None
        return self._begin(trial_id, values)

    @property
    def _is_random(self) -> bool:
        return len(self._random_done) < self.random_search_trials

    def _key(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """What two configurations have in common if they count as the same."""
        return tuple(
            round(value, self._precision) if isinstance(value, float) else value for value in values.values()
        )

    def _next_point(self) -> dict[str, Any]:
        return self._encoded(self._points.pop(0))

    def _encoded(self, config: Mapping[str, Any]) -> dict[str, Any]:
        flat = self._nesting.flat(config)
        if missing := self._dimensions.keys() - flat.keys():
            raise ValueError(f"The configuration {dict(config)!r} has no value of parameter '{min(missing)}'")
        return {name: dimension.encoded(flat[name]) for name, dimension in self._dimensions.items()}

    def _begin(self, trial_id: str, values: dict[str, Any]) -> dict[str, Any]:
        if self._is_random:
            self._random_asked += 1
        self._running[trial_id] = values
        return self._nesting.nested(
            {name: self._dimensions[name].value(values[name]) for name in self._dimensions}
        )

    def replay(self, trial_id: str, config: dict[str, Any]) -> None:
        """Repeats a suggestion of an experiment that is being restored.

        Random configurations are drawn again, so that those that follow are the same. The process is not asked
        again, which would take long: what it suggests later may differ from an experiment that was not interrupted.
        """
        self._check_started()
        if self._points:
            self._points.pop(0)
        elif self._is_random:
            self.optimizer.suggest()
        values = self._encoded(config)
        self._seen[self._key(values)] += 1
        self._begin(trial_id, values)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tells the process the metric's value, or keeps it until all random configurations have one or failed."""
        values = self._running.pop(trial_id, None)
        if values is None:
            return
        loss = None if error else self._loss(result)
        if not self._is_random:
            self._register(values, loss)
            return
        self._random_done.append((values, loss))
        if not self._is_random:
            for done in self._random_done:
                self._register(*done)

    def _register(self, values: dict[str, Any], loss: float | None) -> None:
        if loss is not None:
            self.optimizer.register(params=values, target=-loss)

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Adds a result that was obtained elsewhere, unless it is one of a failure."""
        self._check_started()
        if not error:
            self._register(self._encoded(parameters), self._loss({self.metric: value}))


class _Dimension:
    """A parameter as the library searches it: logarithms for log-uniform ones, indices for choices."""

    def __init__(self, parameter: Parameter) -> None:
        if parameter.kind == "normal":
            raise ValueError(
                f"BayesOptSearch needs bounds for parameter '{parameter.name}', which has a normal distribution"
            )
        if parameter.kind == "choice" and len(parameter.categories) < 2:
            raise ValueError(
                f"BayesOptSearch needs at least two values of parameter '{parameter.name}' to choose from"
            )
        self._parameter = parameter

    @property
    def bounds(self) -> tuple[Any, ...]:
        parameter = self._parameter
        if parameter.kind == "choice":
            return tuple(map(str, range(len(parameter.categories))))
        if parameter.log:
            return math.log(parameter.low), math.log(parameter.high)
        if parameter.kind == "int":
            return int(parameter.low), int(parameter.high), int
        return float(parameter.low), float(parameter.high)

    def value(self, searched: Any) -> Any:
        parameter = self._parameter
        if parameter.kind == "choice":
            return parameter.categories[int(searched)]
        number = math.exp(searched) if parameter.log else searched
        number = min(
            max(quantized(number, parameter.low, parameter.high, parameter.step), parameter.low),
            parameter.high,
        )
        return round(number) if parameter.kind == "int" else float(number)

    def encoded(self, value: Any) -> Any:
        if self._parameter.kind == "choice":
            return str(self._parameter.categories.index(value))
        return math.log(value) if self._parameter.log else value
