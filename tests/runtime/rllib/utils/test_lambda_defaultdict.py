from __future__ import annotations

import pickle

import pytest

from runtime.rllib.utils.lambda_defaultdict import LambdaDefaultDict


def test_missing_values_are_made_from_their_keys_once() -> None:
    calls = []

    def made(key: int) -> int:
        calls.append(key)
        return key * 2

    numbers = LambdaDefaultDict(made, {1: 7})
    assert numbers[1] == 7
    assert [numbers[3], numbers[3]] == [6, 6]
    assert calls == [3]
    assert numbers.get(5) is None


def test_it_needs_a_function() -> None:
    with pytest.raises(TypeError, match="function of the key"):
        LambdaDefaultDict(None)  # type: ignore[arg-type]


def test_it_can_be_pickled() -> None:
    numbers = LambdaDefaultDict(abs, {1: 7})
    copied = pickle.loads(pickle.dumps(numbers))
    assert copied == {1: 7}
    assert copied[-3] == 3
