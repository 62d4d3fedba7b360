"""The sum tree against plain arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.rllib._core.sum_tree import FANOUT, SumTree

WEIGHTS = st.floats(0, 1e6, allow_subnormal=False)


@given(capacity=st.integers(1, 3 * FANOUT**2), data=st.data())
def test_sums_minima_and_places_are_those_of_the_plain_array(capacity: int, data: st.DataObject) -> None:
    tree, plain = SumTree(capacity), np.zeros(capacity)
    for _ in range(3):
        changes = data.draw(st.dictionaries(st.integers(0, capacity - 1), WEIGHTS, min_size=1, max_size=50))
        tree.set(np.array(list(changes)), np.array(list(changes.values())))
        plain[list(changes)] = list(changes.values())
    assert np.array_equal(tree.get(np.arange(capacity)), plain)
    assert tree.total == pytest.approx(plain.sum())
    positive = plain[plain > 0]
    assert tree.smallest == (positive.min() if len(positive) else np.inf)
    if len(positive):
        fractions = np.array(data.draw(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20)))
        found = tree.find(fractions * tree.total)
        assert (plain[found] > 0).all()
        running = plain.cumsum()
        slack = 1e-9 * running[-1]
        assert (running[found] >= fractions * running[-1] - slack).all()
        assert (running[found] - plain[found] <= fractions * running[-1] + slack).all()


def test_leaves_are_drawn_in_proportion_to_their_weights() -> None:
    tree = SumTree(100)
    weights = np.arange(100.0)
    tree.set(np.arange(100), weights)
    drawn = np.bincount(tree.draw(20_000, np.random.default_rng(1)), minlength=100)
    assert np.abs(drawn / 20_000 - weights / weights.sum()).max() < 1e-3


def test_of_a_leaf_set_twice_the_last_weight_counts() -> None:
    tree = SumTree(40)
    tree.set(np.array([3, 3, 39]), np.array([5.0, 7.0, 1.0]))
    assert tree.total == 8


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_weights_that_are_no_weights_are_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="finite and not negative"):
        SumTree(4).set(np.array([0]), np.array([weight]))


def test_an_empty_tree_has_nothing_to_draw() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        SumTree(4).draw(1, np.random.default_rng(1))
    with pytest.raises(ValueError, match="at least one leaf"):
        SumTree(0)
