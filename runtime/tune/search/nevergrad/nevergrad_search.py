"""Search with the gradient-free optimizers of Nevergrad."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from runtime.tune.search.conversion import Nesting, Parameter, parameters_of, require
from runtime.tune.search.library import LibrarySearch, plain, quantized


class NevergradSearch(LibrarySearch):
    """Suggests what an optimizer of Nevergrad suggests.

    Args:
        optimizer: A class of optimizers or a configured one, `ng.optimizers.OnePlusOne` if None; or an optimizer that
            has its space already.
        optimizer_kwargs: Arguments for the class, such as `budget`.
        space: A parameter of Nevergrad such as `ng.p.Dict`; for an optimizer with its space the list of names of its
            numbers, or None if it takes keyword arguments. None for the tuner's `param_space`.
        metric: The value to optimize.
        mode: "min" or "max".
        points_to_evaluate: Configurations to try first, with all parameters.

    Raises:
        ImportError: Nevergrad is not installed.
        ValueError: The arguments do not fit each other.
    """

    def __init__(
        self,
        optimizer: Any = None,
        optimizer_kwargs: Mapping[str, Any] | None = None,
        space: Any = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
    ) -> None:
        library = require("nevergrad", "NevergradSearch", "nevergrad")
        self._parameters: dict[str, Parameter] = {}
        self._nesting: Nesting | None = None
        self._names: list[str] | None = None
        self._candidates: dict[str, Any] = {}
        self._optimizer_kwargs = dict(optimizer_kwargs or {})
        self._made_optimizer: Any = None
        self._make_optimizer: Any = optimizer or library.optimizers.OnePlusOne
        if isinstance(optimizer, library.optimization.base.Optimizer):
            if self._optimizer_kwargs:
                raise ValueError("`optimizer_kwargs` are for a class of optimizers; this one is made already")
            if space is not None and not isinstance(space, list):
                raise ValueError(
                    "With an optimizer that is made already, `space` must be a list of names or None"
                )
            if space is not None and len(space) != optimizer.dimension:
                raise ValueError(
                    f"The optimizer has {optimizer.dimension} numbers, but `space` has {len(space)} names"
                )
            self._made_optimizer, self._names = optimizer, space
            space = optimizer.parametrization
        super().__init__(space, metric, mode, points_to_evaluate)

    @staticmethod
    def convert_search_space(spec: Mapping[str, Any]) -> Any:
        """Returns Nevergrad's `ng.p.Dict` for a search space.

        Raises:
            ValueError: Nevergrad has nothing that corresponds to a parameter; the message names it.
        """
        import nevergrad

        parameters = parameters_of(spec, "NevergradSearch")
        return nevergrad.p.Dict(**{parameter.name: _parametrization(parameter) for parameter in parameters})

    def _read_param_space(self, param_space: Mapping[str, Any]) -> None:
        self._space = self.convert_search_space(param_space)
        self._parameters = {
            parameter.name: parameter for parameter in parameters_of(param_space, "NevergradSearch")
        }
        self._nesting = Nesting([parameter.path for parameter in self._parameters.values()], param_space)

    def _read_own_space(self, space: Any) -> None:
        self._space = space

    def _start(self) -> None:
        self._nevergrad_opt = self._made_optimizer or self._make_optimizer(
            self._space, **self._optimizer_kwargs
        )

    def suggest(self, trial_id: str) -> dict[str, Any]:
        """Returns the next configuration.

        Raises:
            RuntimeError: There is no space, metric or mode.
        """
        self._check_started()
        if self._points:
            self._prescribe(self._points.pop(0))
        return self._ask(trial_id)

    def replay(self, trial_id: str, config: dict[str, Any]) -> None:
        """Repeats a suggestion of an experiment that is being restored: the optimizer is told what it is to ask for."""
        self._check_started()
        if self._points:
            self._points.pop(0)
        self._prescribe(config)
        self._ask(trial_id)

    def _prescribe(self, config: Mapping[str, Any]) -> None:
        """Makes the optimizer ask for this configuration next."""
        flat = self._nesting.flat(config) if self._nesting else dict(config)
        if missing := self._parameters.keys() - flat.keys():
            raise ValueError(f"The configuration {dict(config)!r} has no value of parameter '{min(missing)}'")
        if self._names is not None:
            self._nevergrad_opt.suggest([flat[name] for name in self._names])
        elif self._takes_keywords:
            self._nevergrad_opt.suggest(**flat)
        else:
            self._nevergrad_opt.suggest(flat)

    @property
    def _takes_keywords(self) -> bool:
        import nevergrad

        return isinstance(self._nevergrad_opt.parametrization, nevergrad.p.Instrumentation)

    def _ask(self, trial_id: str) -> dict[str, Any]:
        candidate = self._nevergrad_opt.ask()
        self._candidates[trial_id] = candidate
        if self._names is not None:
            found = dict(zip(self._names, candidate.args[0], strict=True))
        else:
            found = candidate.kwargs if self._takes_keywords else candidate.value
        values = {name: self._value(name, plain(value)) for name, value in found.items()}
        return (self._nesting or Nesting.of_names(values)).nested(values)

    def _value(self, name: str, value: Any) -> Any:
        parameter = self._parameters.get(name)
        if parameter is None or parameter.kind == "choice":
            return value
        value = quantized(value, parameter.low, parameter.high, parameter.step) if parameter.step else value
        return int(value) if parameter.kind == "int" else float(value)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tells the optimizer the metric's value; of a trial without one it learns nothing."""
        candidate = self._candidates.pop(trial_id, None)
        loss = None if error else self._loss(result)
        if candidate is not None and loss is not None:
            self._nevergrad_opt.tell(candidate, loss)


def _parametrization(parameter: Parameter) -> Any:
    from nevergrad import p

    if parameter.kind == "choice":
        return p.Choice(list(parameter.categories))
    if parameter.kind == "normal":
        return p.Scalar(init=parameter.low).set_mutation(sigma=parameter.high)
    if parameter.low == parameter.high:
        raise ValueError(
            f"NevergradSearch needs more than one value of parameter '{parameter.name}', not only {parameter.low}"
        )
    if parameter.log:
        number = p.Log(lower=parameter.low, upper=parameter.high, exponent=math.e)
    else:
        number = p.Scalar(lower=parameter.low, upper=parameter.high)
    return number.set_integer_casting() if parameter.kind == "int" else number
