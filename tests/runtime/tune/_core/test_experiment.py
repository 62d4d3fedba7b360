"""Runners, step by step."""

from __future__ import annotations

from typing import Any

import msgspec

from runtime._controllers.controller import ActorUp, Begin, Call, Done, Effect, Failed, Kill, Perform, Stop
from runtime.tune._core.experiment import Experiment
from runtime.tune._core.messages import Batch
from runtime.tune._core.trial import TrialState
from runtime.tune.schedulers import FIFOScheduler
from tests.sim.tune.world import Book, setting, study_of


class PauseOnce(FIFOScheduler):
    """Pauses a trial at its first result."""

    def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
        return self.PAUSE if result["training_iteration"] == 1 else self.CONTINUE


def calls(effects: list[Effect]) -> list[Call]:
    return [effect for effect in effects if isinstance(effect, Call)]


def result(iteration: int, **more: Any) -> Batch:
    return Batch([({"training_iteration": iteration, **more}, None)])


def test_a_trial_that_goes_on_elsewhere_is_not_taken_from_there_when_its_first_runner_is_free() -> None:
    study = study_of({}, saves=True, scheduler=PauseOnce(), num_samples=2)
    study.replay((), Book())
    experiment = Experiment(study, setting(study, reuses=True), lambda: None)
    experiment.step(Begin(), 0.0)
    (first,) = calls(experiment.step(ActorUp(("runner", 0)), 0.0))
    (second,) = calls(experiment.step(ActorUp(("runner", 1)), 0.0))
    one, other = study.trials
    (save,) = calls(experiment.step(Done(first.key, result(1)), 1.0))
    assert (save.method, one.state) == ("save", TrialState.PAUSED)
    assert calls(experiment.step(Done(second.key, result(2, done=True)), 1.0))[0].method == "leave"
    assert other.state is TrialState.TERMINATED
    # The second runner is free before the first: the paused trial goes on there.
    (leave,) = calls(experiment.step(Done(save.key, None), 2.0))
    (again,) = calls(experiment.step(Done(("leave", 1, 2), (True, None)), 2.0))
    assert (leave.method, again.method, again.actor) == ("leave", "begin", ("runner", 1))
    experiment.step(Done(leave.key, (True, None)), 3.0)
    assert one.state is TrialState.RUNNING
    (end,) = calls(experiment.step(Done(again.key, result(2, done=True)), 4.0))
    assert (end.method, end.actor) == ("leave", ("runner", 1))
    assert one.state is TrialState.TERMINATED


def test_an_answer_that_comes_late_is_not_taken_for_that_of_the_next_trial() -> None:
    study = study_of({}, num_samples=2)
    study.replay((), Book())
    experiment = Experiment(study, setting(study, most_waiting=1, reuses=True), lambda: None)
    experiment.step(Begin(), 0.0)
    (first,) = calls(experiment.step(ActorUp(("runner", 0)), 0.0))
    study.stop_trial(study.trials[0])
    (leave,) = calls(experiment.step(ActorUp(("runner", 9)), 0.0))
    (second,) = calls(experiment.step(Done(leave.key, (True, None)), 1.0))
    assert (second.method, study.trials[1].state) == ("begin", TrialState.RUNNING)
    experiment.step(Done(first.key, result(1)), 2.0)
    assert study.trials[1].last_result == {}


def test_trials_that_lend_their_cpus_do_not_let_all_others_begin() -> None:
    study = study_of({}, num_samples=100)
    study.replay((), Book())
    having = msgspec.structs.replace(setting(study, most_waiting=3), cpus=lambda: 2.0)
    experiment = Experiment(study, having, lambda: None)
    (look,) = [effect for effect in experiment.step(Begin(), 0.0) if isinstance(effect, Perform)]
    experiment.step(Done(look.key, look.function()), 0.0)
    for number in range(100):  # every actor comes up at once, as if there were CPUs without end
        experiment.step(ActorUp(("runner", number)), 1.0)
    assert study.counts[TrialState.RUNNING] == 5
    assert study.counts[TrialState.STARTING] == 0
    experiment.step(Done(look.key, 10.0), 2.0)  # nodes have joined
    for number in range(100):
        experiment.step(ActorUp(("runner", number)), 3.0)
    assert study.counts[TrialState.RUNNING] == 13


def test_an_object_cleans_up_when_its_trial_has_failed_or_no_trial_takes_it_over() -> None:
    study = study_of({}, num_samples=2)
    study.replay((), Book())
    experiment = Experiment(study, setting(study, reuses=True, leaves=True), lambda: None)
    experiment.step(Begin(), 0.0)
    (first,) = calls(experiment.step(ActorUp(("runner", 0)), 0.0))
    (second,) = calls(experiment.step(ActorUp(("runner", 1)), 0.0))
    (close,) = calls(experiment.step(Failed(first.key, ValueError("no")), 1.0))
    assert (close.method, close.actor, study.trials[0].state) == ("close", ("runner", 0), TrialState.ERROR)
    (leave,) = calls(experiment.step(Done(second.key, result(1, done=True)), 2.0))
    (last,) = calls(experiment.step(Done(leave.key, (True, None)), 3.0))
    assert (last.method, last.actor) == ("close", ("runner", 1))
    assert Kill(("runner", 0)) in experiment.step(Done(close.key, None), 4.0)
    assert {wait.key for wait in experiment.waiting_for()} == {("leave", 1)}
    ends = experiment.step(Failed(last.key, RuntimeError("cleanup raised")), 5.0)
    assert Kill(("runner", 1)) in ends
    assert isinstance(ends[-1], Stop)
