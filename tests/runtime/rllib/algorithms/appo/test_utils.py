from __future__ import annotations

import numpy as np

from runtime.rllib.algorithms.appo.utils import CircularBuffer


def test_each_batch_is_given_a_limited_number_of_times() -> None:
    buffer = CircularBuffer(3, 2, np.random.default_rng(1))
    for batch in "abc":
        assert buffer.add(batch) == 0
    assert sorted(buffer.sample() for _ in range(6)) == ["a", "a", "b", "b", "c", "c"]
    assert len(buffer) == 0
    assert buffer.sample() is None


def test_the_oldest_batch_makes_room() -> None:
    buffer = CircularBuffer(2, 3)
    buffer.add("old")
    buffer.add("kept")
    assert buffer.add("new") == 3  # uses that were lost
    assert {buffer.sample() for _ in range(6)} == {"kept", "new"}


def test_as_many_samples_as_uses_never_find_it_empty() -> None:
    buffer = CircularBuffer(4, 2, np.random.default_rng(2))
    for number in range(50):
        buffer.add(number)
        given = [buffer.sample() for _ in range(2)]
        assert None not in given
        assert min(given) > number - 4
    buffer.clear()
    assert buffer.sample() is None
