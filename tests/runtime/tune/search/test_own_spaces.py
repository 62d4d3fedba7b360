"""Spaces written in a library's own terms, and arguments that only one library has."""

import logging

import pytest

from runtime.tune.search import ConcurrencyLimiter, Searcher, create_searcher
from runtime.tune.search.sample import choice, randint, randn, uniform

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def told(searcher, number, loss):
    searcher.on_trial_complete(str(number), {"loss": loss})


def test_hyperopt_spaces_may_be_nested_with_conditions_and_fixed_values():
    hyperopt = pytest.importorskip("hyperopt")
    hp = hyperopt.hp
    space = {
        "net": {"lr": hp.uniform("lr", 0, 1), "fixed": 3},
        "model": hp.choice("model", [{"kind": "tree", "depth": hp.randint("depth", 5)}, {"kind": "line"}]),
    }
    points = [{"net": {"lr": 0.5, "fixed": 3}, "model": {"kind": "tree", "depth": 4}}]
    searcher = create_searcher(
        "hyperopt", space=space, metric="loss", mode="min", points_to_evaluate=points, random_state_seed=1
    )
    assert searcher.suggest("0") == points[0]
    told(searcher, 0, 1)
    found = []
    for number in range(1, 30):
        found.append(searcher.suggest(str(number)))
        told(searcher, number, found[-1]["net"]["lr"])
    assert all(config["net"]["fixed"] == 3 and 0 <= config["net"]["lr"] <= 1 for config in found)
    assert {config["model"]["kind"] for config in found} == {"tree", "line"}
    assert all(("depth" in config["model"]) == (config["model"]["kind"] == "tree") for config in found)


def test_hyperopt_searches_parameters_of_values_where_they_are_chosen():
    pytest.importorskip("hyperopt")
    space = {
        "m": choice([{"kind": "tree", "depth": randint(1, 9)}, [1, 2], uniform(5, 6)]),
        "n": randn(3, 0.1),
    }
    searcher = create_searcher("hyperopt", metric="loss", mode="min", random_state_seed=1)
    searcher.set_search_properties(None, None, space)
    original = [searcher.suggest(str(number)) for number in range(25)]
    kinds = {type(config["m"]) for config in original}
    assert kinds == {dict, list, float}
    assert all(2 < config["n"] < 4 for config in original)
    replayed = create_searcher("hyperopt", metric="loss", mode="min", random_state_seed=1)
    replayed.set_search_properties(None, None, space)
    for number, config in enumerate(original[:20]):
        replayed.replay(str(number), config)
    assert [replayed.suggest(str(number)) for number in range(20, 25)] == original[20:]


def test_a_point_that_hyperopts_space_cannot_have_is_refused():
    pytest.importorskip("hyperopt")
    searcher = create_searcher("hyperopt", metric="loss", mode="min", points_to_evaluate=[{"k": "c"}])
    searcher.set_search_properties(None, None, {"k": choice(["a", "b"])})
    with pytest.raises(ValueError, match="cannot have the configuration"):
        searcher.suggest("0")


def test_bayesopt_takes_bounds_and_waits_for_random_trials():
    pytest.importorskip("bayes_opt.acquisition", exc_type=ImportError)
    searcher = create_searcher(
        "bayesopt", space={"a/b": (0, 2), "c": (-1, 1)}, metric="loss", mode="min", random_search_steps=2
    )
    first = searcher.suggest("0")
    assert 0 <= first["a"]["b"] <= 2
    assert -1 <= first["c"] <= 1
    searcher.suggest("1")
    assert searcher.suggest("2") is None
    told(searcher, 0, 1)
    assert searcher.suggest("2") is None
    searcher.on_trial_complete("1", error=True)
    assert isinstance(searcher.suggest("2"), dict)


def test_bayesopt_ends_once_it_repeats_itself(caplog):
    pytest.importorskip("bayes_opt.acquisition", exc_type=ImportError)
    searcher = create_searcher(
        "bayesopt",
        metric="loss",
        mode="min",
        patience=2,
        random_search_steps=0,
        points_to_evaluate=[{"x": 0.5}] * 3,
    )
    searcher.set_search_properties(None, None, {"x": uniform(0, 1)})
    with caplog.at_level(logging.WARNING):
        found = [searcher.suggest(str(number)) for number in range(3)]
    assert found == [{"x": 0.5}, None, Searcher.FINISHED]
    assert "seems to have converged" in caplog.text


@pytest.mark.parametrize("kind", ["ei", "poi", "ucb"])
def test_bayesopt_has_other_acquisition_functions(kind):
    pytest.importorskip("bayes_opt.acquisition", exc_type=ImportError)
    searcher = create_searcher(
        "bayesopt", metric="loss", mode="min", utility_kwargs={"kind": kind}, random_search_steps=2
    )
    searcher.set_search_properties(None, None, {"x": uniform(0, 1)})
    for number in range(4):
        told(searcher, number, searcher.suggest(str(number))["x"])
    with pytest.raises(ValueError, match="'ucb', 'ei' or 'poi'"):
        create_searcher("bayesopt", utility_kwargs={"kind": "best"})


def test_bohb_takes_a_configuration_space_and_limits_trials(caplog):
    pytest.importorskip("hpbandster.optimizers.config_generators.bohb", exc_type=ImportError)
    import ConfigSpace

    space = ConfigSpace.ConfigurationSpace({"a/b": (0.0, 1.0), "c": ["x", "y"]}, seed=1)
    searcher = create_searcher("bohb", space=space, metric="loss", mode="min")
    limiter = ConcurrencyLimiter(searcher, 2)
    configs = [limiter.suggest(name) for name in "01"]
    assert all(0 <= config["a"]["b"] <= 1 and config["c"] in ("x", "y") for config in configs)
    assert limiter.suggest("2") is None
    limiter.on_pause("0")
    assert isinstance(limiter.suggest("2"), dict)
    limiter.on_unpause("0")
    limiter.on_trial_complete("1")
    assert limiter.suggest("3") is None
    with caplog.at_level(logging.WARNING):
        limiter.on_trial_result("0", {"loss": 1})
    assert "use HyperBandForBOHB" in caplog.text


def test_nevergrad_takes_its_optimizers_and_parameters():
    nevergrad = pytest.importorskip("nevergrad", exc_type=ImportError)
    dictionary = nevergrad.p.Dict(x=nevergrad.p.Scalar(lower=0, upper=1), kind=nevergrad.p.Choice(["a", "b"]))
    instrumentation = nevergrad.p.Instrumentation(x=nevergrad.p.Scalar(lower=0, upper=1))
    optimizers = nevergrad.optimizers
    made = [
        {"optimizer": optimizers.OnePlusOne, "space": dictionary, "optimizer_kwargs": {"budget": 10}},
        {"optimizer": optimizers.ParametrizedOnePlusOne(), "space": dictionary},
        {"optimizer": optimizers.OnePlusOne(instrumentation, budget=10)},
        {"optimizer": optimizers.OnePlusOne(2, budget=10), "space": ["x", "y"]},
    ]
    for arguments in made:
        searcher = create_searcher("nevergrad", metric="loss", mode="min", **arguments)
        for number in range(5):
            config = searcher.suggest(str(number))
            assert type(config["x"]) is float
            told(searcher, number, config["x"] ** 2)
    with pytest.raises(ValueError, match="2 numbers, but `space` has 1"):
        create_searcher("nevergrad", optimizer=optimizers.OnePlusOne(2, budget=10), space=["x"])


def test_ax_takes_parameters_constraints_and_a_client():
    pytest.importorskip("ax.service.ax_client", exc_type=ImportError)
    from ax.service.ax_client import AxClient, ObjectiveProperties

    parameters = [{"name": name, "type": "range", "bounds": [0.0, 1.0]} for name in ("a/b", "c")]
    searcher = create_searcher(
        "ax", space=parameters, metric="loss", mode="min", parameter_constraints=["c <= 0.5"], random_seed=1
    )
    for number in range(3):
        config = searcher.suggest(str(number))
        assert config["c"] <= 0.5
        told(searcher, number, config["a"]["b"])
    client = AxClient(verbose_logging=False)
    client.create_experiment(parameters=parameters, objectives={"score": ObjectiveProperties(minimize=False)})
    searcher = create_searcher("ax", ax_client=client)
    assert (searcher.metric, searcher.mode) == ("score", "max")
    assert isinstance(searcher.suggest("0"), dict)
    with pytest.raises(ValueError, match="leave out space"):
        create_searcher("ax", ax_client=client, metric="other")
