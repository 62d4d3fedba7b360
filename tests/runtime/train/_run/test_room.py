"""How many workers fit where."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.train._run.room import Room

NODES = [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 1.0}, {"CPU": 2.5, "GPU": 2.0}]


@pytest.mark.parametrize(
    ("bundle", "strategy", "most", "expected"),
    [
        ({"CPU": 1}, "PACK", 10, 7),
        ({"CPU": 1}, "PACK", 5, 5),
        ({"CPU": 1, "GPU": 1}, "PACK", 10, 3),
        ({"CPU": 0.5}, "STRICT_PACK", 10, 8),
        ({"CPU": 1}, "STRICT_SPREAD", 10, 3),
        ({"licence": 1}, "SPREAD", 10, 0),
        ({}, "PACK", 4, 4),
    ],
)
def test_so_many_fit(bundle: Any, strategy: str, most: int, expected: int) -> None:
    assert Room(bundle, {}, strategy, most).within([*NODES]) == expected
