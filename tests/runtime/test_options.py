"""What the options of tasks and actors mean; tests/runtime/api/test_options.py shows what they accept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runtime import _option_rules
from runtime._option_rules import ACTOR, TASK
from runtime._options import num_returns, runtime_env_json


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


def test_equal_environments_are_equal_text() -> None:
    first = runtime_env_json({"runtime_env": {"env_vars": {"A": "1"}, "working_dir": "."}})
    second = runtime_env_json({"runtime_env": {"working_dir": ".", "env_vars": {"A": "1"}}})
    assert first == second
    assert json.loads(first)["env_vars"] == {"A": "1"}


@pytest.mark.parametrize("env", [None, {}, ""])
def test_no_environment_is_empty_text(env: Any) -> None:
    assert runtime_env_json({"runtime_env": env}) == ""


def test_every_option_has_a_rule() -> None:
    assert set(_option_rules._RULES) == TASK | ACTOR
