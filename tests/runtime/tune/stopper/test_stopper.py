"""Stoppers: when trials and studies end."""

from __future__ import annotations

import datetime
import math
import pickle
import random
import statistics
from typing import Any

import pytest

from runtime.tune.stopper import (
    CombinedStopper,
    DictionaryStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    NoopStopper,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
)


def calls(stopper: Stopper, values: list[float | None], trial_id: str = "t") -> list[bool]:
    return [stopper(trial_id, {"loss": value}) for value in values]


def test_the_interface_has_no_default() -> None:
    with pytest.raises(NotImplementedError):
        Stopper()("t", {})
    with pytest.raises(NotImplementedError):
        Stopper().stop_all()


def test_noop() -> None:
    assert not NoopStopper()("t", {})
    assert not NoopStopper().stop_all()


def test_maximum_iteration_counts_each_trial() -> None:
    stopper = MaximumIterationStopper(3)
    assert calls(stopper, [1, 1], "a") == [False, False]
    assert calls(stopper, [1, 1, 1, 1], "b") == [False, False, True, True]
    assert calls(stopper, [1], "a") == [True]
    assert not stopper.stop_all()


def test_function() -> None:
    stopper = FunctionStopper(lambda trial_id, result: trial_id == "a" and result["loss"] < 1)
    assert calls(stopper, [2, 0.5], "a") == [False, True]
    assert calls(stopper, [2, 0.5], "b") == [False, False]
    assert not stopper.stop_all()


def test_what_is_a_function() -> None:
    class Lookalike:
        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            return False

        def stop_all(self) -> bool:
            return False

    assert FunctionStopper.is_valid_function(lambda trial_id, result: False)
    assert not FunctionStopper.is_valid_function(NoopStopper())
    assert not FunctionStopper.is_valid_function({"loss": 1})
    with pytest.raises(ValueError, match=r"Lookalike has stop_all.*subclass"):
        FunctionStopper.is_valid_function(Lookalike())


def test_dictionary() -> None:
    stopper = DictionaryStopper({"training_iteration": 3, "nested/accuracy": 0.9})
    assert not stopper("t", {"training_iteration": 2, "nested/accuracy": 0.5})
    assert stopper("t", {"training_iteration": 3, "nested/accuracy": 0.5})
    assert stopper("t", {"training_iteration": 1, "nested/accuracy": 0.9})
    assert not stopper.stop_all()
    with pytest.raises(ValueError, match=r"'nested/accuracy'.*trial t.*\['other', 'training_iteration'\]"):
        stopper("t", {"training_iteration": 1, "other": 1})
    assert stopper("t", {"training_iteration": 1, "nested": {"accuracy": 0.9}})
    with pytest.raises(ValueError, match="'nested/accuracy'"):
        DictionaryStopper({"nested": {"accuracy": 0.9}})


def test_combined_stops_with_the_first() -> None:
    whole = ExperimentPlateauStopper("loss", top=2)
    stopper = CombinedStopper(MaximumIterationStopper(3), whole)
    assert calls(stopper, [1, 5, 9]) == [False, False, True]
    assert not stopper.stop_all()
    calls(whole, [1])
    assert stopper.stop_all()
    assert not CombinedStopper()("t", {})


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("timeout", [10, 10.0, datetime.timedelta(seconds=10)])
def test_timeout_counts_from_the_first_check(timeout: Any) -> None:
    clock = Clock()
    stopper = TimeoutStopper(timeout, clock=clock)
    clock.now += 100
    assert not stopper.stop_all()
    clock.now += 9.9
    assert not stopper.stop_all()
    clock.now += 0.2
    assert stopper.stop_all()
    assert not stopper("t", {})


def test_a_restored_timeout_goes_on_with_the_time_left() -> None:
    clock = Clock()
    stopper = TimeoutStopper(10, clock=clock)
    stopper.stop_all()
    clock.now += 6
    stopper.stop_all()
    restored = pickle.loads(pickle.dumps(stopper))
    restored._clock = clock
    clock.now += 1000
    assert not restored.stop_all()
    clock.now += 3
    assert not restored.stop_all()
    clock.now += 1
    assert restored.stop_all()


def test_timeouts_are_numbers_or_timedeltas() -> None:
    with pytest.raises(ValueError, match=r"timeout must be .* not str"):
        TimeoutStopper("10")  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(5))
def test_experiment_plateau_against_all_results(seed: int) -> None:
    rng = random.Random(seed)
    mode, top, patience = rng.choice(["min", "max"]), rng.randint(2, 6), rng.randint(0, 4)
    stopper = ExperimentPlateauStopper("loss", 0.05, top, mode, patience)
    seen: list[float] = []
    alike = 0
    stops = 0
    for _ in range(300):
        seen.append(rng.random())
        best = sorted(seen, reverse=mode == "max")[:top]
        alike = alike + 1 if len(best) == top and statistics.pstdev(best) <= 0.05 else 0
        expected = alike >= max(patience, 1)
        assert stopper("t", {"loss": seen[-1]}) == expected
        assert stopper.stop_all() == expected
        stops += expected
    assert stops > 0


def test_experiment_plateau_needs_its_metric() -> None:
    with pytest.raises(ValueError, match=r"'loss'.*trial t.*\['other'\]"):
        ExperimentPlateauStopper("loss")("t", {"other": 1})


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({"mode": "best"}, "mode"), ({"top": 1}, "top"), ({"patience": -1}, "patience"), ({"std": 0}, "std")],
)
def test_experiment_plateau_out_of_range(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        ExperimentPlateauStopper("loss", **arguments)


def test_trial_plateau() -> None:
    stopper = TrialPlateauStopper("loss", std=0.01, num_results=3, grace_period=5)
    assert calls(stopper, [1.0] * 5, "a") == [False] * 4 + [True]
    assert calls(stopper, [1.0, 2.0, 3.0, 1.0, 1.0, 1.001], "b") == [False] * 5 + [True]
    assert not stopper.stop_all()


@pytest.mark.parametrize(("mode", "stops_at"), [("min", 0.4), ("max", 0.6)])
def test_a_plateau_on_the_wrong_side_of_the_threshold_goes_on(mode: str, stops_at: float) -> None:
    stopper = TrialPlateauStopper("loss", num_results=2, grace_period=2, metric_threshold=0.5, mode=mode)
    assert calls(stopper, [1.0 - stops_at] * 4, "a") == [False] * 4
    assert calls(stopper, [stops_at] * 3, "b") == [False, True, True]


def test_results_that_are_no_numbers_are_no_plateau() -> None:
    stopper = TrialPlateauStopper("loss", num_results=2, grace_period=0)
    assert calls(stopper, [None, None, math.nan, math.nan, math.inf, math.inf, 1.0, 1.0]) == [False] * 7 + [
        True
    ]


@pytest.mark.parametrize("threshold", [0.0, 0.5])
def test_a_threshold_needs_a_mode(threshold: float) -> None:
    with pytest.raises(ValueError, match="mode"):
        TrialPlateauStopper("loss", metric_threshold=threshold)
