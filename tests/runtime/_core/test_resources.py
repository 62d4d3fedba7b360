"""Resource arithmetic is exact: nothing is gained or lost however often amounts are taken and given back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime._core import resources

NAMES = st.sampled_from(["CPU", "GPU", "memory", "custom", "node:10.0.0.1"])
SETS = st.dictionaries(NAMES, st.integers(1, 10**9))


@pytest.mark.parametrize(
    ("amount", "units"),
    [(1, 10_000), (0.5, 5_000), (0.1, 1_000), (0.0001, 1), (1 / 3, 3_333), (2 / 3, 6_667), (1e9, 10**13)],
)
def test_units(amount: float, units: int) -> None:
    assert resources.to_units({"CPU": amount}) == {"CPU": units}


def test_tenths_add_up() -> None:
    total: resources.Resources = {}
    for _ in range(10):
        resources.add(total, resources.to_units({"CPU": 0.1}))
    assert total == resources.to_units({"CPU": 1})


@pytest.mark.parametrize("zero", [0, 0.0, -0.0])
def test_zeros_vanish(zero: float) -> None:
    assert resources.to_units({"CPU": zero}) == {}


@pytest.mark.parametrize("amount", [-1, -0.5, -1e-9])
def test_negative_amounts_are_refused(amount: float) -> None:
    with pytest.raises(ValueError, match=r"GPU cannot be negative"):
        resources.to_units({"GPU": amount})


@pytest.mark.parametrize("amount", [0.00001, 1e-12])
def test_amounts_that_cannot_be_told_from_zero_are_refused(amount: float) -> None:
    with pytest.raises(ValueError, match=r"cannot go beyond 0.0001"):
        resources.to_units({"CPU": amount})


@pytest.mark.parametrize("amount", [float("inf"), float("nan")])
def test_endless_amounts_are_refused(amount: float) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        resources.to_units({"CPU": amount})


@given(st.dictionaries(NAMES, st.integers(1, 10**12)))
def test_units_to_floats_and_back(units: resources.Resources) -> None:
    assert resources.to_units(resources.to_floats(units)) == units


@given(SETS, SETS)
def test_what_is_added_can_be_taken_away(first: resources.Resources, second: resources.Resources) -> None:
    total = dict(first)
    resources.add(total, second)
    resources.subtract(total, second)
    assert total == first


@given(SETS, SETS)
def test_no_zeros_are_kept(first: resources.Resources, second: resources.Resources) -> None:
    total = dict(first)
    resources.subtract(total, second)
    assert 0 not in total.values()
    resources.add(total, second)
    assert 0 not in total.values()


@given(SETS, SETS)
def test_what_fits_leaves_nothing_negative(
    request: resources.Resources, available: resources.Resources
) -> None:
    left = dict(available)
    resources.subtract(left, request)
    assert resources.fits(request, available) == all(amount >= 0 for amount in left.values())


@given(SETS)
def test_nothing_fits_everywhere_and_everything_fits_itself(amounts: resources.Resources) -> None:
    assert resources.fits({}, amounts)
    assert resources.fits(amounts, amounts)


def test_an_unknown_resource_fits_nowhere() -> None:
    assert not resources.fits({"TPU": 1}, {"CPU": 10_000})


def test_taking_more_than_there_is_goes_negative() -> None:
    left = {"CPU": 10_000}
    resources.subtract(left, {"CPU": 15_000})
    assert left == {"CPU": -5_000}
    resources.add(left, {"CPU": 15_000})
    assert left == {"CPU": 10_000}


@pytest.mark.parametrize(
    ("units", "text"),
    [
        ({}, "{}"),
        ({"CPU": 10_000}, "{CPU: 1}"),
        ({"GPU": 5_000, "CPU": 20_000}, "{CPU: 2, GPU: 0.5}"),
    ],
)
def test_described(units: resources.Resources, text: str) -> None:
    assert resources.describe(units) == text
