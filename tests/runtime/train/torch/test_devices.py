"""torch counts the GPUs that a process sees from 0."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

pytest.importorskip("torch")

from runtime.train.torch._devices import indices


@pytest.mark.parametrize(
    ("own", "shown", "expected"),
    [
        (["2"], ["2", "3"], [0]),
        (["3"], ["2", "3"], [1]),
        (["3", "2"], ["2", "3"], [0, 1]),
        (["2"], None, [2]),
        (["GPU-b"], ["GPU-a", "GPU-b"], [1]),
        ([], ["0"], [0]),
        (["5"], ["0"], [0]),
    ],
)
def test_numbers_of_the_worker_s_gpus(
    own: Sequence[str], shown: Sequence[str] | None, expected: list[int]
) -> None:
    assert indices(own, shown) == expected
