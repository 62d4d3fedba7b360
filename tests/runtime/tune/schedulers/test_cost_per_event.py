"""The cost of an event does not grow with the number of trials: executed byte codes are counted, not time."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import runtime.tune.schedulers as schedulers
from runtime.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    ResourceChangingScheduler,
    TrialScheduler,
)
from tests.runtime.tune.schedulers.study import SimulatedTrial, Study, configs

FOLDER = schedulers.__path__[0]
METHODS = "on_trial_add", "on_trial_result", "on_trial_complete", "on_trial_remove", "choose_trial_to_run"


class Counting:
    """Passes calls on to a scheduler, and counts the byte codes from a folder that are executed while `is_on`."""

    def __init__(self, scheduler: TrialScheduler, folder: str = FOLDER) -> None:
        self.scheduler = scheduler
        self.folder = folder
        self.is_on = False
        self.calls = 0
        self.codes = 0
        for name in METHODS:
            setattr(self, name, self._counted(getattr(scheduler, name)))

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if not self.is_on:
                return method(*arguments)
            self.calls += 1
            before = sys.gettrace()
            sys.settrace(self._trace)
            try:
                return method(*arguments)
            finally:
                sys.settrace(before)

        return call

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self.folder):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self.codes += event == "opcode"
        return self._trace


def cheap_curve(config: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    return {"score": (config["x"] * 7919 + state["step"] * 104729) % 10007, "rate": config.get("rate")}


MAKERS: dict[str, Callable[[], TrialScheduler]] = {
    "fifo": FIFOScheduler,
    "asha": lambda: ASHAScheduler(metric="score", mode="max", max_t=4, reduction_factor=2, brackets=2),
    "hyperband": lambda: HyperBandScheduler(metric="score", mode="max", max_t=9),
    "bohb": lambda: HyperBandForBOHB(metric="score", mode="max", max_t=9),
    "median": lambda: MedianStoppingRule(
        "training_iteration", "score", "max", grace_period=1, min_time_slice=99
    ),
    "median by seconds": lambda: MedianStoppingRule(
        "time_total_s", "score", "max", grace_period=1, min_time_slice=99
    ),
    "resources": lambda: ResourceChangingScheduler(ASHAScheduler(metric="score", mode="max", max_t=4)),
}


def counts_between(counting: Counting, first: int, last: int, study: Study) -> Callable[[Study], None]:
    def watch(_: Study) -> None:
        counting.is_on = first <= len(study.trials) < last

    return watch


@pytest.mark.parametrize("name", MAKERS)
def test_ten_thousand_trials(name: str) -> None:
    """Between the trials 9,900 and 10,000 an event costs what it cost between the trials 900 and 1,000."""
    costs = []
    for first, last in ((900, 1000), (9900, 10000)):
        counting = Counting(MAKERS[name]())
        study = Study(counting, configs(last), cheap_curve, workers=20, iterations=6, cpus=25)  # type: ignore[arg-type]
        study.run(counts_between(counting, first, last, study))
        assert counting.calls > 200
        costs.append(counting.codes / counting.calls)
        assert study.listings == 0
    assert costs[1] < 1.3 * costs[0] + 5, costs


def population_cost(population: int, synch: bool, sample: int) -> float:
    """Byte codes per call in a study of PBT whose trials all stay alive; one in `sample` events is counted."""
    scheduler = PopulationBasedTraining(
        "training_iteration",
        "score",
        "max",
        1,
        hyperparam_mutations={"rate": [1, 2, 3]},
        synch=synch,
        log_config=False,
        seed=1,
    )
    counting = Counting(scheduler)
    events = itertools.count()

    def watch(_: Study) -> None:
        counting.is_on = next(events) % sample == 0

    study = Study(counting, configs(population), cheap_curve, workers=20, iterations=3)  # type: ignore[arg-type]
    study.run(watch)
    assert study.listings == 0
    return counting.codes / counting.calls


def test_a_population_of_ten_thousand() -> None:
    small, large = population_cost(1000, False, 20), population_cost(10000, False, 200)
    assert large < 1.3 * small + 5


def test_synchronous_rounds_cost_the_same_for_each_member() -> None:
    """A round looks at all members once for each time that each of them has run: all events are counted."""
    small, large = population_cost(60, True, 1), population_cost(600, True, 1)
    assert large < 1.3 * small + 5


def test_the_count_would_notice_a_loop_over_all_trials() -> None:
    class Looping(FIFOScheduler):
        def __init__(self) -> None:
            self.trials: list[SimulatedTrial] = []

        def on_trial_add(self, controller: Any, trial: Any) -> None:
            self.trials.append(trial)

        def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
            return "CONTINUE" if any(known is trial for known in self.trials) else "STOP"

    costs = []
    for count in (30, 300):
        counting = Counting(Looping(), __file__)
        counting.is_on = True
        Study(counting, configs(count), cheap_curve, workers=20, iterations=2).run()  # type: ignore[arg-type]
        costs.append(counting.codes / counting.calls)
    assert costs[1] > 5 * costs[0]
