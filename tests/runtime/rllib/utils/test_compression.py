"""Packed values."""

import numpy as np
import pytest

from runtime.rllib.utils import compression


def test_arrays_survive_and_other_values_stay():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    packed = compression.pack_if_needed(array)
    assert compression.is_compressed(packed)
    assert not compression.is_compressed(array)
    np.testing.assert_array_equal(compression.unpack_if_needed(packed), array)
    assert compression.pack_if_needed([1]) == compression.unpack_if_needed([1]) == [1]
    with pytest.raises(ValueError, match="not a compressed value"):
        compression.unpack("text")
