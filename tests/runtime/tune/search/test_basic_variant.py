import itertools
import logging
import pickle
import random

import pytest

from runtime.tune.search import BasicVariantGenerator, Searcher, grid_search
from runtime.tune.search.sample import choice, randint, sample_from, uniform


def generator(space, num_samples=1, **options):
    made = BasicVariantGenerator(**{"random_state": 1, **options})
    made.configure(space, num_samples)
    return made


def everything(searcher):
    found = []
    while (config := searcher.suggest(f"trial_{len(found)}")) != Searcher.FINISHED:
        found.append(config)
    return found


def test_the_whole_grid_is_tried_once_per_sample():
    searcher = generator({"a": grid_search([1, 2]), "b": uniform(0, 1)}, 3)
    found = everything(searcher)
    assert [config["a"] for config in found] == [1, 2] * 3
    assert len({config["b"] for config in found}) == 6
    assert searcher.total == searcher.total_samples == 6


def test_points_come_first_and_take_the_place_of_samples():
    space = {"a": grid_search([1, 2]), "b": randint(0, 3)}
    searcher = generator(space, 4, points_to_evaluate=[{"a": 2, "b": 2}, {"a": 1}, {"b": 2}])
    found = everything(searcher)
    assert found[0] == {"a": 2, "b": 2}
    assert found[1]["a"] == 1
    assert found[2:4] == [{"a": 1, "b": 2}, {"a": 2, "b": 2}]
    assert len(found) == searcher.total == 6


def test_a_point_may_be_nested_and_is_checked_against_the_space(caplog):
    space = {"net": {"lr": uniform(0, 1), "fixed": 3}, "kind": choice("ab")}
    with caplog.at_level(logging.WARNING):
        (config,) = everything(
            generator(space, 1, points_to_evaluate=[{"net": {"lr": 7.0, "fixed": 4}, "kind": "a"}])
        )
    assert config == {"net": {"lr": 7.0, "fixed": 4}, "kind": "a"}
    assert "'net/lr' to 7.0, which is not among its values" in caplog.text
    assert "'net/fixed' to 4, which is fixed at 3" in caplog.text
    with pytest.raises(ValueError, match="'net/rate', which is no parameter"):
        generator(space, 1, points_to_evaluate=[{"net": {"rate": 1}}])


def test_samples_without_end_are_made_one_at_a_time():
    searcher = generator({"x": uniform(0, 1)}, -1)
    assert searcher.total is None
    values = [searcher.suggest(str(number))["x"] for number in range(100)]
    assert len(set(values)) == 100


def test_nothing_is_sampled_in_advance():
    calls = itertools.count()
    searcher = generator({"x": sample_from(lambda: next(calls))}, 100_000)
    assert searcher.total == 100_000
    assert next(calls) == 0
    assert [searcher.suggest(str(number))["x"] for number in range(3)] == [1, 2, 3]


def test_the_total_of_nested_grids_is_unknown():
    searcher = generator({"m": choice([{"s": grid_search([1, 2])}, 5])}, 10)
    assert searcher.total is None
    assert 10 <= len(everything(searcher)) <= 20


def test_a_seed_is_drawn_and_repeats_the_configurations():
    space = {"x": uniform(0, 1), "n": randint(0, 1000)}
    first = generator(space, 5, random_state=None)
    assert isinstance(first.seed, int)
    found = everything(first)
    assert everything(generator(space, 5, random_state=first.seed)) == found
    assert everything(generator(space, 5, random_state=None)) != found


def test_generators_of_random_numbers_may_be_given():
    space = {"x": uniform(0, 1)}
    expected = everything(generator(space, 5, random_state=7))
    searcher = generator(space, 5, random_state=random.Random(7))
    assert searcher.seed is None
    assert everything(searcher) == expected
    numpy = pytest.importorskip("numpy")
    again = [everything(generator(space, 5, random_state=numpy.random.default_rng(7))) for _ in range(2)]
    assert again[0] == again[1]


@pytest.mark.parametrize("random_state", [5, random.Random(5)])
def test_a_copy_and_a_restored_one_go_on_with_the_same_configurations(tmp_path, random_state):
    space = {"x": uniform(0, 1), "g": grid_search([1, 2, 3])}
    searcher = generator(space, 4, random_state=random_state)
    for number in range(5):
        searcher.suggest(f"early_{number}")
    searcher.on_trial_complete("early_0")
    searcher.save(str(tmp_path / "state"))
    copied = pickle.loads(pickle.dumps(searcher))
    restored = generator(space, 4, random_state=99)
    restored.restore(str(tmp_path / "state"))
    expected = everything(searcher)
    assert len(expected) == 7
    assert everything(copied) == everything(restored) == expected
    assert restored.tag_of("early_1") == searcher.tag_of("early_1") != ""


def test_replaying_ends_in_the_same_state():
    space = {"x": uniform(0, 1)}
    original = generator(space, 10)
    asked = {str(number): original.suggest(str(number)) for number in range(6)}
    replayed = generator(space, 10, max_concurrent=2)
    for trial_id, config in asked.items():
        replayed.replay(trial_id, config)
    assert replayed.suggest("next") is None
    for trial_id in asked:
        replayed.on_trial_complete(trial_id)
    assert replayed.suggest("next") == original.suggest("next")


def test_no_more_than_the_limit_run_at_once():
    searcher = generator({"x": uniform(0, 1)}, 3, max_concurrent=1)
    assert isinstance(searcher.suggest("a"), dict)
    assert searcher.suggest("b") is None
    searcher.on_trial_complete("a")
    assert isinstance(searcher.suggest("b"), dict)
    with pytest.raises(ValueError, match="max_concurrent"):
        BasicVariantGenerator(max_concurrent=-1)


def test_trials_are_named_by_what_was_chosen():
    searcher = generator({"net": {"lr": choice([0.5]), "fixed": 1}, "g": grid_search(["re lu"])})
    searcher.suggest("a")
    assert searcher.tag_of("a") == "g=re_lu,lr=0.5000"
    assert searcher.evaluated_params_of("a") == {"net/lr": 0.5, "g": "re lu"}
    searcher.on_trial_complete("a")
    assert searcher.tag_of("a") == ""


def test_parameters_within_chosen_values_are_part_of_the_tag():
    searcher = generator({"m": choice([{"kind": "tree", "depth": randint(4, 5)}])})
    searcher.suggest("a")
    assert searcher.evaluated_params_of("a") == {"m": {"kind": "tree", "depth": 4}, "m/depth": 4}


@pytest.mark.parametrize("num_samples", [0, -2])
def test_impossible_numbers_of_samples_are_refused(num_samples):
    with pytest.raises(ValueError, match=f"num_samples.*{num_samples}"):
        generator({}, num_samples)


def test_a_search_without_a_space_says_what_to_call():
    with pytest.raises(RuntimeError, match="configure"):
        BasicVariantGenerator().suggest("a")
