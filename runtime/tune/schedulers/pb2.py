"""Population based bandits: population based training whose hyperparameters a Gaussian process chooses."""

from __future__ import annotations

import copy
import importlib.util
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from ._controller import Controller
from ._explore import Explore, customized
from ._objective import Observation
from .pbt import Member, PopulationBasedTraining

OBSERVATIONS = 150
"""How many of the latest observations the process is fitted to."""


class PB2(PopulationBasedTraining):
    """Population based bandits.

    As population based training, but a weak trial that copies a strong one gets the hyperparameters from which a
    time-varying Gaussian process expects most, after what the whole population gained in its intervals so far. The
    first ones are drawn uniformly.

    Source: Parker-Holder et al. 2020, "Provably Efficient Online Hyperparameter Optimization with Population-Based
    Bandits", https://arxiv.org/abs/2002.02518. Needs numpy.

    Args:
        hyperparam_bounds: `[low, high]` by hyperparameter, or a dict of these for nested ones. Those that a trial's
            config lacks are drawn from here. A hyperparameter that is an `int` in the config stays one.
        time_attr, metric, mode, perturbation_interval, quantile_fraction, log_config, require_attrs, synch,
            custom_explore_fn, seed: as of `PopulationBasedTraining`.

    Raises:
        ImportError: numpy is missing.
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        hyperparam_bounds: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        custom_explore_fn: Explore | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        if importlib.util.find_spec("numpy") is None:
            raise ImportError("PB2 needs numpy: pip install numpy.")
        bounds = dict(hyperparam_bounds or {})
        if not bounds:
            raise ValueError("hyperparam_bounds must have at least one hyperparameter.")
        self._bounds = dict(_flat(bounds))
        for path, bound in self._bounds.items():
            if not isinstance(bound, list | tuple) or len(bound) != 2 or bound[0] > bound[1]:
                raise ValueError(f"hyperparam_bounds[{'/'.join(path)!r}] must be [low, high], not {bound!r}.")
        super().__init__(
            time_attr,
            metric,
            mode,
            perturbation_interval,
            hyperparam_mutations=bounds,
            quantile_fraction=quantile_fraction,
            custom_explore_fn=custom_explore_fn,
            log_config=log_config,
            require_attrs=require_attrs,
            synch=synch,
            seed=seed,
        )
        # Time, score before, hyperparameters and gain per time of intervals.
        self._intervals: deque[tuple[list[float], float]] = deque(maxlen=OBSERVATIONS)
        # Where each trial's current interval started: time, score and hyperparameters.
        self._starts: dict[str, tuple[float, float, list[float]]] = {}
        # What was chosen since the population came to its latest time, and that time.
        self._pending: list[list[float]] = []
        self._latest = self._explored_at = 0.0

    def _fill(self, config: dict[str, Any]) -> dict[str, Any]:
        filled: dict[str, Any] = {}
        for path, (low, high) in self._bounds.items():
            if not _has(config, path):
                _put(config, path, self._random.uniform(low, high))
                filled[path[0]] = config[path[0]]
        return filled

    def _save_member(self, member: Member, observation: Observation, result: dict[str, Any]) -> None:
        super()._save_member(member, observation, result)
        point = self._scaled(member.trial.config)
        start = self._starts.get(member.trial.trial_id)
        if start is not None and start[2] == point and observation.time > start[0]:
            gain = (observation.score - start[1]) / (observation.time - start[0])
            if abs(gain) < float("inf"):
                self._intervals.append(([observation.time, start[1], *point], gain))
        self._latest = max(self._latest, observation.time)
        self._starts[member.trial.trial_id] = observation.time, observation.score, point

    def _scaled(self, config: Mapping[str, Any]) -> list[float]:
        """A config's hyperparameters, with their bounds at 0 and 1."""
        return [
            (_get(config, path) - low) / ((high - low) or 1) for path, (low, high) in self._bounds.items()
        ]

    def _new_config(self, member: Member, donor: Member) -> tuple[dict[str, Any], dict[str, Any]]:
        import numpy as np

        from . import _bandit

        if self._latest > self._explored_at:
            self._pending.clear()
            self._explored_at = self._latest
        known = np.array([row for row, _ in self._intervals], float).reshape(-1, 2 + len(self._bounds))
        gains = np.array([gain for _, gain in self._intervals], float)
        pending = np.array(self._pending, float).reshape(-1, len(self._bounds))
        chosen = _bandit.choose(known, gains, (donor.trained, donor.score), pending, self._random)
        self._pending.append([float(value) for value in chosen])
        config = copy.deepcopy(donor.trial.config)
        for value, (path, (low, high)) in zip(self._pending[-1], self._bounds.items(), strict=True):
            new = low + value * (high - low)
            _put(
                config, path, min(max(round(new), low), high) if isinstance(_get(config, path), int) else new
            )
        config = customized(config, self._custom_explore_fn)
        self._starts[member.trial.trial_id] = donor.trained, donor.score or 0.0, self._scaled(config)
        return config, {}

    def _exploit(self, controller: Controller, member: Member, donor: Member) -> bool:
        is_done = super()._exploit(controller, member, donor)
        if not is_done:
            self._starts.pop(
                member.trial.trial_id, None
            )  # a config was chosen, but the trial does not use it
        return is_done

    def _leave(self, trial: Any) -> None:
        super()._leave(trial)
        self._starts.pop(trial.trial_id, None)


def _flat(bounds: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The bounds by path."""
    for name, value in bounds.items():
        if isinstance(value, Mapping):
            yield from _flat(value, (*prefix, name))
        else:
            yield (*prefix, name), value


def _get(config: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    for name in path:
        config = config[name]
    return config


def _has(config: Any, path: tuple[str, ...]) -> bool:
    for name in path:
        if not isinstance(config, Mapping) or name not in config:
            return False
        config = config[name]
    return True


def _put(config: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        config = config.setdefault(name, {})
    config[path[-1]] = value
