"""Search spaces as Optuna's distributions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from runtime.tune.search.conversion import Nesting, Parameter, parameters_of
from runtime.tune.space.compiled import (
    Space,
    has_open_parameters,
    is_container,
    leaves,
    open_parameter,
    path_name,
    value_at,
)
from runtime.tune.space.domains import Categorical

if TYPE_CHECKING:
    import optuna

logger = logging.getLogger(__name__)

_STORABLE = (type(None), bool, int, float, str)  # what Optuna keeps as the value of a choice
_ROOT = "="  # the key under which a value of a choice becomes a space of its own


class OptunaSpace:
    """Distributions by name, and how to make configurations of what Optuna suggests.

    Choices of anything but numbers and strings are suggested as the index of the value. The parameters of such a
    value are only suggested if it is chosen; their names begin with `NAME[INDEX]`.

    Args:
        distributions: Optuna's distributions by name.
        nesting: How the names make a nested configuration.
        choices: The choices that are suggested as indices.
    """

    def __init__(
        self, distributions: dict[str, Any], nesting: Nesting, choices: dict[str, Choice] | None = None
    ) -> None:
        self.distributions = distributions
        self._nesting = nesting
        self._choices = choices or {}

    @classmethod
    def of_distributions(cls, distributions: Mapping[str, Any]) -> OptunaSpace:
        """A space that the user wrote with Optuna's distributions; dicts may be nested, or names have slashes."""
        flat = {path_name(path): distribution for path, distribution in leaves(distributions)}
        return cls(flat, Nesting.of_names(flat))

    @classmethod
    def of_param_space(cls, param_space: Mapping[Any, Any], prefix: str = "") -> OptunaSpace:
        """Converts a search space.

        Raises:
            ValueError: Optuna has nothing that corresponds to a parameter; the message names it.
        """
        parameters = parameters_of(param_space, "OptunaSearch", nested=True)
        choices = {
            parameter.name: Choice(prefix + parameter.name, parameter.categories)
            for parameter in parameters
            if not all(isinstance(value, _STORABLE) for value in parameter.categories)
        }
        distributions = {
            parameter.name: choices[parameter.name].distribution()
            if parameter.name in choices
            else _distribution(parameter)
            for parameter in parameters
        }
        return cls(distributions, Nesting((parameter.path for parameter in parameters), param_space), choices)

    def __bool__(self) -> bool:
        return bool(self.distributions)

    def ask(self, study: optuna.Study) -> tuple[optuna.Trial, dict[Any, Any]]:
        """Starts a trial of Optuna and returns it with the configuration that it suggests."""
        trial = study.ask(self.distributions)
        return trial, self.config(trial.params, trial)

    def config(self, values: dict[str, Any], trial: optuna.Trial) -> dict[Any, Any]:
        """Returns the nested configuration of suggested values; parameters of chosen values are suggested now."""
        for name, choice in self._choices.items():
            values[name] = choice.value(values[name], trial)
        return self._nesting.nested(values)

    def suggested_by(self, trial: optuna.Trial, prefix: str) -> dict[Any, Any]:
        """Suggests all parameters within a running trial and returns their configuration."""
        return self.config(
            {name: _suggest(trial, prefix + name, of) for name, of in self.distributions.items()}, trial
        )

    def flat(self, config: Mapping[Any, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns a configuration's values, as Optuna keeps them, and their distributions, by name.

        Raises:
            ValueError: A value is not among those of a choice.
        """
        values = self._nesting.flat(config)
        distributions = {name: self.distributions[name] for name in values}
        for name in values.keys() & self._choices.keys():
            values[name], inner, inner_distributions = self._choices[name].encoded(values[name])
            values.update(inner)
            distributions.update(inner_distributions)
        return values, distributions

    def check_names(self, point: Mapping[Any, Any]) -> None:
        """Raises ValueError if a point has what is no parameter of this space."""
        if unknown := self._nesting.unknown(point):
            raise ValueError(
                f"points_to_evaluate sets '{unknown[0]}', which is no parameter of the search space "
                f"({', '.join(sorted(self.distributions))}): {point!r}"
            )


class Choice:
    """A choice whose values Optuna cannot keep, or which have parameters.

    Args:
        name: Its name in Optuna's trials.
        values: What to choose from.
    """

    def __init__(self, name: str, values: tuple[Any, ...]) -> None:
        self._name = name
        self._values = values
        self._prefixes = [f"{name}[{index}]" for index in range(len(values))]
        self._spaces = [
            OptunaSpace.of_param_space({_ROOT: value}, prefix) if has_open_parameters(value) else None
            for value, prefix in zip(values, self._prefixes, strict=True)
        ]

    def distribution(self) -> Any:
        import optuna

        return optuna.distributions.CategoricalDistribution(tuple(range(len(self._values))))

    def value(self, index: int, trial: optuna.Trial) -> Any:
        """Returns the value of this index, with its parameters suggested."""
        space = self._spaces[index]
        if space is None:
            return self._values[index]
        suggested = space.suggested_by(trial, self._prefixes[index])[_ROOT]
        return _completed(self._values[index], suggested)

    def encoded(self, value: Any) -> tuple[int, dict[str, Any], dict[str, Any]]:
        """Returns the index of a value, and the values and distributions of the parameters within it.

        Raises:
            ValueError: It is none of the values.
        """
        fixed_first = sorted(range(len(self._values)), key=lambda index: self._spaces[index] is not None)
        for index in fixed_first:
            candidate = self._values[index]
            space, prefix = self._spaces[index], self._prefixes[index]
            if space is None:
                if candidate == value:
                    return index, {}, {}
            elif _matches(candidate, value):
                values, distributions = space.flat({_ROOT: value})
                return (
                    index,
                    {prefix + name: inner for name, inner in values.items()},
                    {prefix + name: inner for name, inner in distributions.items()},
                )
        raise ValueError(
            f"Parameter '{self._name}' cannot have the value {value!r}: it is one of {self._values}"
        )


def _completed(template: Any, suggested: Any) -> Any:
    """The fixed values of a value of a choice, with what was suggested for its parameters."""
    if not isinstance(template, dict) or not isinstance(suggested, dict):
        return suggested
    config = Space(template).fresh()
    for path, value in leaves(suggested):
        inner = value_at(config, path[:-1])
        inner[path[-1]] = value
    return config


def _matches(candidate: Any, value: Any) -> bool:
    """Whether a value can have come from a candidate that may have parameters."""
    domain = open_parameter(candidate)
    if domain is not None:
        if isinstance(domain, Categorical):
            return any(_matches(category, value) for category in domain.categories)
        return isinstance(value, (int, float)) and domain.is_valid(value)
    if isinstance(candidate, dict):
        return (
            isinstance(value, dict)
            and candidate.keys() == value.keys()
            and all(_matches(item, value[key]) for key, item in candidate.items())
        )
    if is_container(candidate):
        return (
            isinstance(value, type(candidate))
            and len(candidate) == len(value)
            and all(map(_matches, candidate, value))
        )
    return bool(candidate == value)


def _distribution(parameter: Parameter) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if parameter.kind == "choice":
        return CategoricalDistribution(parameter.categories)
    if parameter.kind == "normal":
        raise ValueError(
            f"Optuna has no normal distribution: give parameter '{parameter.name}' bounds, with uniform() for instance"
        )
    step = parameter.step
    if parameter.log and step is not None:
        logger.warning(
            "Optuna does not quantize log-uniform parameters: '%s' ignores q=%s", parameter.name, step
        )
        step = None
    if parameter.kind == "float":
        return FloatDistribution(parameter.low, parameter.high, log=parameter.log, step=step)
    return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log, step=int(step or 1))


def _suggest(trial: optuna.Trial, name: str, distribution: Any) -> Any:
    from optuna.distributions import FloatDistribution, IntDistribution

    if isinstance(distribution, FloatDistribution):
        return trial.suggest_float(
            name, distribution.low, distribution.high, step=distribution.step, log=distribution.log
        )
    if isinstance(distribution, IntDistribution):
        return trial.suggest_int(
            name, distribution.low, distribution.high, step=distribution.step, log=distribution.log
        )
    return trial.suggest_categorical(name, distribution.choices)
