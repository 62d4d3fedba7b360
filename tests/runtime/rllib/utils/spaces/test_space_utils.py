from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.rllib.utils.spaces.flexdict import FlexDict
from runtime.rllib.utils.spaces.repeated import Repeated
from runtime.rllib.utils.spaces.simplex import Simplex
from runtime.rllib.utils.spaces.space_utils import (
    BatchedNdArray,
    batch,
    clip_action,
    convert_element_to_space_type,
    flatten_space,
    flatten_to_single_ndarray,
    get_base_struct_from_space,
    get_dummy_batch_for_space,
    normalize_action,
    unbatch,
    unsquash_action,
)

Box = gym.spaces.Box
NESTED = gym.spaces.Dict(
    b=gym.spaces.Discrete(3), a=Box(-1, 1, (2, 2)), c=gym.spaces.Tuple([gym.spaces.MultiDiscrete([2, 3])])
)


def test_the_structure_of_a_nested_space() -> None:
    tree = get_base_struct_from_space(NESTED)
    assert list(tree) == ["a", "b", "c"]
    assert isinstance(tree["c"], tuple)
    assert flatten_space(NESTED) == [NESTED["a"], NESTED["b"], NESTED["c"][0]]


def test_batches_come_apart_again() -> None:
    samples = [NESTED.sample() for _ in range(4)]
    joined = batch(samples)
    assert joined["a"].shape == (4, 2, 2)
    for sample, again in zip(samples, unbatch(joined), strict=True):
        np.testing.assert_array_equal(flatten_to_single_ndarray(sample), flatten_to_single_ndarray(again))
    with pytest.raises(ValueError, match="empty"):
        batch([])
    assert unbatch({}) == []


def test_arrays_with_a_batch_dimension_are_joined() -> None:
    parts = [BatchedNdArray(np.zeros((2, 3))), BatchedNdArray([[1.0, 2.0, 3.0]])]
    assert batch(parts, individual_items_already_have_batch_dim="auto").shape == (3, 3)
    assert batch([np.zeros((2, 3))] * 2, individual_items_already_have_batch_dim="auto").shape == (2, 2, 3)
    assert batch([np.zeros((2, 3))] * 2, individual_items_already_have_batch_dim=True).shape == (4, 3)


def test_dummies_are_like_values_of_the_space() -> None:
    dummy = get_dummy_batch_for_space(NESTED, 2)
    assert dummy["a"].shape == (2, 2, 2)
    assert dummy["b"].dtype == np.int64
    assert get_dummy_batch_for_space(gym.spaces.Discrete(3), 2, time_size=5, one_hot_discrete=True).shape == (
        2,
        5,
        3,
    )
    random = get_dummy_batch_for_space(NESTED, 2, fill_value="random", time_size=3, time_major=True)
    assert random["a"].shape == (3, 2, 2, 2)
    assert NESTED.contains(unbatch(unbatch(random)[0])[0])


@settings(max_examples=50, deadline=None)
@given(st.floats(-1, 1), st.floats(-5, 4), st.floats(0.1, 5))
def test_scaling_of_actions_and_back(action: float, low: float, width: float) -> None:
    space = gym.spaces.Dict(x=Box(low, low + width, (1,), np.float64), n=gym.spaces.Discrete(2))
    scaled = unsquash_action({"x": np.array([action]), "n": 1}, get_base_struct_from_space(space))
    assert space.contains({"x": scaled["x"], "n": np.int64(1)})
    np.testing.assert_allclose(normalize_action(scaled, space)["x"], action, atol=1e-6)
    assert scaled["n"] == 1


def test_unbounded_boxes_and_boxes_of_integers_are_not_scaled() -> None:
    for space in (Box(-np.inf, np.inf, (1,)), Box(0, 5, (1,), np.int64)):
        assert unsquash_action(np.array([0.5]), space).tolist() == [0.5]


def test_actions_are_clipped_to_boxes() -> None:
    space = gym.spaces.Tuple([Box(-2, 2, (2,)), gym.spaces.Discrete(3)])
    clipped = clip_action((np.array([3.0, -1.0]), 2), space)
    assert clipped[0].tolist() == [2, -1]
    assert clipped[1] == 2


def test_elements_get_the_types_of_samples() -> None:
    converted = convert_element_to_space_type({"a": [1, 2], "b": 1.0}, {"a": np.zeros(2, np.float32), "b": 1})
    assert converted["a"].dtype == np.float32
    assert isinstance(converted["b"], int)


def test_simplex_samples_add_up_to_one() -> None:
    space = Simplex((2, 3))
    assert space.contains(space.sample())
    assert not space.contains(np.ones((2, 3)))
    assert space.contains(space.from_jsonable(space.to_jsonable([space.sample()]))[0])
    assert space == Simplex((2, 3))
    assert space != Simplex((2, 3), concentration=np.array([1, 2, 3]))
    with pytest.raises(ValueError, match="concentration"):
        Simplex((3,), concentration=np.ones(2))


def test_repeated_values_have_at_most_a_length() -> None:
    space = Repeated(gym.spaces.Discrete(2), max_len=3)
    space.seed(1)
    lengths = {len(space.sample()) for _ in range(50)}
    assert lengths == {1, 2, 3}
    assert space.contains(space.sample())
    assert not space.contains([np.int64(0)] * 4)


def test_a_flexible_dict_grows() -> None:
    space = FlexDict(a=gym.spaces.Discrete(2))
    space["b"] = Box(-1, 1, (1,))
    assert set(space.sample()) == {"a", "b"}
    with pytest.raises(ValueError, match="space"):
        space["c"] = 3
    with pytest.raises(ValueError, match="not both"):
        FlexDict({}, a=gym.spaces.Discrete(2))


def test_a_dimension_with_one_value_stays_a_number() -> None:
    space = gym.spaces.Box(np.array([0.0, 3.0], np.float32), np.array([4.0, 3.0], np.float32))
    action = np.array([1.0, 3.0], np.float32)
    scaled = normalize_action(action, space)
    assert scaled.tolist() == [-0.5, -1.0]
    assert unsquash_action(scaled, space).tolist() == [1.0, 3.0]
