"""Resources that change while trials run."""

from __future__ import annotations

import random
from typing import Any

import pytest

from runtime.tune.schedulers import ASHAScheduler, FIFOScheduler, ResourceChangingScheduler
from runtime.tune.schedulers.resource_changing_scheduler import (
    DistributeResources,
    DistributeResourcesToTopJob,
)
from tests.runtime.tune.schedulers.study import Bundles, SimulatedTrial, Study, configs, random_curve


def live_cpus(study: Study) -> float:
    return sum(
        trial.placement_group_factory.required_resources.get("CPU", 0)
        for trial in study.trials
        if not trial.is_finished()
    )


@pytest.mark.parametrize("seed", range(6))
def test_all_cpus_are_shared_and_no_more(seed: int) -> None:
    rng = random.Random(seed)
    scheduler = ResourceChangingScheduler(None, DistributeResources(rng.random() < 0.5))
    workers = rng.randint(1, 5)
    shares: list[list[float]] = []

    def watch(study: Study) -> None:
        live = [trial for trial in study.trials if not trial.is_finished()]
        assert scheduler.live_trials == len(live)
        assert scheduler.used_resources["CPU"] == live_cpus(study)
        shares.append([trial.placement_group_factory.required_resources["CPU"] for trial in live])

    study = Study(
        scheduler,
        configs(workers),
        random_curve(seed),
        workers=workers,
        iterations=30,
        seed=seed,
        ahead=10,
        cpus=12,
    ).run(watch)
    assert max(map(sum, shares)) == 12
    full = [cpus for cpus in shares[workers * 8 : workers * 16] if len(cpus) == workers]
    assert full
    for cpus in full:
        assert max(cpus) <= 1 + -(-(12 - workers) // workers)
        assert min(cpus) >= 1
        assert sum(cpus) <= 12
    assert study.listings == 0


def test_a_trial_gives_back_what_new_trials_need() -> None:
    allocate = DistributeResources()
    scheduler = ResourceChangingScheduler(FIFOScheduler(), allocate)
    study = Study(scheduler, [], random_curve(0), cpus=4)
    first, second = SimulatedTrial("a", {}), SimulatedTrial("b", {})
    scheduler.on_trial_add(study, first)
    assert scheduler.on_trial_result(study, first, {"training_iteration": 1}) == "NOOP"
    assert first.placement_group_factory == Bundles([{"CPU": 4}])
    scheduler.on_trial_add(study, second)
    assert scheduler.on_trial_result(study, first, {"training_iteration": 2}) == "NOOP"
    assert first.placement_group_factory == Bundles([{"CPU": 3}])
    assert scheduler.on_trial_result(study, second, {"training_iteration": 1}) == "CONTINUE"
    assert scheduler.on_trial_result(study, first, {"training_iteration": 3}) == "CONTINUE"


def test_units_limits_and_reserves() -> None:
    cases: list[tuple[DistributeResources, Bundles, Bundles]] = [
        (DistributeResources(increase_by={"CPU": 3}), Bundles([{"CPU": 1}]), Bundles([{"CPU": 7}])),
        (
            DistributeResources(increase_by={"CPU": 1}, increase_by_times=2),
            Bundles([{"CPU": 1}]),
            Bundles([{"CPU": 3}]),
        ),
        (DistributeResources(reserve_resources={"CPU": 5}), Bundles([{"CPU": 1}]), Bundles([{"CPU": 3}])),
        (
            DistributeResources(add_bundles=True),
            Bundles([{"CPU": 1}, {"CPU": 2}]),
            Bundles([{"CPU": 1}, {"CPU": 2}, {"CPU": 2}, {"CPU": 2}], "PACK"),
        ),
        # A trial that needs nothing itself, but whose workers do.
        (DistributeResources(), Bundles([{}, {"CPU": 2}]), Bundles([{}, {"CPU": 8}])),
        (DistributeResources(), Bundles([{"GPU": 0.5}]), Bundles([{"GPU": 2.5}])),
        (DistributeResources(), Bundles([{}]), Bundles([{}])),
    ]
    for allocate, base, expected in cases:
        scheduler = ResourceChangingScheduler(None, allocate)
        study = Study(scheduler, [], random_curve(0), cpus=8)
        trial = SimulatedTrial("a", {}, placement_group_factory=base)
        scheduler.on_trial_add(study, trial)
        scheduler.on_trial_result(study, trial, {"training_iteration": 1})
        assert trial.placement_group_factory == expected


def test_free_resources_go_to_the_best_trial() -> None:
    scheduler = ResourceChangingScheduler(
        FIFOScheduler(), DistributeResourcesToTopJob(metric="loss", mode="min")
    )
    study = Study(scheduler, [], random_curve(0), cpus=6)
    trials = [SimulatedTrial(name, {}) for name in "abc"]
    for trial in trials:
        scheduler.on_trial_add(study, trial)
    decisions = [
        scheduler.on_trial_result(study, trial, {"training_iteration": 1, "loss": loss})
        for trial, loss in zip(trials, [2.0, 1.0, 3.0], strict=True)
    ]
    # The first one is the best when it reports, and gets all; it keeps that when a better one comes.
    assert decisions == ["NOOP", "CONTINUE", "CONTINUE"]
    assert trials[0].placement_group_factory == Bundles([{"CPU": 4}])
    trials[0].status = "TERMINATED"
    scheduler.on_trial_complete(study, trials[0], {})
    assert scheduler.on_trial_result(study, trials[2], {"training_iteration": 2, "loss": 3.0}) == "CONTINUE"
    assert scheduler.on_trial_result(study, trials[1], {"training_iteration": 2, "loss": 1.0}) == "NOOP"
    assert trials[1].placement_group_factory == Bundles([{"CPU": 5}])


def test_the_best_trial_up_to_its_limit_then_the_next() -> None:
    scheduler = ResourceChangingScheduler(
        ASHAScheduler(metric="score", mode="max"),
        DistributeResourcesToTopJob(increase_by={"CPU": 1}, increase_by_times=1),
    )
    study = Study(scheduler, [], random_curve(0), cpus=9)
    trials = [SimulatedTrial(name, {}) for name in "ab"]
    for trial in trials:
        scheduler.on_trial_add(study, trial)
    for trial, score in zip(trials, [2.0, 2.0], strict=True):
        assert scheduler.on_trial_result(study, trial, {"training_iteration": 1, "score": score}) == "NOOP"
        assert trial.placement_group_factory == Bundles([{"CPU": 2}])


def test_the_base_scheduler_decides() -> None:
    scheduler = ResourceChangingScheduler(ASHAScheduler(max_t=7), DistributeResources())
    assert scheduler.set_search_properties("score", "max")
    assert scheduler.metric == "score"
    assert not scheduler.supports_buffered_results
    study = Study(scheduler, configs(30), random_curve(1), workers=3, iterations=100).run()
    assert max(trial.last_result["training_iteration"] for trial in study.trials) == 7
    assert scheduler.live_trials == 0


def test_what_it_refuses() -> None:
    with pytest.raises(ValueError, match="increase_by"):
        DistributeResources(increase_by={"memory": 1})
    with pytest.raises(ValueError, match="mode"):
        DistributeResourcesToTopJob(mode="most")
    with pytest.warns(UserWarning, match="resources_allocation_function"):
        fixed = ResourceChangingScheduler(None, None)
    study = Study(fixed, [], random_curve(0))
    fixed.on_trial_add(study, SimulatedTrial("a", {}))
    assert fixed.on_trial_result(study, SimulatedTrial("a", {}), {}) == "CONTINUE"
    with pytest.raises(ValueError, match="same resources"):
        fixed.on_trial_add(study, SimulatedTrial("b", {}, placement_group_factory=Bundles([{"CPU": 2}])))

    def result(allocate: DistributeResources, base: Bundles) -> Any:
        scheduler = ResourceChangingScheduler(None, allocate)
        trial = SimulatedTrial("a", {}, placement_group_factory=base)
        scheduler.on_trial_add(study, trial)
        return scheduler.on_trial_result(study, trial, {"training_iteration": 1})

    with pytest.raises(ValueError, match="add_bundles"):
        result(DistributeResources(), Bundles([{"CPU": 1}, {"CPU": 1}]))
    with pytest.raises(ValueError, match="metric and a mode"):
        result(DistributeResourcesToTopJob(), Bundles([{"CPU": 1}]))
