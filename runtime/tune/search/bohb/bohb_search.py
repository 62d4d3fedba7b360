"""Search with BOHB's kernel density estimators, by the package hpbandster."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from runtime.tune.search.conversion import Nesting, Parameter, parameters_of, require
from runtime.tune.search.library import IndexedSearch, plain

logger = logging.getLogger(__name__)


class TuneBOHB(IndexedSearch):
    """Suggests what BOHB suggests; HyperBandForBOHB must be the scheduler.

    It learns from results with `hyperband_info`, which that scheduler adds to them when a rung is complete.

    Args:
        space: A ConfigSpace.ConfigurationSpace. None for the tuner's `param_space`.
        bohb_config: Arguments of hpbandster's BOHB.
        metric: The value to optimize.
        mode: "min" or "max".
        points_to_evaluate: Configurations to try first, with all parameters.
        seed: The seed of the initial configurations.
        max_concurrent: How many trials may run at once; 0 for no limit. A ConcurrencyLimiter changes it.

    Raises:
        ImportError: hpbandster or ConfigSpace is not installed.
    """

    def __init__(
        self,
        space: Any = None,
        bohb_config: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        seed: int | None = None,
        max_concurrent: int = 0,
    ) -> None:
        require("ConfigSpace", "TuneBOHB", "ConfigSpace")
        require("hpbandster.optimizers.config_generators.bohb", "TuneBOHB", "hpbandster")
        self._bohb_config = dict(bohb_config or {})
        self._seed = seed
        self._max_concurrent = max_concurrent
        self._parameters: dict[str, Parameter] = {}
        self._searched: dict[str, dict[str, Any]] = {}
        self.running: set[str] = set()
        self.paused: set[str] = set()
        self._warned = False
        super().__init__(space, metric, mode, points_to_evaluate)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self._max_concurrent = max_concurrent
        return True

    @staticmethod
    def convert_search_space(spec: Mapping[str, Any]) -> Any:
        """Returns the ConfigurationSpace for a search space. Choices are searched by the index of their values.

        Raises:
            ValueError: ConfigSpace has nothing that corresponds to a parameter; the message names it.
        """
        import ConfigSpace

        space = ConfigSpace.ConfigurationSpace()
        for parameter in parameters_of(spec, "TuneBOHB"):
            space.add(_hyperparameter(parameter))
        return space

    def _read_own_space(self, space: Any) -> None:
        self._own_space = space
        self._nesting = Nesting.of_names(space)

    def _start(self) -> None:
        from hpbandster.optimizers.config_generators.bohb import BOHB

        if self._seed is not None:
            self._own_space.seed(self._seed)
        self.bohber = BOHB(self._own_space, **self._bohb_config)

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """Returns the next configuration, or None while `max_concurrent` trials run.

        Raises:
            RuntimeError: There is no space, metric or mode.
        """
        self._check_started()
        if 0 < self._max_concurrent <= len(self.running):
            return None
        if self._points:
            searched = self._encoded(self._points.pop(0))
        else:
            searched = {name: plain(value) for name, value in self.bohber.get_config(None)[0].items()}
        self._begin(trial_id, searched)
        return self._nesting.nested({name: self._value(name, value) for name, value in searched.items()})

    def replay(self, trial_id: str, config: dict[str, Any]) -> None:
        """Repeats a suggestion of an experiment that is being restored.

        One random configuration is drawn for it, so that the initial ones that follow are the same as without the
        interruption, and none is suggested twice.
        """
        self._check_started()
        if self._points:
            self._points.pop(0)
        else:
            self._own_space.sample_configuration()
        self._begin(trial_id, self._encoded(config))

    def _begin(self, trial_id: str, searched: dict[str, Any]) -> None:
        self._searched[trial_id] = searched
        self.running.add(trial_id)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Tells BOHB the metric's value, if the result has the budget that it was reached with."""
        if trial_id not in self._searched:
            return
        if trial_id not in self.paused:
            self.running.add(trial_id)
        budget = result.get("hyperband_info", {}).get("budget")
        loss = self._loss(result)
        if "hyperband_info" not in result and not self._warned:
            self._warned = True
            logger.warning(
                "TuneBOHB learns nothing from results without `hyperband_info`: use HyperBandForBOHB"
            )
        if budget is not None and loss is not None:
            self.bohber.new_result(
                SimpleNamespace(
                    result={"loss": loss},
                    kwargs={"budget": budget, "config": dict(self._searched[trial_id])},
                    exception=None,
                )
            )

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        self._searched.pop(trial_id, None)
        self.paused.discard(trial_id)
        self.running.discard(trial_id)

    def on_pause(self, trial_id: str) -> None:
        """Called by HyperBandForBOHB: a paused trial does not count for `max_concurrent`."""
        self.paused.add(trial_id)
        self.running.discard(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        """Called by HyperBandForBOHB."""
        self.paused.discard(trial_id)
        self.running.add(trial_id)


def _hyperparameter(parameter: Parameter) -> Any:
    from ConfigSpace import hyperparameters

    name, low, high = parameter.name, parameter.low, parameter.high
    if parameter.kind == "choice":
        return hyperparameters.CategoricalHyperparameter(name, choices=list(range(len(parameter.categories))))
    if parameter.kind == "normal":
        raise ValueError(f"TuneBOHB needs bounds for parameter '{name}', which has a normal distribution")
    if low == high:
        raise ValueError(f"TuneBOHB needs more than one value of parameter '{name}', which is always {low}")
    if parameter.kind == "float":
        return hyperparameters.UniformFloatHyperparameter(name, lower=low, upper=high, log=parameter.log)
    return hyperparameters.UniformIntegerHyperparameter(
        name, lower=int(low), upper=int(high), log=parameter.log
    )
