"""Names of trials, and the parameters that were chosen."""

from __future__ import annotations

from typing import Any

import pytest

from runtime import tune
from runtime.tune._api.resources import PlacementGroupFactory
from runtime.tune._core.names import MOST_CHARACTERS, Naming, constants_of, is_choice
from runtime.tune._core.trial import Trial

SPACE: dict[str, Any] = {
    "x": tune.uniform(0, 1),
    "constant": 3,
    "inner": {"y": tune.choice([1, 2]), "fixed": "a"},
    "grid": tune.grid_search([1, 2]),
    "layers": [tune.randint(1, 4), 8],
    "of": tune.sample_from(lambda spec: 1),
}


def naming(space: dict[str, Any] | None = None, **more: Any) -> Naming:
    return Naming("/storage/e", "/here/e", "abcde", "2026", "f", SPACE if space is None else space, **more)


def trial(tag: str = "0_x=1") -> Trial:
    return Trial("abcde_00000", 0, "f", {}, {}, tag, PlacementGroupFactory([{"CPU": 1}]))


def test_what_a_space_leaves_as_it_is() -> None:
    assert constants_of(SPACE) == {"constant": 3, "inner": {"fixed": "a"}}
    assert [name for name, value in SPACE.items() if is_choice(value)] == ["x", "grid", "layers", "of"]


def test_a_configuration_is_completed_and_its_choices_are_known() -> None:
    names = naming()
    config = names.complete({"x": 0.5, "inner": {"y": 2}, "grid": 1, "layers": [2, 8], "of": 1})
    assert config["constant"] == 3
    assert config["inner"] == {"y": 2, "fixed": "a"}
    evaluated = names.evaluated(config)
    assert evaluated == {"x": 0.5, "inner/y": 2, "grid": 1, "layers": [2, 8], "of": 1}
    assert names.tag(4, "abcde_00004", evaluated) == "4_x=0.5000,y=2,grid=1,layers=[2, 8],of=1"
    assert naming({}).tag(4, "abcde_00004", {}) == "4"


def test_folders_have_names_that_file_systems_take() -> None:
    one = trial("0_path=a/b:c" + "long" * 100)
    naming().name(one)
    assert one.custom_dirname.startswith("f_abcde_00000_0_path=a_b_c")
    assert one.custom_dirname.endswith("_2026")
    assert len(one.custom_dirname) == MOST_CHARACTERS + len("_2026")
    assert one.path == f"/storage/e/{one.custom_dirname}"
    assert one.local_path == f"/here/e/{one.custom_dirname}"


def test_programs_choose_names() -> None:
    one = trial()
    naming(trial_name_of=lambda trial: "mine", dirname_of=lambda trial: f"folder of {trial}").name(one)
    assert (str(one), one.custom_dirname) == ("mine", "folder of mine")
    with pytest.raises(ValueError, match="must be a name without '/'"):
        naming(dirname_of=lambda trial: "a/b").name(one)
