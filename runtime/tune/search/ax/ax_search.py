"""Search with Ax, which chooses among Bayesian methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.tune.search.conversion import Nesting, Parameter, parameters_of, require
from runtime.tune.search.library import IndexedSearch


class AxSearch(IndexedSearch):
    """Suggests what Ax suggests.

    Args:
        space: Parameters as a list of Ax's dicts. None for the tuner's `param_space`.
        metric: The value to optimize.
        mode: "min" or "max".
        points_to_evaluate: Configurations to try first, with all parameters.
        parameter_constraints: Such as `"x1 + x2 <= 5"`.
        outcome_constraints: Such as `"size <= 100"`, where `size` is a value of results.
        ax_client: An AxClient. If it has an experiment, that has the space, the metric and the mode.
        **ax_kwargs: Arguments for the AxClient, such as `random_seed`, if none is given.

    Raises:
        ImportError: Ax is not installed.
        ValueError: The client has an experiment, but there are arguments that define one.
    """

    def __init__(
        self,
        space: list[dict[str, Any]] | Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        parameter_constraints: list[str] | None = None,
        outcome_constraints: list[str] | None = None,
        ax_client: Any = None,
        **ax_kwargs: Any,
    ) -> None:
        require("ax.service.ax_client", "AxSearch", "ax-platform>=1.3,<1.4")
        self._client = ax_client
        self._ax_kwargs = ax_kwargs
        self._constraints = {
            "parameter_constraints": parameter_constraints,
            "outcome_constraints": outcome_constraints,
        }
        self._parameters: dict[str, Parameter] = {}
        self._indices: dict[str, int] = {}
        self._has_experiment = ax_client is not None and _has_experiment(ax_client)
        if self._has_experiment:
            if space or metric or mode or parameter_constraints or outcome_constraints:
                raise ValueError(
                    "The AxClient has an experiment, which says what to search: leave out space, metric, mode and "
                    "constraints"
                )
            objective = ax_client.experiment.optimization_config.objective
            metric, mode = ax_client.objective_name, "min" if objective.minimize else "max"
            space = [{"name": name} for name in ax_client.experiment.parameters]
        super().__init__(space, metric, mode, points_to_evaluate)

    @staticmethod
    def convert_search_space(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Returns Ax's dicts for a search space. Choices are searched by the index of their values.

        Raises:
            ValueError: Ax has nothing that corresponds to a parameter; the message names it.
        """
        return [_description(parameter) for parameter in parameters_of(spec, "AxSearch")]

    def _read_own_space(self, space: list[dict[str, Any]]) -> None:
        self._own_space = space
        self._nesting = Nesting.of_names(description["name"] for description in space)

    def _start(self) -> None:
        from ax.service.ax_client import AxClient, ObjectiveProperties

        if self._client is None:
            self._client = AxClient(**{"verbose_logging": False, **self._ax_kwargs})
        if not self._has_experiment:
            self._client.create_experiment(
                parameters=self._own_space,
                objectives={self.metric: ObjectiveProperties(minimize=self.mode == "min")},
                **self._constraints,
            )

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Returns the next configuration, None while Ax needs results first, or FINISHED.

        Raises:
            RuntimeError: There is no space, metric or mode.
        """
        self._check_started()
        from ax.exceptions.core import DataRequiredError, OptimizationComplete
        from ax.exceptions.generation_strategy import MaxParallelismReachedException

        try:
            if self._points:
                values, index = self._client.attach_trial(self._encoded(self._points.pop(0)))
            else:
                values, index = self._client.get_next_trial()
        except (MaxParallelismReachedException, DataRequiredError):
            return None
        except OptimizationComplete:
            return self.FINISHED
        self._indices[trial_id] = index
        return self._nesting.nested({name: self._value(name, value) for name, value in values.items()})

    def replay(self, trial_id: str, config: dict[str, Any]) -> None:
        """Repeats a suggestion of an experiment that is being restored.

        The initial quasi-random configurations are drawn again, or a seed would make Ax suggest them twice. After
        these Ax is given the configuration, since computing it again would take long.
        """
        self._check_started()
        if self._points:
            self._points.pop(0)
        elif "Sobol" in self._client.generation_strategy.current_node_name:
            values, index = self._client.get_next_trial()
            if self._nesting.flat(config) == {
                name: self._value(name, value) for name, value in values.items()
            }:
                self._indices[trial_id] = index
                return
            self._client.abandon_trial(index, reason="Ax suggested something else when it was asked again")
        _, self._indices[trial_id] = self._client.attach_trial(self._encoded(config))

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tells Ax the metric's value and those of outcome constraints; a trial that lacks one has failed."""
        index = self._indices.pop(trial_id, None)
        if index is None:
            return
        constraints = self._client.experiment.optimization_config.outcome_constraints
        names = [self.metric, *(name for constraint in constraints for name in constraint.metric_names)]
        values = {name: (result or {}).get(name) for name in names}
        if error or self._loss(result) is None or None in values.values():
            self._client.log_trial_failure(trial_index=index)
        else:
            self._client.complete_trial(trial_index=index, raw_data=values)

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Adds a result that was obtained elsewhere."""
        self._check_started()
        _, index = self._client.attach_trial(self._encoded(parameters))
        if error:
            self._client.log_trial_failure(trial_index=index)
        else:
            self._client.complete_trial(trial_index=index, raw_data={self.metric: value})


def _has_experiment(client: Any) -> bool:
    try:
        return client.experiment is not None
    except (AssertionError, ValueError):  # what AxClient raises without one, by version
        return False


def _description(parameter: Parameter) -> dict[str, Any]:
    name = parameter.name
    if parameter.kind == "normal":
        raise ValueError(f"AxSearch needs bounds for parameter '{name}', which has a normal distribution")
    if parameter.kind == "choice":
        indices = list(range(len(parameter.categories)))
        if len(indices) == 1:
            return {"name": name, "type": "fixed", "value": 0, "value_type": "int"}
        return {"name": name, "type": "choice", "values": indices, "value_type": "int", "is_ordered": False}
    value_type: type = float if parameter.kind == "float" else int
    if parameter.low == parameter.high:
        return {
            "name": name,
            "type": "fixed",
            "value": value_type(parameter.low),
            "value_type": value_type.__name__,
        }
    return {
        "name": name,
        "type": "range",
        "bounds": [value_type(parameter.low), value_type(parameter.high)],
        "value_type": value_type.__name__,
        "log_scale": parameter.log,
    }
