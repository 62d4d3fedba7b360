"""Experiments whose trials fail and whose drivers die at any record, by seeds."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from runtime import tune
from runtime.tune import schedulers
from runtime.tune._core.study import Study
from runtime.tune._core.trial import TrialState
from runtime.tune._run.simulation import VirtualCluster
from runtime.tune.search import BasicVariantGenerator
from tests.sim.tune.world import Book, Killed, Unsafe, run, study_of

ITERATIONS = 9
SCHEDULERS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "asha": lambda: schedulers.ASHAScheduler(max_t=ITERATIONS, reduction_factor=2),
    "hyperband": lambda: schedulers.HyperBandScheduler(max_t=ITERATIONS),
    "median": lambda: schedulers.MedianStoppingRule(grace_period=2, min_samples_required=2),
    "pbt": lambda: schedulers.PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"x": tune.uniform(0, 1)},
    ),
    "pbt in step": lambda: schedulers.PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=3,
        hyperparam_mutations={"x": tune.uniform(0, 1)},
        synch=True,
    ),
}


def curve(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    if iteration > ITERATIONS:
        return None
    return {"loss": (config["x"] - 0.3) ** 2 + 1 / iteration, "time_this_iter_s": 1 + config["x"]}


def made(name: str, seed: int, samples: int, failures: int = 0, saves: bool = False) -> Study:
    return study_of(
        {"x": tune.uniform(0, 1)},
        failures=failures,
        saves=saves,
        metric="loss",
        mode="min",
        num_samples=samples,
        scheduler=SCHEDULERS[name](),
        search_alg=BasicVariantGenerator(random_state=seed),
    )


def ends(book: Book) -> list[int]:
    """The trials that ended, as the journal tells."""
    return [record[1] for record in book.journal() if record[0] == "ended"]


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("reuses", [False, True])
@pytest.mark.parametrize("is_class", [False, True])
def test_every_trial_ends_once(name: str, seed: int, reuses: bool, is_class: bool) -> None:
    rng = random.Random(seed)
    samples, book = rng.randrange(1, 24), Book()
    study = made(name, seed, samples, failures=-1, saves=is_class)
    study.replay((), book)
    cluster = Unsafe(curve, rng.randrange(1, 6), rng, share=0.1, saves_always=not is_class)
    trials = run(study, cluster, reuses=reuses, leaves=is_class)
    assert [trial.state for trial in trials] == [TrialState.TERMINATED] * samples
    assert sorted(ends(book)) == list(range(samples))
    if name == "none":
        assert all(trial.last_result["training_iteration"] == ITERATIONS for trial in trials)
    assert study.counts == {**dict.fromkeys(TrialState, 0), TrialState.TERMINATED: samples}


@pytest.mark.parametrize("seed", range(10))
def test_failures_are_counted_and_the_others_go_on(seed: int) -> None:
    rng = random.Random(seed)
    book, study = Book(), made("none", seed, 12, failures=1)
    study.replay((), book)
    cluster = Unsafe(curve, 3, rng, share=0.15)
    trials = run(study, cluster)
    assert sorted(ends(book)) == list(range(12))
    assert cluster.failures >= sum(trial.num_failures for trial in trials) > 0
    for trial in trials:
        assert (trial.state is TrialState.ERROR) == (trial.num_failures == 2)
        assert (trial.error is not None) == (trial.num_failures > 0)


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("seed", range(6))
def test_a_driver_that_dies_at_any_record_loses_nothing_and_repeats_no_trial_that_had_ended(
    name: str, seed: int
) -> None:
    rng = random.Random(seed)
    samples = rng.randrange(2, 14)
    past: list[Any] = []
    ended: list[int] = []
    for lives in [*(rng.randrange(60) for _ in range(rng.randrange(1, 6))), -1]:
        study, book = made(name, seed, samples), Book(lives)
        study.replay(past, book)
        before = {trial.number: trial.last_result for trial in study.trials if trial.is_finished()}
        assert sorted(before) == sorted(ended)
        with contextlib.suppress(Killed):
            run(study, VirtualCluster(curve, 3))
        past += book.journal()
        ended += ends(book)
        assert len(set(ended)) == len(ended)
        assert all(study.trials[number].last_result == result for number, result in before.items())
    trials = study.trials
    assert sorted(ended) == list(range(samples))
    assert [trial.config for trial in trials] == [
        trial.config for trial in configurations(name, seed, samples, past)
    ]
    if name in ("none", "asha", "hyperband", "median"):
        alone = made(name, seed, samples)
        alone.replay((), Book())
        undisturbed = run(alone, VirtualCluster(curve, 3))
        assert [trial.config for trial in trials] == [trial.config for trial in undisturbed]


def configurations(name: str, seed: int, samples: int, past: list[Any]) -> list[Any]:
    """The trials as the whole journal tells."""
    study = made(name, seed, samples)
    study.replay(past, Book())
    assert study.has_ended or all(trial.is_finished() for trial in study.trials)
    return study.trials


def test_what_a_trial_has_before_it_is_told_ahead_does_not_change_the_result() -> None:
    results = []
    for ahead in (1, 5, 64):
        study = made("none", 3, 5)
        study.replay((), Book())
        trials = run(study, VirtualCluster(curve, 2), ahead=ahead)
        results.append([trial.last_result["loss"] for trial in trials])
    assert results[0] == results[1] == results[2]


def test_the_work_for_a_trial_does_not_grow_with_their_number() -> None:
    """Counted in calls of functions: 16 times as many trials take 16 times as many."""
    import sys

    def calls(samples: int) -> int:
        study, count = made("asha", 1, samples), 0
        study.replay((), Book())

        def noted(_frame: Any, event: str, _argument: Any) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(noted)
        try:
            run(study, VirtualCluster(curve, 4))
        finally:
            sys.setprofile(None)
        return count

    few, many = calls(50), calls(800)
    assert many < 16 * 1.5 * few
