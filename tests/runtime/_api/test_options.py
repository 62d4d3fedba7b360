"""What the options of tasks and actors mean; tests/runtime/api/test_options.py shows what they accept."""

from __future__ import annotations

from typing import Any

import pytest

from runtime._api import option_rules
from runtime._api.option_rules import ACTOR, TASK
from runtime._api.options import num_returns


@pytest.mark.parametrize(
    ("options", "generator", "count"),
    [
        ({}, False, 1),
        ({}, True, -1),
        ({"num_returns": 0}, False, 0),
        ({"num_returns": 3}, True, 3),
        ({"num_returns": "streaming"}, True, -1),
        ({"num_returns": "dynamic"}, True, -2),
    ],
)
def test_how_many_references_a_call_returns(options: dict[str, Any], generator: bool, count: int) -> None:
    assert num_returns(options, generator) == count


def test_every_option_has_a_rule() -> None:
    assert set(option_rules._RULES) == TASK | ACTOR
