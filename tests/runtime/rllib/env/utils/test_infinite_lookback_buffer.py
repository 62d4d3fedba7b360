"""Items by time step, with a lookback before step 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from runtime.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer, one_hot_by_space
from runtime.rllib.utils.spaces.space_utils import unbatch


def buffer(as_arrays: bool) -> InfiniteLookbackBuffer:
    """Three steps, 13 to 15, behind a lookback of 10 to 12."""
    items = [10, 11, 12, 13, 14, 15]
    return InfiniteLookbackBuffer(np.array(items) if as_arrays else items, lookback=3)


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


@pytest.mark.parametrize("as_arrays", [False, True])
@pytest.mark.parametrize(
    ("indices", "lookback", "fill", "expected"),
    [
        (None, False, None, [13, 14, 15]),
        (0, False, None, 13),
        (-1, False, None, 15),
        (-4, False, None, 12),
        (-1, True, None, 12),
        (slice(None), False, None, [13, 14, 15]),
        (slice(1, None), False, None, [14, 15]),
        (slice(-4, None), False, None, [12, 13, 14, 15]),
        (slice(-2, 1), True, None, [11, 12, 13]),
        (slice(-5, 1), True, 0, [0, 0, 10, 11, 12, 13]),
        (slice(-8, -3), False, 0, [0, 0, 10, 11, 12]),
        (slice(2, 5), False, 7, [15, 7, 7]),
        (slice(-9, 1), True, None, [10, 11, 12, 13]),
        (slice(2, 9), False, None, [15]),
        (slice(5, 9), False, None, []),
        (slice(None, None, -1), False, None, [15, 14, 13]),
        (slice(0, 3, 2), False, None, [13, 15]),
        ([0, 2, -1], False, None, [13, 15, 15]),
        ([-1, 5], True, 9, [12, 9]),
        (7, False, 3, 3),
    ],
)
def test_get(as_arrays: bool, indices: Any, lookback: bool, fill: Any, expected: Any) -> None:
    found = buffer(as_arrays).get(indices, neg_index_as_lookback=lookback, fill=fill)
    assert plain(found) == expected
    assert isinstance(found, np.ndarray | np.generic | int) == (as_arrays or not isinstance(expected, list))


@given(
    st.integers(0, 6), st.integers(0, 4), st.integers(-9, 9), st.integers(-9, 9), st.booleans(), st.booleans()
)
def test_a_slice_with_fill_is_what_its_steps_are(
    steps: int, lookback: int, start: int, length: int, is_lookback: bool, as_arrays: bool
) -> None:
    items = [*range(100, 100 + steps + lookback)]
    tested = InfiniteLookbackBuffer(np.array(items) if as_arrays else items, lookback)
    stop = start + abs(length)
    if not is_lookback and start < 0 <= stop:
        stop = -1  # without the option, negative numbers count from the end
    wanted = range(start, stop)
    found = tested.get(slice(start, stop), neg_index_as_lookback=is_lookback, fill=-1)
    each = [tested.get(index, neg_index_as_lookback=is_lookback, fill=-1) for index in wanted]
    assert plain(found) == [plain(item) for item in each]


@pytest.mark.parametrize("as_arrays", [False, True])
def test_a_single_index_outside_is_an_error_without_fill(as_arrays: bool) -> None:
    with pytest.raises(IndexError, match="fill"):
        buffer(as_arrays).get(3)
    with pytest.raises(IndexError, match="fill"):
        buffer(as_arrays).get(-4, neg_index_as_lookback=True)


@pytest.mark.parametrize("as_arrays", [False, True])
def test_set(as_arrays: bool) -> None:
    tested = buffer(as_arrays)
    tested.set(1, at_indices=0)
    tested.set(2, at_indices=-1)
    tested[1] = 3
    tested.set(4, at_indices=-1, neg_index_as_lookback=True)
    assert plain(tested.get(slice(-4, None))) == [4, 1, 3, 2]
    tested.set([5, 6], at_indices=slice(1, 3))
    tested.set([7], at_indices=[0])
    assert plain(tested.get()) == [7, 5, 6]
    tested.set([1, 2, 3])
    assert plain(tested.get(slice(-6, None))) == [10, 11, 4, 1, 2, 3]
    with pytest.raises(ValueError, match="2 new items cannot replace 3"):
        tested.set([1, 2])
    with pytest.raises(IndexError):
        tested.set(1, at_indices=3)


def test_set_does_not_change_what_the_arrays_are_a_view_of() -> None:
    shared = np.arange(4)
    shared.flags.writeable = False
    tested = InfiniteLookbackBuffer(shared)
    tested.set(9, at_indices=0)
    assert shared[0] == 0
    assert tested.get(0) == 9


@pytest.mark.parametrize("as_arrays", [False, True])
def test_growing(as_arrays: bool) -> None:
    tested = buffer(as_arrays)
    tested.append(16)
    tested.extend([17, 18])
    tested.concat(InfiniteLookbackBuffer(np.array([0, 19]), lookback=1))
    tested.pop()
    assert plain(tested.get()) == [13, 14, 15, 16, 17, 18]
    assert len(tested) == 6
    assert tested.len_incl_lookback() == 9


def test_trees_of_arrays() -> None:
    tested = InfiniteLookbackBuffer([{"a": 1, "b": (2.0,)}, {"a": 3, "b": (4.0,)}], lookback=1)
    tested.finalize()
    tested.append({"a": 5, "b": (6.0,)})
    assert tested.get(0)["a"] == 3
    assert tested.get()["b"][0].tolist() == [4.0, 6.0]
    filled = tested.get(slice(-3, 1), neg_index_as_lookback=True, fill=0.0)
    assert filled["a"].tolist() == [0, 0, 1, 3]


def test_one_hot_vectors_and_what_fills_them() -> None:
    space = spaces.Dict(
        {"a": spaces.Discrete(3), "b": spaces.MultiDiscrete([2, 2]), "c": spaces.Box(0, 1, (2,), np.float32)}
    )
    item = {"a": 2, "b": np.array([0, 1]), "c": np.array([0.5, 0.25], np.float32)}
    for tested in (InfiniteLookbackBuffer([item], space=space), InfiniteLookbackBuffer([item], space=space)):
        first, second = tested.get(slice(-1, 1), neg_index_as_lookback=True, fill=0.0, one_hot_discrete=True)
        assert first["a"].tolist() == [0, 0, 0]
        assert first["b"].tolist() == [0, 0, 0, 0]
        assert second["a"].tolist() == [0, 0, 1]
        assert second["b"].tolist() == [1, 0, 0, 1]
        assert second["c"].tolist() == [0.5, 0.25]
    with pytest.raises(ValueError, match="space"):
        InfiniteLookbackBuffer([1]).get(one_hot_discrete=True)


def test_one_hot_counts_from_the_start_of_the_space_and_takes_batches() -> None:
    assert one_hot_by_space(np.array([5, 6]), spaces.Discrete(2, start=5)).tolist() == [[1, 0], [0, 1]]
    assert one_hot_by_space(np.empty((0, 2), np.int64), spaces.MultiDiscrete([2, 3])).shape == (0, 5)
    pair = spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1)))
    assert one_hot_by_space((1, np.zeros(1)), pair)[0].tolist() == [0, 1]


def test_fill_knows_the_shape_from_the_space_if_there_are_no_items() -> None:
    tested = InfiniteLookbackBuffer(space=spaces.Box(0, 1, (2,), np.float32))
    assert [item.tolist() for item in tested.get(slice(-1, 1), neg_index_as_lookback=True, fill=4.0)] == [
        [4, 4]
    ] * 2


def test_add() -> None:
    tested = InfiniteLookbackBuffer([1, 2], lookback=1)
    more = [3]
    assert (tested + more).data == [1, 2, 3]
    assert (tested + 1).data == [2, 3]
    assert (tested + InfiniteLookbackBuffer([2, 3], lookback=1)).data == [1, 2, 3]
    with pytest.raises(RuntimeError):
        buffer(True) + more


@pytest.mark.parametrize("as_arrays", [False, True])
def test_state_and_equality(as_arrays: bool) -> None:
    tested = buffer(as_arrays)
    again = InfiniteLookbackBuffer.from_state(tested.get_state())
    assert again == tested
    again.append(1)
    assert again != buffer(as_arrays)


def test_unbatch() -> None:
    assert unbatch({"a": np.array([1, 2])}) == [{"a": 1}, {"a": 2}]


def test_floats_are_not_cut_to_the_integers_of_an_image() -> None:
    image = np.full((2, 2), 200, np.uint8)
    tested = InfiniteLookbackBuffer(np.stack([image, image]))
    tested.set(image / np.float32(255), at_indices=0)
    assert np.allclose(tested.get(0), 200 / 255)
    assert np.allclose(tested.get(1), 200)
    counts = InfiniteLookbackBuffer(np.array([1, 2]))
    counts.append(0.5)
    assert counts.get().tolist() == [1, 2, 0.5]
    images = InfiniteLookbackBuffer(np.stack([image, image]))
    images.set(image, at_indices=0)
    images.append(image)
    assert images.get().dtype == np.uint8


def test_arrays_of_tuples_survive_formats_without_tuples() -> None:
    tested = InfiniteLookbackBuffer([(0, np.zeros(1)), (1, np.ones(1)), (2, np.ones(1))])
    tested.finalize()
    state = tested.get_state()
    copied = InfiniteLookbackBuffer.from_state({**state, "data": [*state["data"]]})
    assert len(copied) == 3
    assert copied.get(2)[0] == 2
