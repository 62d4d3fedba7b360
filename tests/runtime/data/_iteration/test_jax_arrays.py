"""Batches as arrays of JAX."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.data._iteration.jax_arrays import sharder

jax = pytest.importorskip("jax")


def test_arrays_have_their_types_and_are_filled_up() -> None:
    make = sharder(4, {"a": np.float32}, {"a": -1, "b": 0})
    made = make({"a": np.arange(3, dtype=np.int32), "b": np.ones((3, 2), np.float32)})
    assert made["a"].tolist() == [0, 1, 2, -1]
    assert made["a"].dtype == np.float32
    assert made["b"].shape == (4, 2)
    assert sharder(4, None, None)(np.arange(4, dtype=np.int32)).tolist() == [0, 1, 2, 3]


def test_devices_share_rows_equally(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "local_device_count", lambda: 2)
    with pytest.raises(ValueError, match="no multiple"):
        sharder(3, None, None)
    with pytest.raises(ValueError, match="drop_last or paddings"):
        sharder(4, None, None)({"a": np.arange(3, dtype=np.int32)})
