"""Restoring a study repeats to a new scheduler what the journal has: trials, results and ends, but no choices."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from runtime.tune.schedulers import (
    ASHAScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    TrialScheduler,
)
from runtime.tune.schedulers.pb2 import PB2
from tests.runtime.tune.schedulers.study import RUNNING, SimulatedTrial, Study

Journal = list[tuple[Any, ...]]


class Journaling:
    """Passes calls on to a scheduler, and writes down those that a journal has."""

    def __init__(self, scheduler: TrialScheduler, journal: Journal) -> None:
        self.scheduler = scheduler
        self.journal = journal
        self.choose_trial_to_run = scheduler.choose_trial_to_run

    def on_trial_add(self, controller: Any, trial: SimulatedTrial) -> None:
        self.journal.append(("add", trial.trial_id, copy.deepcopy(trial.config)))
        self.scheduler.on_trial_add(controller, trial)

    def on_trial_result(self, controller: Any, trial: SimulatedTrial, result: dict[str, Any]) -> str:
        entry = ["result", trial.trial_id, copy.deepcopy(result), ""]
        self.journal.append(entry)  # type: ignore[arg-type]
        entry[3] = self.scheduler.on_trial_result(controller, trial, result)
        return entry[3]

    def on_trial_complete(self, controller: Any, trial: SimulatedTrial, result: dict[str, Any]) -> None:
        self.journal.append(("complete", trial.trial_id, copy.deepcopy(result)))
        self.scheduler.on_trial_complete(controller, trial, result)

    def on_trial_remove(self, controller: Any, trial: SimulatedTrial) -> None:
        self.scheduler.on_trial_remove(controller, trial)

    def on_trial_error(self, controller: Any, trial: SimulatedTrial) -> None:
        self.journal.append(("error", trial.trial_id))
        self.scheduler.on_trial_error(controller, trial)


class JournaledStudy(Study):
    """Writes down what the scheduler does to other trials."""

    journal: Journal

    def exploit(
        self, trial: SimulatedTrial, donor: SimulatedTrial, config: dict[str, Any], experiment_tag: str = ""
    ) -> bool:
        is_done = super().exploit(trial, donor, config, experiment_tag)
        self.journal.append(("change", trial.trial_id, donor.trial_id, copy.deepcopy(config), experiment_tag))
        return is_done

    def stop_trial(self, trial: SimulatedTrial) -> None:
        self.journal.append(("stop", trial.trial_id))
        super().stop_trial(trial)


class Repeater:
    """A controller that only notes what a scheduler wants: the journal says what comes of it."""

    search_alg = None

    def others_wait(self) -> bool:
        return False

    def __init__(self) -> None:
        self.wanted: Journal = []

    def next_pending(self) -> None:
        return None

    def next_paused(self) -> None:
        return None

    def is_ready(self, trial: SimulatedTrial) -> bool:
        return trial.status != RUNNING

    def exploit(
        self, trial: SimulatedTrial, donor: SimulatedTrial, config: dict[str, Any], tag: str = ""
    ) -> None:
        self.wanted.append(("change", trial.trial_id, donor.trial_id, copy.deepcopy(config), tag))

    def stop_trial(self, trial: SimulatedTrial) -> None:
        self.wanted.append(("stop", trial.trial_id))

    def log_line(self, file_name: str, text: str) -> None:
        pass

    def repeat(self, scheduler: TrialScheduler, journal: Journal) -> list[str]:
        """Returns the decisions on all results."""
        trials: dict[str, SimulatedTrial] = {}
        decisions: list[str] = []
        this: Any = self
        for kind, trial_id, *what in journal:
            if kind == "add":
                trials[trial_id] = SimulatedTrial(
                    trial_id, copy.deepcopy(what[0]), experiment_tag=trial_id[1:]
                )
                scheduler.on_trial_add(this, trials[trial_id])
            elif kind == "result":
                trials[trial_id].status = RUNNING
                decisions.append(scheduler.on_trial_result(this, trials[trial_id], copy.deepcopy(what[0])))
                trials[trial_id].status = {"STOP": "TERMINATED", "CONTINUE": RUNNING}.get(what[1], "PAUSED")
            elif kind == "complete":
                trials[trial_id].status = "TERMINATED"
                scheduler.on_trial_complete(this, trials[trial_id], what[0])
            elif kind == "error":
                trials[trial_id].status = "ERROR"
                scheduler.on_trial_error(this, trials[trial_id])
            elif kind == "change":
                trials[trial_id].config, trials[trial_id].experiment_tag = what[1], what[2]
            elif kind == "stop":
                trials[trial_id].status = "TERMINATED"
        return decisions


def curve(config: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    state["sum"] = state.get("sum", 0.0) + config["rate"] * (1 + state["step"] * 7 % 3)
    return {"score": state["sum"]}


def population(**arguments: Any) -> PopulationBasedTraining:
    return PopulationBasedTraining(
        "training_iteration", "score", "max", 3, hyperparam_mutations={"rate": [0.1, 0.5, 0.9]}, **arguments
    )


MAKERS: dict[str, Callable[[], TrialScheduler]] = {
    "asha": lambda: ASHAScheduler(metric="score", mode="max", max_t=30, brackets=3, seed=1),
    "hyperband": lambda: HyperBandScheduler(metric="score", mode="max", max_t=27),
    "bohb": lambda: HyperBandForBOHB(metric="score", mode="max", max_t=9),
    "median": lambda: MedianStoppingRule(
        "training_iteration", "score", "max", grace_period=2, min_time_slice=99
    ),
    "pbt": lambda: population(seed=1, quantile_fraction=0.4),
    "synchronous pbt": lambda: population(seed=1, synch=True),
    "pb2": lambda: PB2("training_iteration", "score", "max", 3, {"rate": [0.0, 1.0]}, seed=1),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("seed", range(3))
def test_a_new_scheduler_comes_to_the_same_decisions(name: str, seed: int) -> None:
    journal: Journal = []
    scheduler: Any = Journaling(MAKERS[name](), journal)
    trials = [{"rate": (number * 37 % 29) / 29} for number in range(8 if name == "pb2" else 26)]
    study = JournaledStudy(scheduler, trials, curve, workers=4, iterations=31, seed=seed, failures=0.004)
    study.journal = journal
    study.run()
    repeater = Repeater()
    decisions = repeater.repeat(MAKERS[name](), journal)
    done = [entry for entry in journal if entry[0] in ("change", "stop")]
    live = [entry[3] for entry in journal if entry[0] == "result"]
    if name in ("median", "pbt", "pb2"):
        # These pause trials to make room for others; which of them waited is not in the journal.
        live, decisions = (["PAUSE" if it == "CONTINUE" else it for it in each] for each in (live, decisions))
    assert decisions == live
    # What `choose_trial_to_run` did after the last result is not repeated.
    assert repeater.wanted == done[: len(repeater.wanted)]
    assert len(repeater.wanted) >= len(done) - 10
    if name != "median" and name != "asha":
        assert done
