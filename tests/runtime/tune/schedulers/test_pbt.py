"""Population based training: quantiles, exploit, explore, order, logs; and the replay of its logs."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from runtime.tune.schedulers import PopulationBasedTraining, PopulationBasedTrainingReplay
from tests.runtime.tune.schedulers.study import SimulatedTrial, Study


def sum_of_rates(config: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """The score is the sum of the rates used so far: what it was trained with travels with the checkpoint."""
    state["rates"] = [*state.get("rates", []), config["rate"]]
    return {"score": sum(state["rates"])}


def rates(count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [{"rate": rng.random()} for _ in range(count)]


class CheckedPBT(PopulationBasedTraining):
    """Compares each decision with a plain computation over the whole population."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(
            "training_iteration", "score", "max", hyperparam_mutations={"rate": lambda: 0.5}, **arguments
        )
        self.scores: dict[SimulatedTrial, float] = {}
        self.perturbed: dict[SimulatedTrial, int] = {}
        self.compared = 0

    def quantiles(self) -> tuple[list[SimulatedTrial], list[SimulatedTrial]]:
        ranked = sorted(
            (trial for trial in self.scores if not trial.is_finished()), key=self.scores.__getitem__
        )
        size = min(math.ceil(len(ranked) * self._quantile_fraction), len(ranked) // 2)
        return ranked[:size], ranked[len(ranked) - size :]

    def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
        time = result["training_iteration"]
        due = time >= self._burn_in_period and (
            time - self.perturbed.get(trial, 0) >= self._perturbation_interval
        )
        before = len(controller.exploits)
        decision = super().on_trial_result(controller, trial, result)
        if not due:
            assert decision == "CONTINUE"
            return decision
        self.scores[trial] = result["score"]
        self.perturbed[trial] = time
        worst, best = self.quantiles()
        self.compared += 1
        assert (trial in worst) == (len(controller.exploits) > before) == (decision == "NOOP")
        if trial in worst:
            target, donor, config = controller.exploits[-1]
            donors = {other.trial_id: other for other in best}
            assert target == trial.trial_id
            assert donor in donors
            old = donors[donor].config["rate"]
            assert config["rate"] in (0.5, pytest.approx(old * 1.2), pytest.approx(old * 0.8))
            self.perturbed[trial] = self.perturbed[donors[donor]]
        return decision


@pytest.mark.parametrize("seed", range(10))
def test_exploits_as_the_plain_rule(seed: int) -> None:
    rng = random.Random(seed)
    scheduler = CheckedPBT(
        perturbation_interval=rng.randint(1, 6),
        burn_in_period=rng.choice([0, 0, 9]),
        quantile_fraction=rng.choice([0, 0.1, 0.25, 0.5]),
        seed=seed,
    )
    population, workers = rng.randint(2, 24), rng.randint(1, 8)
    study = Study(
        scheduler,
        rates(population, seed),
        sum_of_rates,
        workers=workers,
        iterations=40,
        seed=seed,
        failures=0.002,
    ).run()
    assert scheduler.compared > 10
    assert study.listings == 0


def test_waiting_trials_get_their_share_of_time() -> None:
    scheduler = PopulationBasedTraining(
        "training_iteration",
        "score",
        "max",
        4,
        hyperparam_mutations={"rate": [0.1, 0.2]},
        quantile_fraction=0,
    )
    spread: list[int] = []

    def watch(study: Study) -> None:
        steps = [trial.last_result.get("training_iteration", 0) for trial in study.trials]
        if len(steps) == 12 and max(steps) < 40:
            spread.append(max(steps) - min(steps))

    Study(scheduler, [{"rate": 0.1} for _ in range(12)], sum_of_rates, workers=3, iterations=40).run(watch)
    assert max(spread) <= 8


@pytest.mark.parametrize("slow_saves", [False, True])
@pytest.mark.parametrize(("ahead", "queue"), [(1, 0), (50, 0), (1, 16)])
@pytest.mark.parametrize("workers", [1, 3, 20])
def test_synchronous_rounds(ahead: int, queue: int, workers: int, slow_saves: bool) -> None:
    """Whatever the number of workers, each round perturbs the whole population at the same iteration."""
    rounds: list[tuple[set[int], set[str], set[str]]] = []

    class Watching(PopulationBasedTraining):
        def _perturb_all(self, controller: Any) -> None:
            trials = [member.trial for member in self._members.values()]
            assert all(controller.is_ready(trial) for trial in trials)
            steps = {trial.last_result["training_iteration"] for trial in trials}
            ranked = sorted(trials, key=lambda trial: trial.last_result["score"])
            size = min(math.ceil(len(ranked) / 4), len(ranked) // 2)
            before = len(controller.exploits)
            super()._perturb_all(controller)
            done = controller.exploits[before:]
            assert {target for target, _, _ in done} == {trial.trial_id for trial in ranked[:size]}
            assert {donor for _, donor, _ in done} <= {
                trial.trial_id for trial in ranked[len(ranked) - size :]
            }
            rounds.append((steps, {target for target, _, _ in done}, {trial.status for trial in trials}))

    scheduler = Watching(
        "training_iteration",
        "score",
        "max",
        5,
        hyperparam_mutations={"rate": lambda: 0.5},
        synch=True,
        seed=1,
    )
    Study(
        scheduler,
        rates(8),
        sum_of_rates,
        workers=workers,
        iterations=23,
        ahead=ahead,
        queue=queue,
        slow_saves=slow_saves,
    ).run()
    assert [steps for steps, _, _ in rounds] == [{5}, {10}, {15}, {20}]
    assert all(len(targets) == 2 and statuses == {"PAUSED"} for _, targets, statuses in rounds)


def test_synchronous_rounds_survive_failures() -> None:
    scheduler = PopulationBasedTraining(
        "training_iteration", "score", "max", 5, hyperparam_mutations={"rate": [0.1]}, synch=True, seed=1
    )
    study = Study(scheduler, rates(30), sum_of_rates, workers=4, iterations=23, failures=0.02, seed=2).run()
    assert any(trial.status == "ERROR" for trial in study.trials)


def test_training_pays_off() -> None:
    """The best member ends better than the best fixed rate could."""

    def hill(config: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        state["value"] = state.get("value", 0.0) - (config["rate"] - 0.7) ** 2
        return {"score": state["value"]}

    ends = {}
    for fraction in (0.0, 0.25):
        scheduler = PopulationBasedTraining(
            "training_iteration",
            "score",
            "max",
            2,
            hyperparam_mutations={"rate": lambda: 0.3},
            quantile_fraction=fraction,
            resample_probability=0.0,
            seed=3,
        )
        study = Study(
            scheduler, [{"rate": 0.05 * n} for n in range(1, 8)], hill, workers=8, iterations=60
        ).run()
        ends[fraction] = sum(trial.last_result["score"] for trial in study.trials) / 7
    assert ends[0.25] > ends[0.0] / 3


def test_missing_hyperparameters_are_drawn() -> None:
    class Uniform:
        def sample(self, *, random_state: random.Random) -> float:
            return random_state.uniform(2, 3)

    scheduler = PopulationBasedTraining(
        metric="score",
        mode="max",
        hyperparam_mutations={"a": Uniform(), "b": [1, 2], "c": {"d": lambda: 7, "e": [5]}, "given": [0]},
        seed=1,
    )
    trial = SimulatedTrial("t", {"given": 9, "c": {"e": 6}})
    scheduler.on_trial_add(Study(scheduler, [], sum_of_rates), trial)
    assert 2 <= trial.config["a"] <= 3
    assert trial.config["b"] in (1, 2)
    assert trial.config["c"] == {"d": 7, "e": 6}
    assert trial.config["given"] == 9
    assert set(trial.evaluated_params) == {"a", "b", "c"}


def test_a_trial_without_checkpoint_is_not_copied() -> None:
    scheduler = PopulationBasedTraining(
        "training_iteration", "score", "max", 3, hyperparam_mutations={"rate": [0.1, 0.9]}, seed=1
    )
    study = Study(scheduler, rates(4), sum_of_rates, workers=4, iterations=12, saves_paused=False).run()
    assert study.exploits == []
    assert {trial.last_result["training_iteration"] for trial in study.trials} == {12}
    assert scheduler.debug_string().endswith("0 perturbs")


def test_nan_ranks_lowest_and_is_never_copied() -> None:
    def diverging(config: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        return {"loss": math.nan if config["rate"] > 0.5 else config["rate"]}

    scheduler = PopulationBasedTraining(
        "training_iteration",
        "loss",
        "min",
        3,
        hyperparam_mutations={"rate": [0.1]},
        resample_probability=1,
        seed=1,
    )
    study = Study(
        scheduler, [{"rate": rate} for rate in (0.9, 0.1, 0.2, 0.3)], diverging, workers=4, iterations=30
    ).run()
    assert study.exploits
    assert "t0" in {target for target, _, _ in study.exploits}
    assert all(not math.isnan(trial.last_result["loss"]) for trial in study.trials)


@pytest.mark.parametrize("queue", [0, 3, 16])
@pytest.mark.parametrize("seed", range(4))
def test_trials_that_are_chosen_but_have_no_worker_get_their_turn(seed: int, queue: int) -> None:
    """Chosen trials are not pending any more; those with a worker must make room for them all the same."""
    scheduler = PopulationBasedTraining(
        "training_iteration", "score", "max", 2, hyperparam_mutations={"rate": lambda: 0.5}, seed=seed
    )
    behind: list[int] = []

    def watch(study: Study) -> None:
        steps = [trial.last_result.get("training_iteration", 0) for trial in study.trials]
        if 10 < max(steps) < 40:
            behind.append(max(steps) - min(steps))

    Study(
        scheduler,
        rates(9, seed),
        sum_of_rates,
        workers=3,
        iterations=40,
        seed=seed,
        queue=queue,
        slow_saves=True,
        retries=True,
        failures=0.002,
    ).run(watch)
    # Nobody is forgotten. A failed trial goes back to its last checkpoint, one interval or two.
    assert max(behind) <= 16


def test_running_trials_are_left_alone_while_others_start() -> None:
    """With a worker for each, nobody pauses but to copy."""
    scheduler = CheckedPBT(perturbation_interval=2, seed=4)
    study = Study(scheduler, rates(6), sum_of_rates, workers=6, iterations=30, queue=4).run()
    assert {decision for _, _, decision in study.decisions} == {"CONTINUE", "NOOP"}


def test_the_same_seed_gives_the_same_study() -> None:
    def run() -> list[Any]:
        random.seed(5)
        scheduler = PopulationBasedTraining(
            "training_iteration", "score", "max", 3, hyperparam_mutations={"rate": [0.1, 0.5, 0.9]}
        )
        return Study(scheduler, rates(8), sum_of_rates, iterations=30).run().exploits

    assert run() == run() != []


def test_a_searcher_that_learns_is_refused() -> None:
    class Learner:
        pass

    scheduler = PopulationBasedTraining(metric="score", mode="max", custom_explore_fn=lambda config: config)
    with pytest.raises(ValueError, match="search_alg=Learner"):
        scheduler.on_trial_add(
            Study(scheduler, [], sum_of_rates, search_alg=Learner()), SimulatedTrial("t", {})
        )


def test_missing_keys() -> None:
    strict = PopulationBasedTraining("epoch", "score", "max", custom_explore_fn=lambda config: config)
    lenient = PopulationBasedTraining(
        "epoch", "score", "max", custom_explore_fn=lambda config: config, require_attrs=False
    )
    trial = SimulatedTrial("t7", {})
    study = Study(strict, [], sum_of_rates)
    for scheduler in (strict, lenient):
        scheduler.on_trial_add(study, trial)
    strict.on_trial_result(study, trial, {"epoch": 1, "score": 1})
    with pytest.raises(RuntimeError, match=r"'score'.*t7.*\['epoch'\].*require_attrs=False"):
        strict.on_trial_result(study, trial, {"epoch": 2})
    assert lenient.on_trial_result(study, trial, {"epoch": 2}) == "CONTINUE"


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"hyperparam_mutations": None}, ValueError, "hyperparam_mutations and custom_explore_fn"),
        ({"hyperparam_mutations": {"a": 1}}, TypeError, "'a'"),
        ({"hyperparam_mutations": {"a": {"b": 1}}}, TypeError, "'a/b'"),
        ({"hyperparam_mutations": {"a": []}}, ValueError, "'a'"),
        ({"quantile_fraction": 0.6}, ValueError, "quantile_fraction"),
        ({"perturbation_interval": 0}, ValueError, "perturbation_interval"),
        ({"resample_probability": 2}, ValueError, "resample_probability"),
        ({"perturbation_factors": ()}, ValueError, "perturbation_factors"),
        ({"mode": "up"}, ValueError, "mode"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        PopulationBasedTraining(**{"hyperparam_mutations": {"a": [1]}, **arguments})


def test_sample_from_is_refused() -> None:
    class SampleFrom:
        func = staticmethod(lambda spec: 1)

        def sample(self) -> None:
            raise AssertionError

    with pytest.raises(ValueError, match="sample_from"):
        PopulationBasedTraining(hyperparam_mutations={"a": SampleFrom()})


# ---- logs and replay ----


def logged_study(seed: int) -> Study:
    scheduler = PopulationBasedTraining(
        "training_iteration", "score", "max", 3, hyperparam_mutations={"rate": lambda: 0.5}, seed=seed
    )
    return Study(scheduler, rates(8, seed), sum_of_rates, workers=8, iterations=31, seed=seed).run()


def test_exploits_are_logged() -> None:
    study = logged_study(1)
    lines = [json.loads(line) for line in study.lines["pbt_global.txt"]]
    assert [(f"t{target}", f"t{donor}", new) for target, donor, _, _, _, new in lines] == study.exploits
    assert all(target_step % 3 == donor_step % 3 == 0 for _, _, target_step, donor_step, _, _ in lines)


@pytest.mark.parametrize("seed", range(6))
def test_a_policy_file_repeats_what_a_member_was_trained_with(seed: int, tmp_path: Any) -> None:
    study = logged_study(seed)
    replayed = 0
    for trial in study.trials:
        lines = study.lines.get(f"pbt_policy_{trial.trial_id}.txt")
        if lines is None:
            continue
        file = tmp_path / trial.trial_id
        file.write_text("\n".join(lines) + "\n")
        replay = PopulationBasedTrainingReplay(str(file))
        again = Study(replay, [{}], sum_of_rates, workers=1, iterations=31).run().trials[0]
        # A donor may train on a little before it is copied; what counts is which rates came in which order.
        assert list(dict.fromkeys(again.state["rates"])) == list(dict.fromkeys(trial.state["rates"]))
        replayed += 1
    assert replayed > 0


def test_a_new_past_hides_the_old_one(tmp_path: Any) -> None:
    """B copies A, A copies C, then A copies B: A's weights never were at C, though the tags of its lines would fit."""
    scheduler = PopulationBasedTraining(
        "training_iteration",
        "score",
        "max",
        1,
        hyperparam_mutations={"rate": [1]},
        custom_explore_fn=dict,
        seed=1,
    )
    study = Study(scheduler, [], sum_of_rates)
    for name in "ABC":
        trial = SimulatedTrial(
            name, {"rate": 1, "from": name}, status="PAUSED", experiment_tag=name, checkpoint={}
        )
        scheduler.on_trial_add(study, trial)
    members = scheduler._members
    for step, (target, donor) in enumerate([("B", "A"), ("A", "C"), ("A", "B")], 1):
        members[donor].iteration = step
        assert scheduler._exploit(study, members[target], members[donor])
    file = tmp_path / "policy"
    file.write_text("\n".join(study.lines["pbt_policy_A.txt"]))
    replay = PopulationBasedTrainingReplay(str(file))
    assert replay.config["from"] == "A"
    assert [step for step, _ in replay._policy] == [1, 3]


def test_replay_refuses_what_it_cannot_read(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        PopulationBasedTrainingReplay(str(tmp_path / "nothing"))
    file = tmp_path / "policy"
    file.write_text("[1, 2]\n")
    with pytest.raises(ValueError, match="line 1"):
        PopulationBasedTrainingReplay(str(file))
    file.write_text("")
    replay = PopulationBasedTrainingReplay(str(file))
    study = Study(replay, [], sum_of_rates)
    with pytest.raises(ValueError, match="is empty"):
        replay.on_trial_add(study, SimulatedTrial("a", {}))
    replay.on_trial_add(study, SimulatedTrial("a", {"rate": 1}))
    with pytest.raises(ValueError, match="num_samples=1"):
        replay.on_trial_add(study, SimulatedTrial("b", {"rate": 1}))


def test_an_exploited_trial_carries_its_hyperparameters_in_its_tag() -> None:
    study = logged_study(2)
    for trial in study.trials:
        if trial.experiment_tag.endswith("]"):
            assert trial.experiment_tag == f"{trial.trial_id[1:]}@perturbed[rate={trial.config['rate']:.4f}]"
            break
    else:
        raise AssertionError("nothing was exploited")


def test_configs_of_donors_are_not_shared() -> None:
    study = logged_study(3)
    assert len({id(trial.config) for trial in study.trials}) == len(study.trials)
