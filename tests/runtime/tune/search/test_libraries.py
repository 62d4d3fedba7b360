"""What the searchers of all libraries must do alike. OptunaSearch has more tests of its own."""

import logging
import math
import pickle
import sys

import pytest

from runtime.tune.search import create_searcher, grid_search
from runtime.tune.search.sample import choice, loguniform, qrandint, quniform, randint, sample_from, uniform

MODULES = {
    "optuna": "optuna",
    "hyperopt": "hyperopt",
    "bayesopt": "bayes_opt.acquisition",
    "bohb": "hpbandster.optimizers.config_generators.bohb",
    "nevergrad": "nevergrad",
    "ax": "ax.service.ax_client",
}
SEEDS = {
    "optuna": {"seed": 7},
    "hyperopt": {"random_state_seed": 7, "n_initial_points": 8},
    "bayesopt": {"random_state": 7, "random_search_steps": 8},
    "bohb": {"seed": 7},
    "nevergrad": {},
    "ax": {"random_seed": 7},
}
SPACE = {
    "x": uniform(-1, 1),
    "net": {
        "lr": loguniform(1e-4, 1),
        "layers": [randint(1, 5), "fixed"],
        "width": qrandint(16, 64, 16),
        "drop": quniform(0, 0.5, 0.25),
    },
    "kind": choice(["a", "b", None]),
    "fixed": {"data": 5},
}
SMALL = {"x": uniform(-1, 1), "net": {"lr": loguniform(1e-4, 1)}, "fixed": {"data": 5}}
POINTS = [
    {"x": 0.5, "net": {"lr": 0.5, "layers": [2, "fixed"], "width": 32, "drop": 0.25}, "kind": None},
    {"x": -0.25, "net": {"lr": 0.01, "layers": [4, "fixed"], "width": 64, "drop": 0.5}, "kind": "a"},
]

TRIALS = {"ax": 20}  # it takes long for each

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(params=MODULES)
def library(request):
    pytest.importorskip(MODULES[request.param], exc_type=ImportError)
    numpy = pytest.importorskip("numpy")
    numpy.random.seed(7)  # BOHB and Nevergrad use numpy's global generator
    logging.getLogger("optuna").setLevel(logging.WARNING)
    with pytest.importorskip("threadpoolctl").threadpool_limits(
        1
    ):  # small matrices: threads only slow them down
        yield request.param


def searcher_for(library, space=SMALL, **options):
    searcher = create_searcher(library, **{**SEEDS[library], **options})
    assert searcher.set_search_properties("loss", "min", space)
    return searcher


def loss_of(config):
    return (config["x"] - 0.3) ** 2 + abs(math.log10(config["net"]["lr"]) + 2) / 2


def complete(searcher, trial_id, loss):
    result = {"loss": loss, "training_iteration": 1, "hyperband_info": {"budget": 1}}
    searcher.on_trial_result(trial_id, result)
    searcher.on_trial_complete(trial_id, result)


def run(searcher, trials, start=0):
    found = []
    for number in range(start, start + trials):
        config = searcher.suggest(f"trial_{number}")
        if isinstance(config, dict):
            complete(searcher, f"trial_{number}", loss_of(config))
            found.append(config)
    return found


def test_configurations_are_nested_of_pythons_types_and_within_bounds(library):
    for config in run(searcher_for(library, SPACE), 12):
        net = config["net"]
        assert type(config["x"]) is float
        assert -1 <= config["x"] <= 1
        assert type(net["lr"]) is float
        assert 1e-4 * 0.999 <= net["lr"] <= 1.001
        assert type(net["layers"][0]) is int
        assert net["layers"][0] in range(1, 5)
        assert net["layers"][1] == "fixed"
        assert type(net["width"]) is int
        assert net["width"] in (16, 32, 48, 64)
        assert net["drop"] in (0, 0.25, 0.5)
        assert config["kind"] in ("a", "b", None)


def test_the_search_improves(library):
    searcher = searcher_for(library)
    losses = [loss_of(config) for config in run(searcher, TRIALS.get(library, 40))]
    assert len(losses) > 12
    assert min(losses) < 0.15
    assert sum(losses[-10:]) < sum(losses[:10])


def test_a_value_to_maximize_is_maximized(library):
    searcher = create_searcher(library, metric="score", mode="max", **SEEDS[library])
    assert searcher.set_search_properties(None, None, {"x": uniform(0, 1), "y": uniform(0, 1)})
    found = []
    for number in range(20):
        config = searcher.suggest(str(number))
        if isinstance(config, dict):
            found.append(config["x"])
            result = {"score": config["x"], "training_iteration": 1, "hyperband_info": {"budget": 1}}
            searcher.on_trial_result(str(number), result)
            searcher.on_trial_complete(str(number), result)
    assert sum(found[-10:]) / 10 > sum(found[:10]) / 10
    assert max(found) > 0.9


def test_points_are_tried_first(library):
    searcher = searcher_for(library, SPACE, points_to_evaluate=POINTS)
    for number, point in enumerate(POINTS):
        config = searcher.suggest(str(number))
        assert config["x"] == pytest.approx(point["x"])
        assert config["net"]["lr"] == pytest.approx(point["net"]["lr"])
        assert config["net"]["layers"] == point["net"]["layers"]
        assert (config["net"]["width"], config["net"]["drop"]) == (
            point["net"]["width"],
            point["net"]["drop"],
        )
        assert config["kind"] == point["kind"]
    assert searcher.suggest("next")["x"] not in (0.5, -0.25)


def test_several_trials_may_run_at_once_and_fail(library):
    searcher = searcher_for(library)
    for round_ in range(4):
        names = [f"{round_}_{number}" for number in range(3)]
        configs = [searcher.suggest(name) for name in names]
        assert isinstance(configs[0], dict)
        complete(searcher, names[0], loss_of(configs[0]))
        searcher.on_trial_complete(names[1], error=True)
        searcher.on_trial_complete(names[2], {"loss": float("nan"), "training_iteration": 1})
    assert isinstance(searcher.suggest("last"), dict)


def test_a_restored_searcher_goes_on_as_the_saved_one(library, tmp_path):
    numpy = pytest.importorskip("numpy")
    searcher = searcher_for(library)
    run(searcher, 9)
    searcher.save(str(tmp_path / "state"))
    restored = create_searcher(library)
    restored.restore(str(tmp_path / "state"))
    numpy.random.seed(3)
    expected = run(searcher, 2, 20)
    numpy.random.seed(3)
    assert run(restored, 2, 20) == expected


def test_a_fresh_searcher_can_be_pickled(library):
    searcher = pickle.loads(pickle.dumps(create_searcher(library, **SEEDS[library])))
    assert searcher.set_search_properties("loss", "min", SMALL)
    assert len(run(searcher, 3)) == 3


def test_a_replayed_searcher_learns_and_repeats_nothing(library):
    original, replayed = searcher_for(library), searcher_for(library)
    seen = []
    for number in range(10):
        config = original.suggest(str(number))
        if not isinstance(config, dict):
            continue
        seen.append((config["x"], config["net"]["lr"]))
        replayed.replay(str(number), {**config, "fixed": {"data": 5}})
        for searcher in (original, replayed):
            complete(searcher, str(number), loss_of(config))
    configs = run(replayed, 3, 100)
    assert configs
    assert all((config["x"], config["net"]["lr"]) not in seen for config in configs)


def test_what_cannot_be_searched_is_named(library):
    with pytest.raises(ValueError, match="grid of parameter 'a/g'"):
        searcher_for(library, {"a": {"g": grid_search([1])}, "x": uniform(0, 1)})
    with pytest.raises(ValueError, match="parameter 'f', which is a function"):
        searcher_for(library, {"f": sample_from(lambda: 1), "x": uniform(0, 1)})


def test_what_is_missing_is_said(library):
    with pytest.raises(RuntimeError, match="no search space"):
        create_searcher(library, metric="a", mode="min").suggest("t")


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_missing_library_is_named(name, monkeypatch):
    for module in MODULES.values():
        package = module.partition(".")[0]
        for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == package]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setitem(sys.modules, package, None)  # imports of it raise ImportError
    monkeypatch.setitem(sys.modules, "ConfigSpace", None)
    with pytest.raises(ImportError, match=r"(Search|TuneBOHB) needs the package \S+: pip install"):
        create_searcher(name)
