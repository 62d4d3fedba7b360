"""Gives running trials the resources that are free."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from runtime.train._core.retention import lookup

from ._controller import Controller
from ._ranking import Ranking
from .trial_scheduler import FIFOScheduler, TrialScheduler

Bundles = list[dict[str, float]]
Allocation = Callable[[Controller, Any, dict[str, Any], "ResourceChangingScheduler"], Any]
NAMES = ("CPU", "GPU")
EPSILON = 1e-9


class DistributeResources:
    """Shares CPUs and GPUs equally among the live trials.

    Called by `ResourceChangingScheduler` for each result; returns the resources with which the trial goes on. A trial
    never gets less than it started with. It gives up resources when the trials together have more than there are.
    Subclasses override `added_units`.

    Args:
        add_bundles: True: what a trial gains are further bundles. False: its only bundle grows.
        increase_by: the unit that is added, such as `{"CPU": 2}`. By default, with `add_bundles` the trial's last
            bundle; otherwise one GPU if it uses GPUs, else one CPU.
        increase_by_times: a trial gains at most so many units; below 1: any number. Only with `increase_by`.
        reserve_resources: resources to leave unused.

    Raises:
        ValueError: `increase_by` has no CPU or GPU, or a negative amount.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
    ) -> None:
        self.add_bundles = add_bundles
        self.increase_by = dict(increase_by or {})
        self.increase_by_times = increase_by_times
        self.reserve_resources = dict(reserve_resources or {})
        amounts = [self.increase_by.get(name, 0) for name in NAMES]
        if self.increase_by and (not any(amounts) or min(amounts) < 0):
            raise ValueError(f"increase_by must add CPUs or GPUs, not {dict(self.increase_by)!r}.")

    def __call__(
        self, controller: Controller, trial: Any, result: dict[str, Any], scheduler: ResourceChangingScheduler
    ) -> Any | None:
        """The trial's new placement group factory, or None to leave it as it is.

        Raises:
            ValueError: the trials have several bundles and `add_bundles` is False.
        """
        base = scheduler.base_trial_resources
        if base is None or result.get("training_iteration", 1) < 1 or not any(base.bundles):
            return None
        bundles = filled_bundles(base)
        if not self.add_bundles and len(bundles) > 1:
            raise ValueError(
                f"Trials have {len(bundles)} bundles: add_bundles=False needs one, pass add_bundles=True."
            )
        unit = self._unit(bundles)
        limit = self.increase_by_times if self.increase_by and self.increase_by_times >= 1 else math.inf
        has_units = self._units_of(trial, bundles, unit)
        units = self.added_units(controller, trial, result, scheduler, unit, has_units, limit)
        if units == has_units:
            return None
        return rebuilt(base, self._with_units(bundles, unit, units))

    def _unit(self, bundles: Bundles) -> dict[str, float]:
        if self.increase_by:
            return self.increase_by
        if self.add_bundles:
            return bundles[-1]
        return {"GPU": 1.0} if bundles[0].get("GPU") else {"CPU": 1.0}

    def _units_of(self, trial: Any, base: Bundles, unit: dict[str, float]) -> int:
        """How many units a trial has gained so far."""
        bundles = filled_bundles(trial.placement_group_factory)
        if self.add_bundles:
            return len(bundles) - len(base)
        return fitting({name: bundles[0].get(name, 0) - base[0].get(name, 0) for name in NAMES}, unit)

    def _with_units(self, bundles: Bundles, unit: dict[str, float], units: int) -> Bundles:
        if self.add_bundles:
            return bundles + [dict(unit) for _ in range(units)]
        for name in NAMES:
            if unit.get(name):
                bundles[0][name] = bundles[0].get(name, 0) + unit[name] * units
        return bundles

    def free(self, controller: Controller, scheduler: ResourceChangingScheduler) -> dict[str, float]:
        """CPUs and GPUs that no live trial has; negative if they have more than there are."""
        total, used = self._total(controller), scheduler.used_resources
        return {name: total[name] - used.get(name, 0) for name in NAMES}

    def _total(self, controller: Controller) -> dict[str, float]:
        total = controller.total_resources()
        return {name: total.get(name, 0) - self.reserve_resources.get(name, 0) for name in NAMES}

    def added_units(
        self,
        controller: Controller,
        trial: Any,
        result: dict[str, Any],
        scheduler: ResourceChangingScheduler,
        unit: dict[str, float],
        has_units: int,
        limit: float,
    ) -> int:
        """How many units the trial is to have on top of what it started with.

        Args:
            controller, trial, result, scheduler: as of the call.
            unit: resources of one unit.
            has_units: how many it has.
            limit: how many it may have.
        """
        gain = fitting(self.free(controller, scheduler), unit)
        if gain <= 0:
            return max(has_units + gain, 0)
        total, base = self._total(controller), scheduler.base_trial_resources.required_resources
        live = scheduler.live_trials
        units = fitting({name: total[name] - live * base.get(name, 0) for name in NAMES}, unit)
        share = math.ceil(max(units, 0) / live)
        return int(min(has_units + gain, share, limit))


class DistributeResourcesToTopJob(DistributeResources):
    """Gives all free resources to the best trial.

    Trials that were best before keep what they have, unless the trials together have more than there are.

    Args:
        add_bundles, increase_by, increase_by_times, reserve_resources: as of `DistributeResources`.
        metric: result key that says which is best. By default the scheduler's.
        mode: "min" or "max". By default the scheduler's.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(add_bundles, increase_by, increase_by_times, reserve_resources)
        if mode not in (None, "min", "max"):
            raise ValueError(f'mode must be "min" or "max", not {mode!r}.')
        self.metric = metric
        self.mode = mode
        self._ranking: Ranking[Any] = Ranking()

    def added_units(
        self,
        controller: Controller,
        trial: Any,
        result: dict[str, Any],
        scheduler: ResourceChangingScheduler,
        unit: dict[str, float],
        has_units: int,
        limit: float,
    ) -> int:
        """The free units go to the best trial that may still gain; the reporting one gives back what is too much."""
        metric, mode = self.metric or scheduler.metric, self.mode or scheduler.mode
        if not metric or not mode:
            raise ValueError(
                "DistributeResourcesToTopJob needs a metric and a mode: pass them to it, to the base scheduler or to "
                "TuneConfig."
            )
        value = lookup(result, metric)
        if value is not None and not math.isnan(value):
            self._ranking.put(trial, value if mode == "max" else -value)
        gain = fitting(self.free(controller, scheduler), unit)
        base = filled_bundles(scheduler.base_trial_resources)
        if gain < 0:
            return max(has_units + gain, 0)
        best = self._best(base, unit, limit)
        return int(min(has_units + gain, limit)) if trial is best else has_units

    def _best(self, base: Bundles, unit: dict[str, float], limit: float) -> Any | None:
        place = len(self._ranking) - 1
        while place >= 0:
            trial = self._ranking[place]
            if trial.is_finished():
                self._ranking.discard(trial)
            elif self._units_of(trial, base, unit) < limit:
                return trial
            place -= 1
        return None


def fitting(resources: Mapping[str, float], unit: Mapping[str, float]) -> int:
    """How often a unit fits into resources; negative if they are negative."""
    return min(math.floor(resources.get(name, 0) / unit[name] + EPSILON) for name in NAMES if unit.get(name))


def filled_bundles(factory: Any) -> Bundles:
    """The bundles of a placement group factory that hold something: the first may be empty."""
    return [dict(bundle) for bundle in factory.bundles if bundle]


def rebuilt(base: Any, bundles: Bundles) -> Any:
    """A placement group factory like `base` with other bundles."""
    head: Bundles = [] if base.bundles[0] else [{}]
    return type(base)(head + bundles, base.strategy)


_DEFAULT = DistributeResources()


class ResourceChangingScheduler(TrialScheduler):
    """Changes the resources of trials while they run; all other decisions are another scheduler's.

    A trial whose resources change continues from its checkpoint, so it must save and load checkpoints.

    Args:
        base_scheduler: decides which trials run, pause and stop; FIFO by default.
        resources_allocation_function: called as `f(controller, trial, result, scheduler)` for each result after which
            a trial goes on. Returns its new placement group factory, or None for no change. It must not ask for
            more than the cluster has: the trial would never run. None: resources never change.
    """

    def __init__(
        self,
        base_scheduler: TrialScheduler | None = None,
        resources_allocation_function: Allocation | None = _DEFAULT,
    ) -> None:
        super().__init__()
        if resources_allocation_function is None:
            warnings.warn(
                "resources_allocation_function is None: the resources of trials will never change.",
                stacklevel=2,
            )
        self._base_scheduler = base_scheduler or FIFOScheduler()
        self._resources_allocation_function = resources_allocation_function
        self._base_trial_resources: Any | None = None
        self._resources_of: dict[str, dict[str, float]] = {}
        self._used: dict[str, float] = {}
        self._changed_ids: set[str] = set()
        self._mode: str | None = None

    @property
    def metric(self) -> str | None:
        """The base scheduler's metric, or that of `TuneConfig`."""
        return self._base_scheduler.metric or self._metric

    @property
    def mode(self) -> str | None:
        """The base scheduler's mode, or that of `TuneConfig`."""
        return getattr(self._base_scheduler, "_mode", None) or self._mode

    @property
    def base_trial_resources(self) -> Any:
        """What trials start with; None before the first one."""
        return self._base_trial_resources

    @property
    def live_trials(self) -> int:
        """How many trials have not ended."""
        return len(self._resources_of)

    @property
    def used_resources(self) -> Mapping[str, float]:
        """What the live trials have together, by name."""
        return self._used

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Passes metric and mode on to the base scheduler."""
        self._metric, self._mode = metric, mode
        return self._base_scheduler.set_search_properties(metric, mode, **spec)

    def on_trial_add(self, controller: Controller, trial: Any) -> None:
        """Notes the trial's resources. Raises ValueError if they differ from those of the trials before it."""
        if self._base_trial_resources is None:
            self._base_trial_resources = trial.placement_group_factory
        elif (
            trial.trial_id not in self._changed_ids
            and trial.placement_group_factory != self._base_trial_resources
        ):
            raise ValueError(
                "All trials must start with the same resources under ResourceChangingScheduler: the first one has "
                f"{self._base_trial_resources}, trial {trial.trial_id} has {trial.placement_group_factory}."
            )
        self._note(trial.trial_id, trial.placement_group_factory.required_resources)
        self._base_scheduler.on_trial_add(controller, trial)

    def _note(self, trial_id: str, resources: Mapping[str, float] | None) -> None:
        """Enters a trial's resources into the sum; None: it has ended."""
        for name, amount in self._resources_of.pop(trial_id, {}).items():
            self._used[name] -= amount
        if resources is not None:
            self._resources_of[trial_id] = dict(resources)
            for name, amount in resources.items():
                self._used[name] = self._used.get(name, 0) + amount

    def on_trial_result(self, controller: Controller, trial: Any, result: dict[str, Any]) -> str:
        """The base scheduler's decision; NOOP if the trial goes on with other resources."""
        decision = self._base_scheduler.on_trial_result(controller, trial, result)
        if decision != TrialScheduler.CONTINUE or self._resources_allocation_function is None:
            if decision == TrialScheduler.STOP:
                self._note(trial.trial_id, None)
            return decision
        resources = self._resources_allocation_function(controller, trial, result, self)
        if resources is None or resources == trial.placement_group_factory:
            return decision
        self._changed_ids.add(trial.trial_id)
        self._note(trial.trial_id, resources.required_resources)
        controller.set_resources(trial, resources)
        return TrialScheduler.NOOP

    def on_trial_error(self, controller: Controller, trial: Any) -> None:
        """The trial's resources are free."""
        self._note(trial.trial_id, None)
        self._base_scheduler.on_trial_error(controller, trial)

    def on_trial_complete(self, controller: Controller, trial: Any, result: dict[str, Any]) -> None:
        """The trial's resources are free."""
        self._note(trial.trial_id, None)
        self._base_scheduler.on_trial_complete(controller, trial, result)

    def on_trial_remove(self, controller: Controller, trial: Any) -> None:
        """The trial's resources are free."""
        self._note(trial.trial_id, None)
        self._base_scheduler.on_trial_remove(controller, trial)

    def choose_trial_to_run(self, controller: Controller) -> Any | None:
        """The base scheduler's choice."""
        return self._base_scheduler.choose_trial_to_run(controller)

    def debug_string(self) -> str:
        """The base scheduler's state."""
        return f"(ResourceChangingScheduler) {self._base_scheduler.debug_string()}"
