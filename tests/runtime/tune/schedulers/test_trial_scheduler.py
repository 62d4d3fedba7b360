"""The interface of schedulers, FIFO, and what all schedulers have in common."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from runtime.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    ResourceChangingScheduler,
    TrialScheduler,
    create_scheduler,
)
from tests.runtime.tune.schedulers.study import SimulatedTrial, Study, configs, random_curve


def comparing() -> list[TrialScheduler]:
    """One of each that compares trials by a metric, without one so far."""
    return [
        ASHAScheduler(),
        HyperBandScheduler(),
        MedianStoppingRule("training_iteration"),
        PopulationBasedTraining("training_iteration", hyperparam_mutations={"x": [1]}),
    ]


def test_fifo_keeps_the_order_and_lets_all_run() -> None:
    started: list[str] = []

    class Watching(FIFOScheduler):
        def choose_trial_to_run(self, controller: Any) -> Any:
            chosen = super().choose_trial_to_run(controller)
            if chosen is not None and chosen.trial_id not in started:
                started.append(chosen.trial_id)
            return chosen

    Study(Watching(), configs(20), random_curve(0), workers=3, iterations=5).run()
    assert started == [f"t{number}" for number in range(20)]


def test_paused_trials_run_after_pending_ones() -> None:
    class PausesOnce(FIFOScheduler):
        def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
            return TrialScheduler.PAUSE if result["training_iteration"] == 2 else TrialScheduler.CONTINUE

    study = Study(PausesOnce(), configs(4), random_curve(0), workers=1, iterations=3).run()
    assert [trial for trial, step, _ in study.decisions if step == 1] == ["t0", "t1", "t2", "t3"]


def test_only_who_looks_at_results_gets_them_singly() -> None:
    class Own(FIFOScheduler):
        def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
            return TrialScheduler.STOP

    assert FIFOScheduler().supports_buffered_results
    assert not Own().supports_buffered_results
    assert not any(scheduler.supports_buffered_results for scheduler in comparing())


@pytest.mark.parametrize("number", range(4))
def test_metric_and_mode_come_once(number: int) -> None:
    scheduler = comparing()[number]
    study = Study(scheduler, [], random_curve(0))
    with pytest.raises(ValueError, match="needs a metric and a mode"):
        scheduler.on_trial_add(study, SimulatedTrial("t", {}))
    assert scheduler.set_search_properties("loss", "min")
    assert scheduler.metric == "loss"
    assert not scheduler.set_search_properties("loss", None)
    assert not scheduler.set_search_properties(None, "max")
    scheduler.on_trial_add(study, SimulatedTrial("t", {}))
    only_mode = comparing()[number]
    assert only_mode.set_search_properties(None, "min")
    assert only_mode.metric == "_metric"
    with pytest.raises(ValueError, match="mode"):
        comparing()[number].set_search_properties("loss", "least")


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("missing", ["loss", "training_iteration"])
def test_a_key_that_a_trial_never_reports_is_an_error(number: int, missing: str) -> None:
    scheduler = comparing()[number]
    scheduler.set_search_properties("loss", "min")
    study, trial = Study(scheduler, [], random_curve(0)), SimulatedTrial("t42", {})
    scheduler.on_trial_add(study, trial)
    result = {"loss": 1.0, "training_iteration": 1, "other": 2}
    without = {key: value for key, value in result.items() if key != missing}
    with pytest.raises(ValueError, match=rf"'{missing}'.*t42.*'other'"):
        scheduler.on_trial_result(study, trial, dict(without))
    # A key that has been there may be left out now and then.
    assert scheduler.on_trial_result(study, trial, dict(result)) == "CONTINUE"
    assert scheduler.on_trial_result(study, trial, dict(without)) == "CONTINUE"
    scheduler.on_trial_complete(study, trial, without)


def test_a_metric_must_be_a_number() -> None:
    scheduler = ASHAScheduler(metric="loss", mode="min")
    trial = SimulatedTrial("t1", {})
    scheduler.on_trial_add(Study(scheduler, [], random_curve(0)), trial)
    with pytest.raises(TypeError, match="'loss' of trial t1 must be a number, not str"):
        scheduler.on_trial_result(None, trial, {"training_iteration": 1, "loss": "low"})  # type: ignore[arg-type]


def test_metrics_of_nested_results() -> None:
    scheduler = ASHAScheduler("progress/epoch", "eval/loss", "min")
    first, second = SimulatedTrial("a", {}), SimulatedTrial("b", {})
    study = Study(scheduler, [], random_curve(0))
    decisions = []
    for trial, loss in ((first, 1.0), (second, 2.0)):
        scheduler.on_trial_add(study, trial)
        decisions.append(
            scheduler.on_trial_result(study, trial, {"progress": {"epoch": 1}, "eval": {"loss": loss}})
        )
    assert decisions == ["CONTINUE", "STOP"]


def test_schedulers_by_name() -> None:
    assert type(create_scheduler("fifo")) is FIFOScheduler
    scheduler = create_scheduler("ASYNCHYPERBAND", max_t=7, hyperparam_mutations={})
    assert isinstance(scheduler, ASHAScheduler)
    assert scheduler._max_t == 7
    assert type(create_scheduler("pb2", hyperparam_bounds={"a": [0, 1]})).__name__ == "PB2"
    assert isinstance(create_scheduler("resource_changing"), ResourceChangingScheduler)
    with pytest.raises(ValueError, match="hyperband"):
        create_scheduler("magic")


def test_importing_is_light() -> None:
    heavy = "numpy", "pandas", "torch", "sklearn", "scipy"
    names = "runtime.tune.schedulers, runtime.tune.schedulers.pb2, runtime.tune.stopper"
    program = f"import sys, {names}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
