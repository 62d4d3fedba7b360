import logging
import math
import pickle

import pytest

optuna = pytest.importorskip("optuna")

from runtime.tune.search import ConcurrencyLimiter, create_searcher, grid_search
from runtime.tune.search.optuna import OptunaSearch
from runtime.tune.search.sample import (
    choice,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)

SPACE = {
    "x": uniform(-1, 1),
    "net": {"lr": loguniform(1e-4, 1), "layers": randint(1, 10), "width": qrandint(16, 64, 16)},
    "kind": choice(["a", "b", "c"]),
    "fixed": [1, 2],
}


@pytest.fixture(autouse=True)
def _quiet():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


def objective(config):
    net = config["net"]
    return (
        (config["x"] - 0.3) ** 2
        + net["lr"]
        + net["layers"] / 10
        + net["width"] / 100
        + (config["kind"] == "b")
    )


def define(trial):
    trial.suggest_float("x", -1, 1)
    trial.suggest_float("net/lr", 1e-4, 1, log=True)
    trial.suggest_int("net/layers", 1, 9)
    trial.suggest_int("net/width", 16, 64, step=16)
    trial.suggest_categorical("kind", ["a", "b", "c"])


def searcher_for(space=SPACE, **options):
    searcher = OptunaSearch(**options)
    if not searcher.set_search_properties("loss", "min", space):
        raise AssertionError("The space was not taken")
    return searcher


def run(searcher, trials, start=0):
    """Asks and tells in turn; returns the configurations."""
    found = []
    for number in range(start, start + trials):
        config = searcher.suggest(f"trial_{number}")
        searcher.on_trial_complete(f"trial_{number}", {"loss": objective(config)})
        found.append(config)
    return found


def optuna_alone(sampler, trials):
    """The same search as `run`, written with Optuna only."""
    study = optuna.create_study(sampler=sampler, direction="minimize")
    found = []
    for _ in range(trials):
        trial = study.ask()
        define(trial)
        params = trial.params
        net = {name.removeprefix("net/"): value for name, value in params.items() if name.startswith("net/")}
        config = {"x": params["x"], "net": net, "kind": params["kind"]}
        study.tell(trial, objective(config))
        found.append(config)
    return found


@pytest.mark.parametrize(
    "make",
    [
        lambda: optuna.samplers.TPESampler(seed=5),
        lambda: optuna.samplers.TPESampler(seed=5, multivariate=True),
        lambda: optuna.samplers.RandomSampler(seed=5),
    ],
)
def test_it_asks_for_exactly_what_optuna_alone_asks_for(make):
    assert run(searcher_for(sampler=make()), 40) == optuna_alone(make(), 40)


def test_the_default_is_tpe_with_the_seed():
    expected = optuna_alone(optuna.samplers.TPESampler(seed=9), 30)
    assert run(searcher_for(seed=9), 30) == expected
    assert run(OptunaSearch(define, metric="loss", mode="min", seed=9), 30) == expected


def test_cma_es_asks_for_what_optuna_alone_asks_for():
    pytest.importorskip("cmaes")
    space = {"x": uniform(-1, 1), "y": uniform(-1, 1)}
    searcher = searcher_for(space, sampler=optuna.samplers.CmaEsSampler(seed=3))
    study = optuna.create_study(sampler=optuna.samplers.CmaEsSampler(seed=3))
    for number in range(30):
        config = searcher.suggest(str(number))
        trial = study.ask()
        assert config == {"x": trial.suggest_float("x", -1, 1), "y": trial.suggest_float("y", -1, 1)}
        loss = config["x"] ** 2 + (config["y"] - 0.5) ** 2
        searcher.on_trial_complete(str(number), {"loss": loss})
        study.tell(trial, loss)


def test_several_trials_may_run_at_once():
    searcher = searcher_for(seed=1)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1))
    for round_ in range(6):
        configs, trials = {}, []
        for number in range(4):
            configs[number] = searcher.suggest(f"{round_}_{number}")
            trials.append(study.ask())
            define(trials[-1])
            assert configs[number]["x"] == trials[-1].params["x"]
        for number in (2, 0, 3, 1):
            loss = objective(configs[number])
            searcher.on_trial_complete(f"{round_}_{number}", {"loss": loss})
            study.tell(trials[number], loss)


def test_it_finds_better_values_than_random_search():
    tpe, rand = (
        min(map(objective, run(searcher_for(sampler=sampler), 120)))
        for sampler in (optuna.samplers.TPESampler(seed=2), optuna.samplers.RandomSampler(seed=2))
    )
    assert tpe < rand


def test_every_kind_of_parameter_becomes_a_distribution(caplog):
    distributions = optuna.distributions
    with caplog.at_level(logging.WARNING):
        converted = OptunaSearch.convert_search_space(
            {
                "uniform": uniform(0, 2),
                "quniform": quniform(0, 2, 0.5),
                "loguniform": loguniform(1e-3, 1),
                "qloguniform": qloguniform(0.1, 1, 0.1),
                "randint": randint(2, 8),
                "qrandint": qrandint(3, 10, 4),
                "lograndint": lograndint(1, 9),
                "qlograndint": qlograndint(2, 8, 2),
                "choice": choice([1, "a", None]),
                "nested": {"list": [uniform(0, 1), 5]},
                "fixed": 3,
            }
        )
    assert converted == {
        "uniform": distributions.FloatDistribution(0, 2),
        "quniform": distributions.FloatDistribution(0, 2, step=0.5),
        "loguniform": distributions.FloatDistribution(1e-3, 1, log=True),
        "qloguniform": distributions.FloatDistribution(0.1, 1, log=True),
        "randint": distributions.IntDistribution(2, 7),
        "qrandint": distributions.IntDistribution(4, 8, step=4),
        "lograndint": distributions.IntDistribution(1, 8, log=True),
        "qlograndint": distributions.IntDistribution(2, 8, log=True),
        "choice": distributions.CategoricalDistribution([1, "a", None]),
        "nested/list/0": distributions.FloatDistribution(0, 1),
    }
    assert "'qlograndint' ignores q=2" in caplog.text


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"a": {"g": grid_search([1])}}, "grid of parameter 'a/g'"),
        ({"a": {"f": sample_from(lambda: 1)}}, "parameter 'a/f', which is a function"),
        ({"a": {"n": randn()}}, "'a/n' bounds"),
        ({"a/b": uniform(0, 1)}, "'a/b': rename its keys"),
    ],
)
def test_what_cannot_be_searched_is_named(space, message):
    with pytest.raises(ValueError, match=message):
        searcher_for(space)


def test_lists_and_tuples_are_completed_with_their_fixed_values():
    searcher = searcher_for(
        {"layers": [{"units": randint(4, 5), "act": "relu"}, 7], "t": (uniform(0, 1), "k"), "c": 1}
    )
    config = searcher.suggest("a")
    assert config["layers"] == [{"units": 4, "act": "relu"}, 7]
    assert config["t"][1] == "k"
    assert set(config) == {"layers", "t"}


def test_choices_of_other_values_come_as_they_are(recwarn):
    values = [[1, 2], (3, 4), {"k": 5}, None]
    searcher = searcher_for({"c": choice(values)}, seed=1)
    found = [searcher.suggest(str(number))["c"] for number in range(30)]
    assert all(value in found for value in values)
    assert all(value in values for value in found)
    assert not recwarn.list


def test_parameters_of_a_value_are_searched_where_it_is_chosen():
    space = {
        "model": choice(
            [
                {"kind": "tree", "opt": {"depth": randint(1, 10), "fixed": 3}},
                {"kind": "line", "penalty": choice([loguniform(0.1, 1), 7])},
            ]
        )
    }
    searcher = searcher_for(space, seed=4)
    models = []
    for number in range(60):
        model = searcher.suggest(str(number))["model"]
        models.append(model)
        loss = abs(model["opt"]["depth"] - 6) if model["kind"] == "tree" else 5
        searcher.on_trial_complete(str(number), {"loss": loss})
    trees = [model for model in models if model["kind"] == "tree"]
    assert all(model["opt"]["fixed"] == 3 and set(model) == {"kind", "opt"} for model in trees)
    assert 6 in {model["opt"]["depth"] for model in trees}
    penalties = {model["penalty"] for model in models if model["kind"] == "line"}
    assert 7 in penalties
    assert all(value == 7 or 0.1 <= value <= 1 for value in penalties)
    assert len(trees) > 40  # TPE prefers them
    again = searcher_for(space, points_to_evaluate=[{"model": model} for model in models[:8]])
    assert [again.suggest(str(number))["model"] for number in range(8)] == models[:8]


def test_distributions_of_optuna_may_be_given_nested_or_with_slashes():
    number = optuna.distributions.FloatDistribution(0, 1)
    for space in ({"a": {"b": number}, "c": number}, {"a/b": number, "c": number}):
        searcher = OptunaSearch(space, metric="loss", mode="max", seed=1)
        config = searcher.suggest("t")
        assert set(config) == {"a", "c"}
        assert 0 <= config["a"]["b"] <= 1


def test_a_define_by_run_function_may_have_conditions_and_return_values():
    def conditional(trial):
        if trial.suggest_categorical("kind", ["tree", "line"]) == "tree":
            trial.suggest_int("depth", 1, 9)
        return {"extra": 5, "net/fixed": 1}

    searcher = OptunaSearch(conditional, metric="loss", mode="min", seed=1)
    found = [searcher.suggest(str(number)) for number in range(20)]
    assert {frozenset(config) for config in found} == {
        frozenset({"kind", "depth", "extra", "net"}),
        frozenset({"kind", "extra", "net"}),
    }
    assert found[0]["net"] == {"fixed": 1}
    with pytest.raises(TypeError, match="define-by-run function must return None or a dict"):
        OptunaSearch(lambda trial: 5, metric="loss", mode="min").suggest("a")


def test_points_come_first_and_may_be_partial():
    points = [{"x": 0.5, "net": {"lr": 0.1, "layers": 3, "width": 32}, "kind": "b"}, {"x": 0.25}]
    searcher = searcher_for(points_to_evaluate=points, seed=1)
    first, second, third = (searcher.suggest(str(number)) for number in range(3))
    assert first == points[0]
    assert second["x"] == 0.25
    assert third["x"] not in (0.5, 0.25)
    with pytest.raises(ValueError, match="'net/rate', which is no parameter"):
        searcher_for(points_to_evaluate=[{"net": {"rate": 1}}])


def test_points_with_rewards_are_not_tried():
    point = {"x": 0.5, "net": {"lr": 0.1, "layers": 3, "width": 32}, "kind": "b"}
    searcher = searcher_for(points_to_evaluate=[point], evaluated_rewards=[0.7], seed=1)
    assert searcher.suggest("a") != point
    trial = searcher._ot_study.trials[0]
    assert (trial.value, trial.params["net/lr"], trial.params["kind"]) == (0.7, 0.1, "b")


def test_points_and_rewards_are_checked():
    with pytest.raises(ValueError, match="1 for 2 points"):
        OptunaSearch(points_to_evaluate=[{}, {}], evaluated_rewards=[1])
    with pytest.raises(TypeError, match="points_to_evaluate"):
        OptunaSearch(points_to_evaluate={"x": 1})
    with pytest.raises(TypeError, match="define-by-run"):
        OptunaSearch(define, points_to_evaluate=[{}], evaluated_rewards=[1])


def test_results_from_elsewhere_are_learned():
    searcher = searcher_for({"x": uniform(0, 1), "c": choice([[1], [2]])})
    searcher.add_evaluated_point({"x": 0.5, "c": [2], "other": 1}, 0.25, intermediate_values=[3, 2])
    searcher.add_evaluated_point({"x": 0.1, "c": [1]}, 9, error=True)
    searcher.add_evaluated_point({"x": 0.2, "c": [1]}, 1, pruned=True)
    good, failed, pruned = searcher._ot_study.trials
    assert (good.value, good.params, good.intermediate_values) == (0.25, {"x": 0.5, "c": 1}, {0: 3, 1: 2})
    assert (failed.state.name, failed.value, pruned.state.name) == ("FAIL", None, "PRUNED")
    with pytest.raises(ValueError, match="no value of parameter 'c'"):
        searcher.add_evaluated_point({"x": 0.5}, 1)
    with pytest.raises(ValueError, match=r"'c' cannot have the value \[3\]"):
        searcher.add_evaluated_point({"x": 0.5, "c": [3]}, 1)


def test_several_objectives():
    space = {"x": uniform(0, 2)}
    searcher = OptunaSearch(metric=["a", "seen", "b"], mode=["min", "obs", "max"], seed=1)
    assert searcher.set_search_properties(None, None, space)
    study = optuna.create_study(
        directions=["minimize", "maximize"], sampler=optuna.samplers.TPESampler(seed=1)
    )
    for number in range(25):
        x = searcher.suggest(str(number))["x"]
        trial = study.ask()
        assert x == trial.suggest_float("x", 0, 2)
        searcher.on_trial_result(str(number), {"a": 1, "b": 1, "training_iteration": 1})
        searcher.on_trial_complete(str(number), {"a": x**2, "b": x, "seen": 3})
        study.tell(trial, [x**2, x])
    searcher.suggest("last")
    searcher.on_trial_complete("last", {"a": 1})
    assert searcher._ot_study.trials[-1].state.name == "PRUNED"
    searcher.add_evaluated_point({"x": 1}, [1, 2])
    assert searcher._ot_study.trials[-1].values == [1, 2]


def test_ends_of_trials_have_their_states():
    searcher = searcher_for(seed=1)
    for name in ("value", "error", "nothing", "nan", "late"):
        searcher.suggest(name)
    searcher.on_trial_result("nothing", {"loss": 3, "training_iteration": 2})
    searcher.on_trial_result("nothing", {"loss": 3})
    searcher.on_trial_result("nothing", {"training_iteration": 3})
    searcher.on_trial_result("unknown", {"loss": 3, "training_iteration": 2})
    searcher.on_trial_complete("value", {"loss": 1})
    searcher.on_trial_complete("error", error=True)
    searcher.on_trial_complete("nothing", {"other": 1})
    searcher.on_trial_complete("nan", {"loss": math.nan})
    found = [(trial.state.name, trial.value) for trial in searcher._ot_study.trials]
    assert found == [("COMPLETE", 1), ("FAIL", None), ("PRUNED", 3), ("FAIL", None), ("RUNNING", None)]


def test_steps_that_are_reported_again_after_a_failure_are_ignored(recwarn):
    searcher = searcher_for(seed=1)
    searcher.suggest("a")
    for value, step in ((5, 1), (4, 2), (9, 1), (9, 2), (3, 3)):
        searcher.on_trial_result("a", {"loss": value, "training_iteration": step})
    assert searcher._ot_study.trials[0].intermediate_values == {1: 5, 2: 4, 3: 3}
    assert not recwarn.list


def test_a_second_completion_is_ignored(caplog):
    searcher = searcher_for()
    searcher.suggest("a")
    searcher.on_trial_complete("a", {"loss": 1})
    with caplog.at_level(logging.WARNING):
        searcher.on_trial_complete("a", {"loss": 2})
    assert "trial a: it is not running" in caplog.text
    assert [trial.value for trial in searcher._ot_study.trials] == [1]


def test_a_running_trial_is_asked_for_once():
    searcher = searcher_for()
    assert searcher.suggest("a") == searcher.suggest("a")
    assert len(searcher._ot_study.trials) == 1


@pytest.mark.parametrize("space", [None, define])
def test_a_restored_searcher_goes_on_as_the_saved_one(tmp_path, space):
    searcher = OptunaSearch(space, seed=1)
    searcher.set_search_properties("loss", "min", SPACE)
    run(searcher, 15)
    running = searcher.suggest("running")
    searcher.save(str(tmp_path / "state"))
    restored = OptunaSearch()
    restored.restore(str(tmp_path / "state"))
    for each in (searcher, restored):
        each.on_trial_complete("running", {"loss": objective(running)})
    assert run(restored, 10, 20) == run(searcher, 10, 20)


def test_a_fresh_searcher_can_be_pickled():
    searcher = pickle.loads(pickle.dumps(searcher_for(seed=1)))
    assert run(searcher, 3) == run(searcher_for(seed=1), 3)


@pytest.mark.parametrize("space", [None, define])
def test_a_replayed_searcher_goes_on_as_the_original(space):
    original, replayed = (OptunaSearch(space, seed=3) for _ in range(2))
    for each in (original, replayed):
        each.set_search_properties("loss", "min", SPACE)
    for number in range(20):
        config = original.suggest(str(number))
        replayed.replay(str(number), {**config, "fixed": [1, 2]})
        for each in (original, replayed):
            each.on_trial_complete(str(number), {"loss": objective(config)})
    assert run(replayed, 10, 20) == run(original, 10, 20)


@pytest.mark.parametrize("space", [None, define])
def test_replaying_without_a_seed_keeps_the_values_and_repeats_none(space):
    original, replayed = (
        OptunaSearch(space, sampler=optuna.samplers.TPESampler(seed=seed), points_to_evaluate=[{"x": 0.5}])
        for seed in (1, 2)
    )
    for each in (original, replayed):
        each.set_search_properties("loss", "min", SPACE)
    configs = []
    for number in range(12):
        configs.append(original.suggest(str(number)))
        replayed.replay(str(number), {**configs[-1], "fixed": [1, 2]})
        assert replayed.suggest(str(number)) == configs[-1]
        replayed.on_trial_complete(str(number), {"loss": objective(configs[-1])})
    complete = [trial for trial in replayed._ot_study.trials if trial.state.name == "COMPLETE"]
    assert [trial.params["x"] for trial in complete] == [config["x"] for config in configs]
    assert len(replayed._ot_study.trials) == len(complete) + 1  # the one that turned out differently
    seen = {config["x"] for config in configs}
    assert all(config["x"] not in seen for config in run(replayed, 5, 50))


def test_a_study_in_a_file_is_gone_on_with(tmp_path):
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(tmp_path / "study"))
    )
    run(searcher_for(storage=storage, study_name="mine"), 4)
    run(searcher_for(storage=storage, study_name="mine"), 3)
    assert len(optuna.load_study(study_name="mine", storage=storage).trials) == 7


def test_the_metric_may_come_from_the_tuner_or_have_no_name():
    distribution = {"x": optuna.distributions.FloatDistribution(0, 1)}
    searcher = OptunaSearch(distribution)
    assert not searcher.set_search_properties("score", "max", {})
    assert (searcher.metric, searcher.mode) == ("score", "max")
    searcher.suggest("a")
    searcher.on_trial_complete("a", {"score": 3})
    assert searcher._ot_study.best_value == 3
    assert OptunaSearch(distribution, mode="min").metric == "_metric"
    with pytest.raises(ValueError, match="list of metrics"):
        OptunaSearch(distribution, mode=["min", "max"])


def test_what_is_missing_is_said():
    with pytest.raises(RuntimeError, match="no search space"):
        OptunaSearch(metric="a", mode="min").suggest("t")
    with pytest.raises(RuntimeError, match="needs a metric and a mode"):
        OptunaSearch(define).suggest("t")
    searcher = OptunaSearch(metric="a", mode="min")
    searcher.set_search_properties(None, None, {"fixed": 1})
    with pytest.raises(RuntimeError, match="no search space"):
        searcher.suggest("t")


def test_wrong_arguments_are_refused(caplog):
    with pytest.raises(TypeError, match="`sampler` must be"):
        OptunaSearch(sampler="tpe")
    with pytest.raises(TypeError, match="`storage` must be"):
        OptunaSearch(storage="sqlite:///x")
    with caplog.at_level(logging.WARNING):
        OptunaSearch(sampler=optuna.samplers.RandomSampler(), seed=1)
    assert "ignores `seed`" in caplog.text


def test_spaces_of_tune_may_be_given_to_the_searcher():
    assert run(OptunaSearch(SPACE, metric="loss", mode="min", seed=2), 3) == run(searcher_for(seed=2), 3)


def test_it_is_created_by_name_and_can_be_limited():
    limiter = ConcurrencyLimiter(create_searcher("optuna", metric="loss", mode="min", seed=1), 1)
    assert limiter.set_search_properties(None, None, SPACE)
    assert isinstance(limiter.suggest("a"), dict)
    assert limiter.suggest("b") is None
