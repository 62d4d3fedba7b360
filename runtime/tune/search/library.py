"""What searchers of other libraries with one objective have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import cloudpickle

from runtime.tune.search.conversion import Nesting, Parameter, check_points, parameters_of, undefined
from runtime.tune.search.searcher import Searcher
from runtime.tune.space.compiled import Space

DEFAULT_METRIC = "_metric"  # the name of a value that a trainable returns without one


class LibrarySearch(Searcher):
    """Base of searchers that wrap a library's optimizer.

    Subclasses define `_read_param_space`, `_read_own_space` and `_start`, which creates the optimizer.

    Args:
        space: A space of the library's own, a search space of tune, or None for the tuner's `param_space`.
        metric: The value to optimize.
        mode: "min" or "max".
        points_to_evaluate: Configurations to try first.
    """

    def __init__(
        self,
        space: Any,
        metric: str | None,
        mode: str | None,
        points_to_evaluate: list[dict[str, Any]] | None,
    ) -> None:
        super().__init__(metric, mode)
        check_points(points_to_evaluate, None)
        self._points = list(points_to_evaluate or [])
        self._has_space = False
        self._is_started = False
        if isinstance(space, Mapping) and Space(space).is_open:
            self._take_param_space(space)
        elif space is not None and not (isinstance(space, (Mapping, list)) and not space):
            self._read_own_space(space)
            self._has_space = True
        self._start_if_ready()

    def set_search_properties(self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any) -> bool:
        """Takes the metric and mode, if they are not set yet, and the space, if the searcher has none."""
        if self._is_started:
            return False
        takes_space = not self._has_space
        if takes_space:
            self._take_param_space(config)
        Searcher.__init__(self, metric or self._metric, mode or self._mode)
        self._start_if_ready()
        return takes_space

    def _take_param_space(self, param_space: Mapping[str, Any]) -> None:
        self._has_space = Space(param_space).is_open
        if self._has_space:
            self._read_param_space(param_space)

    def _start_if_ready(self) -> None:
        if not self._has_space or not self._mode:
            return
        if not isinstance(self._mode, str):
            raise ValueError(
                f"{type(self).__name__} has one objective: `mode` must be a string, got {self._mode}"
            )
        self._metric = self._metric or DEFAULT_METRIC
        self._start()
        self._is_started = True

    def _check_started(self) -> None:
        """Raises RuntimeError if the space or the metric is missing."""
        if not self._is_started:
            raise undefined(type(self).__name__, self._metric, self._mode, self._has_space)

    def _loss(self, result: Mapping[str, Any] | None) -> float | None:
        """Returns the metric of a result as a value to minimize, None without one or if it is not finite."""
        value = (result or {}).get(self.metric)
        if value is None or not math.isfinite(value):
            return None
        return float(value) if self.mode == "min" else -float(value)

    def _read_param_space(self, param_space: Mapping[str, Any]) -> None:
        """Converts a search space of tune."""
        raise NotImplementedError

    def _read_own_space(self, space: Any) -> None:
        """Takes a space of the library's own."""
        raise NotImplementedError

    def _start(self) -> None:
        """Creates the optimizer."""
        raise NotImplementedError

    def save(self, checkpoint_path: str) -> None:
        """Writes everything, the optimizer included, to a file."""
        with open(checkpoint_path, "wb") as file:
            cloudpickle.dump(self.__dict__, file)

    def restore(self, checkpoint_path: str) -> None:
        """Reads what `save` wrote."""
        with open(checkpoint_path, "rb") as file:
            self.__dict__.update(cloudpickle.load(file))


class IndexedSearch(LibrarySearch):
    """Base of searchers whose libraries search choices by the index of their values, and know no steps.

    Subclasses define `convert_search_space`, `_read_own_space` and `_start`.

    Attributes:
        _parameters: Those of a `param_space`, by name; of a space of the library's own there are none.
    """

    _parameters: dict[str, Parameter]
    _nesting: Nesting

    @staticmethod
    def convert_search_space(spec: Mapping[str, Any]) -> Any:
        """Returns the library's space for a search space of tune.

        Raises:
            ValueError: The library has nothing that corresponds to a parameter; the message names it.
        """
        raise NotImplementedError

    def _read_param_space(self, param_space: Mapping[str, Any]) -> None:
        self._own_space = self.convert_search_space(param_space)
        found = parameters_of(param_space, type(self).__name__)
        self._parameters = {parameter.name: parameter for parameter in found}
        self._nesting = Nesting([parameter.path for parameter in found], param_space)

    def _value(self, name: str, searched: Any) -> Any:
        """What a configuration has for a value of the library."""
        parameter = self._parameters.get(name)
        if parameter is None:
            return searched
        if parameter.kind == "choice":
            return parameter.categories[searched]
        value = quantized(searched, parameter.low, parameter.high, parameter.step)
        return int(value) if parameter.kind == "int" else float(value)

    def _encoded(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The library's values for a configuration, by name.

        Raises:
            ValueError: It has no value of a parameter.
        """
        flat = self._nesting.flat(config)
        for name, parameter in self._parameters.items():
            if name not in flat:
                raise ValueError(f"The configuration {dict(config)!r} has no value of parameter '{name}'")
            if parameter.kind == "choice":
                flat[name] = parameter.categories.index(flat[name])
        return flat


def quantized(value: float, low: float, high: float, step: float | None) -> float:
    """Rounds a value to the nearest multiple of `step` within the bounds, for libraries that cannot do so."""
    if step is None:
        return value
    rounded = round(value / step) * step
    if rounded < low:
        rounded += step
    return rounded - step if rounded > high else rounded


def plain(value: Any) -> Any:
    """Returns numpy's scalars as Python's own."""
    return (
        value.item()
        if hasattr(value, "item") and type(value).__module__.partition(".")[0] == "numpy"
        else value
    )
