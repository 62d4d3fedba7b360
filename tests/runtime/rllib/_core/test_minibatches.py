from __future__ import annotations

import numpy as np
import pytest

from runtime.rllib._core.minibatches import minibatch_count, minibatch_rows, rows_of_groups


@pytest.mark.parametrize(
    ("rows", "size", "epochs", "expected"),
    [
        ({"a": 1024}, 256, 10, 40),
        ({"a": 1000}, 256, 2, 8),  # 2000 rows, the last minibatch goes on into a third epoch
        ({"a": 100}, 256, 3, 3),  # a minibatch cannot have more rows than there are
        ({"a": 1024, "b": 10}, 256, 1, 4),
        ({}, 256, 1, 0),
    ],
)
def test_all_rows_of_the_largest_module_are_covered(
    rows: dict[str, int], size: int, epochs: int, expected: int
) -> None:
    assert minibatch_count(rows, size, epochs) == expected


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("rows", "size"), [(12, 4), (10, 4), (3, 4), (7, 1)])
def test_epochs_follow_one_another_without_a_gap(rows: int, size: int, shuffle: bool) -> None:
    count = minibatch_count({"a": rows}, size, 4)
    taken = list(minibatch_rows(rows, size, count, shuffle=shuffle, rng=np.random.default_rng(1)))
    assert {len(each) for each in taken} == {min(size, rows)}
    stream = np.concatenate(taken)
    for epoch in range(4):
        assert sorted(stream[epoch * rows : (epoch + 1) * rows]) == list(range(rows))


def test_only_shuffled_epochs_differ_in_their_order() -> None:
    rng = np.random.default_rng(1)
    in_order = [list(each) for each in minibatch_rows(50, 50, 2, shuffle=False, rng=rng)]
    assert in_order == [list(range(50))] * 2
    first, second = (list(each) for each in minibatch_rows(50, 50, 2, shuffle=True, rng=rng))
    assert first != second


def test_groups_keep_their_rows_together() -> None:
    lengths = np.array([2, 1, 3])
    assert rows_of_groups(np.array([2, 0]), lengths).tolist() == [3, 4, 5, 0, 1]
    assert rows_of_groups(np.array([1]), lengths).tolist() == [2]
