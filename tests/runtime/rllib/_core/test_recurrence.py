from __future__ import annotations

import numpy as np
import pytest

from runtime.rllib._core.recurrence import reverse_recurrence
from tests.runtime.rllib._core.making import segments


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_loop_from_the_last_row_to_the_first(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chosen = segments(rng, int(rng.integers(1, 9)), int(rng.integers(1, 70)))
    values = rng.normal(size=int(chosen.lengths.sum()))
    coefficients = rng.uniform(-1, 1, len(values))
    coefficients[chosen.last_rows] = 0
    expected, following = values.copy(), 0.0
    for i in reversed(range(len(values))):
        expected[i] = following = values[i] + coefficients[i] * following
    before = values.copy(), coefficients.copy()
    result = reverse_recurrence(values, coefficients, int(chosen.lengths.max()))
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal((values, coefficients), before)  # the arguments are not changed


def test_no_rows_give_no_rows() -> None:
    assert reverse_recurrence(np.zeros(0), np.zeros(0), 0).shape == (0,)
