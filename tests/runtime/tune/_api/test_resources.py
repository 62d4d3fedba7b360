"""The resources of trials."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.tune._api.resources import PlacementGroupFactory, resources_to_factory


def test_what_trials_ask_for() -> None:
    factory = PlacementGroupFactory([{"CPU": 1, "GPU": 0}, {"CPU": 2}, {}], strategy="SPREAD")
    assert factory.bundles == [{"CPU": 1.0}, {"CPU": 2.0}]
    assert factory.required_resources == {"CPU": 3.0}
    assert factory.head_cpus == 1.0
    assert factory == PlacementGroupFactory([{"CPU": 1}, {"CPU": 2}], strategy="SPREAD")
    assert factory != PlacementGroupFactory([{"CPU": 1}, {"CPU": 2}])
    assert hash(factory) == hash(PlacementGroupFactory([{"CPU": 1}, {"CPU": 2}], strategy="SPREAD"))


@pytest.mark.parametrize(
    ("given", "bundle"),
    [
        (None, {"CPU": 1.0}),
        ({"cpu": 2, "gpu": 0.5}, {"CPU": 2.0, "GPU": 0.5}),
        ({"CPU": 0}, {}),
        ({"custom": 3}, {"custom": 3.0}),
    ],
)
def test_a_dict_is_a_bundle(given: Any, bundle: dict[str, float]) -> None:
    assert resources_to_factory(given).bundles == [bundle]


def test_what_cannot_be_meant() -> None:
    with pytest.raises(ValueError, match="at least one bundle"):
        PlacementGroupFactory([])
    with pytest.raises(ValueError, match=r"bundle 1 has \{'CPU': -1\}"):
        PlacementGroupFactory([{"CPU": 1}, {"CPU": -1}])
    with pytest.raises(ValueError, match="strategy must be one of"):
        PlacementGroupFactory([{"CPU": 1}], strategy="CLOSE")
    with pytest.raises(TypeError, match="not int"):
        resources_to_factory(3)  # type: ignore[arg-type]
