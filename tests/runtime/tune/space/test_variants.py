import itertools
import random
from types import SimpleNamespace

import pytest

from runtime.tune.search.sample import choice, randint, sample_from, uniform
from runtime.tune.search.variant_generator import (
    RecursiveDependencyError,
    assign_value,
    format_vars,
    generate_variants,
    grid_search,
    parse_spec_vars,
)


def configs(space, seed=1, **options):
    return [config for _, config in generate_variants(space, random_state=seed, **options)]


def test_a_space_without_open_parameters_has_one_variant():
    assert list(generate_variants({"a": 1, "b": {"c": [1, 2]}})) == [({}, {"a": 1, "b": {"c": [1, 2]}})]


def test_grids_are_combined_with_the_first_changing_fastest():
    found = configs({"b": grid_search([1, 2]), "a": grid_search("xy"), "c": 0})
    assert [(config["a"], config["b"]) for config in found] == [("x", 1), ("y", 1), ("x", 2), ("y", 2)]


def test_grids_lie_in_nested_dicts_lists_and_tuples():
    space = {
        "a": {"b": grid_search([1, 2])},
        "l": [0, {"c": grid_search([3, 4])}],
        "t": (0, (grid_search([5, 6]), 7)),
    }
    found = configs(space)
    assert len(found) == 8
    assert {(c["a"]["b"], c["l"][1]["c"], c["t"][1][0]) for c in found} == set(
        itertools.product([1, 2], [3, 4], [5, 6])
    )
    assert all(config["t"][0] == 0 and config["t"][1][1] == 7 for config in found)


def test_samples_are_fresh_for_each_combination_unless_they_are_to_stay():
    space = {"x": uniform(0, 1), "g": grid_search([1, 2, 3])}
    assert len({config["x"] for config in configs(space)}) == 3
    assert len({config["x"] for config in configs(space, constant_grid_search=True)}) == 1


def test_constant_samples_do_not_mix_up_the_values_of_the_grid():
    found = list(generate_variants({"x": uniform(0, 1), "g": grid_search([1, 2])}, constant_grid_search=True))
    assert [resolved[("g",)] for resolved, _ in found] == [1, 2]


def test_functions_see_other_values_in_both_forms():
    space = {
        "z": sample_from(lambda spec: spec.config.y + 1),
        "y": sample_from(lambda config: config["x"] * 2),
        "x": randint(3, 4),
        "n": {"inner": sample_from(lambda config: config["n"]["other"]), "other": choice(["k"])},
        "m": sample_from(lambda spec: spec.config.n.inner),
        "w": sample_from(lambda spec: spec["config"]["x"]),
        "none": sample_from(lambda: "nothing"),
        "got": sample_from(lambda config: config.get("missing", "default")),
    }
    assert configs(space) == [
        {
            "z": 7,
            "y": 6,
            "x": 3,
            "n": {"inner": "k", "other": "k"},
            "m": "k",
            "w": 3,
            "none": "nothing",
            "got": "default",
        }
    ]


def test_functions_see_the_grid_even_if_samples_stay_constant():
    space = {"g": grid_search([1, 2]), "f": sample_from(lambda config: config["g"] * 10), "x": uniform(0, 1)}
    found = configs(space, constant_grid_search=True)
    assert [config["f"] for config in found] == [10, 20]
    assert len({config["x"] for config in found}) == 1


def test_a_function_may_return_a_part_of_the_configuration():
    (config,) = configs({"n": {"a": randint(1, 2)}, "copy": sample_from(lambda config: config["n"])})
    assert config["copy"] == {"a": 1}
    assert type(config["copy"]) is dict


def test_a_parameter_called_config_is_found_as_an_item():
    (config,) = configs({"config": choice([5]), "f": sample_from(lambda config: config["config"])})
    assert config["f"] == 5


def test_functions_that_depend_on_each_other_are_named():
    space = {"a": sample_from(lambda config: config["b"]), "b": sample_from(lambda spec: spec.config.a)}
    with pytest.raises(RecursiveDependencyError, match="'a', 'b' depend on each other"):
        configs(space)


def test_a_function_that_fails_is_named_with_its_error():
    with pytest.raises(ValueError, match=r"'n/f' cannot be sampled.*ZeroDivisionError"):
        configs({"n": {"f": sample_from(lambda: 1 / 0)}})
    with pytest.raises(ValueError, match=r"'f' cannot be sampled.*nowhere"):
        configs({"f": sample_from(lambda spec: spec.config.nowhere)})


def test_a_domain_that_cannot_be_sampled_is_named():
    domain = uniform(0, 1)
    domain.upper = float("inf")
    with pytest.raises(ValueError, match=r"'net/rate' cannot be sampled.*finite `upper`"):
        configs({"net": {"rate": domain}})


def test_values_that_are_chosen_may_have_parameters():
    kinds = choice([{"kind": "tree", "depth": randint(1, 9)}, {"kind": "linear", "penalty": uniform(0, 1)}])
    source = random.Random(2)
    found = [configs({"model": kinds}, source)[0]["model"] for _ in range(50)]
    assert {frozenset(model) for model in found} == {
        frozenset({"kind", "depth"}),
        frozenset({"kind", "penalty"}),
    }
    assert len({model["depth"] for model in found if model["kind"] == "tree"}) > 3


def test_nested_grids_multiply_only_where_they_are_chosen():
    space = {"model": grid_search([{"kind": "a", "size": grid_search([1, 2, 3])}, {"kind": "b"}])}
    found = [config["model"] for config in configs(space)]
    assert found == [{"kind": "a", "size": size} for size in (1, 2, 3)] + [{"kind": "b"}]


def test_functions_may_return_domains_and_grids():
    space = {
        "n": randint(2, 3),
        "x": sample_from(lambda config: randint(config["n"], config["n"] + 1)),
        "g": sample_from(lambda: grid_search([1, 2])),
    }
    assert [(config["x"], config["g"]) for config in configs(space)] == [(2, 1), (2, 2)]


def test_expressions_of_spaces_in_json_are_evaluated():
    assert configs({"n": 3, "f": {"eval": "spec.config.n * 2"}})[0]["f"] == 6


def test_variants_share_no_containers():
    space = {"fixed": {"list": [1]}, "chosen": choice([{"list": [1]}]), "g": grid_search([[1], [2]])}
    first, second = configs(space)
    first["fixed"]["list"].append(2)
    first["chosen"]["list"].append(2)
    first["g"].append(5)
    assert second == {"fixed": {"list": [1]}, "chosen": {"list": [1]}, "g": [2]}
    assert configs(space)[0]["g"] == [1]


def test_other_fixed_values_are_shared_and_not_copied():
    data = SimpleNamespace()
    first, second = configs({"data": data, "g": grid_search([1, 2])})
    assert first["data"] is second["data"] is data


def test_variants_of_a_huge_grid_come_one_at_a_time():
    space = {name: grid_search(range(100)) for name in "abcdefgh"}
    found = list(itertools.islice(generate_variants(space), 3))
    assert [config["a"] for _, config in found] == [0, 1, 2]


def test_an_empty_grid_is_named():
    with pytest.raises(ValueError, match="grid of parameter 'a/b' has no values"):
        configs({"a": {"b": grid_search([])}})


def test_tags_show_the_last_key_and_are_fit_for_file_names():
    tag = format_vars({("net", "lr"): 0.123456, ("act",): "re/lu", ("b", 1): [1, 2], ("a",): 3})
    assert tag == "a=3,act=re_lu,1=1_2,lr=0.1235"


def test_a_specification_is_split_into_its_parts():
    fixed, domains, grids = parse_spec_vars(
        {"a": 1, "b": {"c": uniform(0, 1), "d": "x"}, "g": grid_search([1]), "f": sample_from(lambda: 1)}
    )
    assert fixed == [(("a",), 1), (("b", "d"), "x")]
    assert [path for path, _ in domains] == [("b", "c"), ("f",)]
    assert [(path, domain.categories) for path, domain in grids] == [(("g",), [1])]


def test_values_are_assigned_within_tuples():
    spec = {"t": (1, [2, (3, 4)])}
    assign_value(spec, ("t", 1, 1, 0), "new")
    assert spec == {"t": (1, [2, ("new", 4)])}
