"""Options of tasks and actors: a wrong one says so before anything runs, a right one means what it says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runtime import _options
from runtime._options import ACTOR, TASK, num_returns, runtime_env_json, validate


def check(**options: Any) -> None:
    validate(options, TASK)


def check_actor(**options: Any) -> None:
    validate(options, ACTOR)


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    "name", ["num_cpu", "cpus", "max_restart", "max_restarts", "lifetime", "max_concurrency"]
)
def test_a_task_has_no_such_option(name: str) -> None:
    with pytest.raises(ValueError, match=f"Tasks have no option '{name}'") as caught:
        check(**{name: 1})
    assert "num_cpus" in str(caught.value)


@pytest.mark.parametrize("name", ["max_retries", "num_returns", "retry_exceptions", "nonsense"])
def test_an_actor_has_no_such_option(name: str) -> None:
    with pytest.raises(ValueError, match=f"Actors have no option '{name}'"):
        check_actor(**{name: 1})


@pytest.mark.parametrize("name", sorted(TASK))
def test_none_is_the_default_of_every_option_of_tasks(name: str) -> None:
    check(**{name: None})


@pytest.mark.parametrize("name", sorted(ACTOR))
def test_none_is_the_default_of_every_option_of_actors(name: str) -> None:
    check_actor(**{name: None})


# ---------------------------------------------------------------- amounts


@pytest.mark.parametrize("name", ["num_cpus", "num_gpus", "memory", "object_store_memory"])
@pytest.mark.parametrize("value", [0, 1, 0.5, 4, 1e9])
def test_amounts(name: str, value: float) -> None:
    check(**{name: value})


@pytest.mark.parametrize("name", ["num_cpus", "num_gpus", "memory", "object_store_memory"])
@pytest.mark.parametrize("value", ["1", [1], True, b"1", {}])
def test_amounts_are_numbers(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=name):
        check(**{name: value})


@pytest.mark.parametrize("name", ["num_cpus", "num_gpus", "memory", "object_store_memory"])
@pytest.mark.parametrize("value", [-1, -0.1, float("-inf")])
def test_amounts_are_not_negative(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        check(**{name: value})


@pytest.mark.parametrize("value", [1.5, 2.25])
def test_several_gpus_are_whole(value: float) -> None:
    with pytest.raises(ValueError, match="GPU resource quantities >1 must be whole numbers"):
        check(num_gpus=value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_amounts_are_finite(value: float) -> None:
    with pytest.raises(ValueError, match="num_cpus"):
        check(num_cpus=value)


@pytest.mark.parametrize("name", ["CPU", "GPU"])
def test_cpus_and_gpus_have_their_own_keywords(name: str) -> None:
    with pytest.raises(ValueError, match=f"num_{name.lower()}s"):
        check(resources={name: 1})


@pytest.mark.parametrize("value", [["custom"], "custom", 3])
def test_resources_are_a_mapping(value: Any) -> None:
    with pytest.raises(TypeError, match="resources"):
        check(resources=value)


def test_custom_resources_are_not_negative() -> None:
    with pytest.raises(ValueError, match="custom"):
        check(resources={"custom": -1})


# ---------------------------------------------------------------- counts and the rest


@pytest.mark.parametrize(
    ("name", "least", "valid"),
    [
        ("max_retries", -1, TASK),
        ("max_calls", 0, TASK),
        ("max_restarts", -1, ACTOR),
        ("max_task_retries", -1, ACTOR),
        ("max_pending_calls", -1, ACTOR),
        ("max_concurrency", 1, ACTOR),
    ],
)
def test_counts(name: str, least: int, valid: frozenset[str]) -> None:
    validate({name: least}, valid)
    validate({name: 7}, valid)
    with pytest.raises(ValueError, match=name):
        validate({name: least - 1}, valid)
    for wrong in (1.5, "1", True):
        with pytest.raises(TypeError, match=name):
            validate({name: wrong}, valid)


@pytest.mark.parametrize("value", [0, 1, 5, "streaming", "dynamic"])
def test_num_returns(value: Any) -> None:
    check(num_returns=value)


@pytest.mark.parametrize("value", [-1, 1.5, "many", [1]])
def test_wrong_num_returns(value: Any) -> None:
    with pytest.raises(ValueError, match="num_returns"):
        check(num_returns=value)


@pytest.mark.parametrize("value", [True, False, [ValueError], (OSError, KeyError), []])
def test_retry_exceptions(value: Any) -> None:
    check(retry_exceptions=value)


@pytest.mark.parametrize("value", ["ValueError", 1, ValueError, [1], ["ValueError"], [BaseException]])
def test_wrong_retry_exceptions(value: Any) -> None:
    with pytest.raises(TypeError, match="retry_exceptions"):
        check(retry_exceptions=value)


@pytest.mark.parametrize("value", [3, b"name", ["name"]])
def test_a_name_is_text(value: Any) -> None:
    with pytest.raises(TypeError, match="name"):
        check(name=value)


@pytest.mark.parametrize("value", ["detached", "non_detached"])
def test_lifetimes(value: str) -> None:
    check_actor(lifetime=value)


@pytest.mark.parametrize("value", ["forever", 1, ""])
def test_wrong_lifetimes(value: Any) -> None:
    with pytest.raises(ValueError, match="lifetime"):
        check_actor(lifetime=value)


@pytest.mark.parametrize("value", [1, ["pip"]])
def test_a_runtime_env_is_a_mapping(value: Any) -> None:
    with pytest.raises(TypeError, match="runtime_env"):
        check(runtime_env=value)


@pytest.mark.parametrize(("name", "valid"), [("max_calls", TASK), ("concurrency_groups", ACTOR)])
def test_some_belong_to_the_decorator_only(name: str, valid: frozenset[str]) -> None:
    value = {"io": 2} if name == "concurrency_groups" else 1
    validate({name: value}, valid)
    with pytest.raises(ValueError, match=rf"{name} is fixed .* not in \.options"):
        validate({name: value}, valid, in_options=True)


# ---------------------------------------------------------------- what they mean


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


def test_tasks_and_actors_share_the_common_options() -> None:
    assert set(_options._COMMON) <= TASK & ACTOR
