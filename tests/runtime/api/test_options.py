"""Which options tasks, actors and methods take: a wrong one says so where it is written, before anything runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.under_test import ray

NUMBER = (float, int, type(None))
COUNT = (int, type(None))


def plain() -> int:
    return 1


def items() -> Iterator[int]:
    yield 1


class Class:
    def method(self) -> None:
        pass


def in_task(**options: Any) -> Any:
    return ray.remote(**options)(plain)


def in_task_options(**options: Any) -> Any:
    return ray.remote(plain).options(**options)


def in_actor(**options: Any) -> Any:
    return ray.remote(**options)(Class)


def in_actor_options(**options: Any) -> Any:
    return ray.remote(Class).options(**options)


TASKS = (in_task, in_task_options)
ACTORS = (in_actor, in_actor_options)
BOTH = TASKS + ACTORS
Places = tuple[Callable[..., Any], ...]


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("place", TASKS)
@pytest.mark.parametrize(
    "name", ["num_cpu", "max_restarts", "lifetime", "max_concurrency", "num_return_vals"]
)
def test_a_task_has_no_such_option(place: Callable[..., Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"Invalid option keyword {name} for remote functions") as caught:
        place(**{name: 1})
    assert "num_cpus" in str(caught.value)


@pytest.mark.parametrize("place", ACTORS)
@pytest.mark.parametrize("name", ["max_retries", "num_returns", "retry_exceptions", "nonsense"])
def test_an_actor_has_no_such_option(place: Callable[..., Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"Invalid option keyword {name} for actors"):
        place(**{name: 1})


def test_some_options_of_tasks_belong_to_the_decorator_only() -> None:
    in_task(max_calls=1)
    with pytest.raises(ValueError, match=r"Setting 'max_calls' is not supported in '\.options\(\)'"):
        in_task_options(max_calls=1)


def test_some_options_of_actors_belong_to_the_decorator_only() -> None:
    in_actor(concurrency_groups={"io": 2})
    with pytest.raises(ValueError, match=r"Setting 'concurrency_groups' is not supported in '\.options\(\)'"):
        in_actor_options(concurrency_groups={"io": 2})


# ---------------------------------------------------------------- types


@pytest.mark.parametrize(
    ("name", "value", "types", "places"),
    [
        *[(name, "1", NUMBER, BOTH) for name in ("num_cpus", "num_gpus", "memory")],
        ("resources", [1], (dict, type(None)), BOTH),
        ("runtime_env", 1, (dict, type(None)), BOTH),
        ("name", 1, (str, type(None)), BOTH),
        ("enable_task_events", "x", bool, BOTH),
        ("enable_task_events", None, bool, BOTH),
        ("_labels", "x", (dict, type(None)), BOTH),
        ("num_returns", 1.5, (int, str, type(None)), TASKS),
        ("max_retries", 0.5, COUNT, TASKS),
        ("retry_exceptions", ValueError, (bool, list, tuple), TASKS),
        ("retry_exceptions", None, (bool, list, tuple), TASKS),
        ("max_calls", 0.5, COUNT, TASKS[:1]),
        ("_generator_backpressure_num_objects", "x", COUNT, TASKS),
        *[
            (name, 0.5, COUNT, ACTORS)
            for name in ("max_restarts", "max_task_retries", "max_pending_calls", "max_concurrency")
        ],
        ("lifetime", 1, (str, type(None)), ACTORS),
        ("namespace", 1, (str, type(None)), ACTORS),
        ("get_if_exists", None, bool, ACTORS),
        ("concurrency_groups", 1, (list, dict, type(None)), ACTORS[:1]),
        ("allow_out_of_order_execution", "x", (bool, type(None)), ACTORS),
        ("enable_tensor_transport", "x", (bool, type(None)), ACTORS),
        ("_actor_generator_backpressure_num_objects", "x", COUNT, ACTORS),
    ],
)
def test_the_type(name: str, value: Any, types: Any, places: Places) -> None:
    words = f"The type of keyword '{name}' must be {types}, but received type {type(value)}"
    for place in places:
        with pytest.raises(TypeError, match=re.escape(words)):
            place(**{name: value})


@pytest.mark.parametrize(
    ("value", "name", "places"),
    [
        (None, "num_cpus num_gpus memory resources runtime_env name accelerator_type label_selector", BOTH),
        (None, "fallback_strategy scheduling_strategy object_store_memory", BOTH),
        (None, "num_returns max_retries", TASKS),
        (None, "max_task_retries max_pending_calls max_concurrency lifetime namespace", ACTORS),
        (0, "num_cpus num_gpus memory", BOTH),
        (True, "num_cpus", BOTH),
        (0.5, "num_cpus num_gpus memory", BOTH),
        (-1, "max_retries", TASKS),
        (-1, "max_restarts max_task_retries max_pending_calls", ACTORS),
        (0, "max_concurrency max_pending_calls", ACTORS),
        ({}, "resources runtime_env label_selector", BOTH),
        (True, "allow_out_of_order_execution", ACTORS),
        ("detached", "lifetime", ACTORS),
        ("non_detached", "lifetime", ACTORS),
    ],
)
def test_what_is_accepted(value: Any, name: str, places: Places) -> None:
    for place in places:
        for each in name.split():
            place(**{each: value})


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("name", ["num_cpus", "num_gpus", "memory"])
@pytest.mark.parametrize("place", BOTH)
def test_amounts_are_not_negative(name: str, place: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=f"The quantity of resource {name} cannot be negative"):
        place(**{name: -1})
    with pytest.raises(ValueError, match="The quantity of resource custom cannot be negative"):
        place(resources={"custom": -1})


@pytest.mark.parametrize("place", BOTH)
def test_amounts_are_not_finer_than_a_ten_thousandth(place: Callable[..., Any]) -> None:
    for options in ({"num_cpus": 0.00001}, {"resources": {"num_cpus": 0.00001}}):
        with pytest.raises(
            ValueError, match=r"precision of the fractional quantity of resource num_cpus cannot go"
        ):
            place(**options)


@pytest.mark.parametrize("place", BOTH)
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_amounts_are_finite(place: Callable[..., Any], value: float) -> None:
    with pytest.raises((ValueError, OverflowError)):
        place(num_cpus=value)


@pytest.mark.parametrize("name", ["CPU", "GPU"])
@pytest.mark.parametrize("place", BOTH)
def test_cpus_and_gpus_have_their_own_keywords(name: str, place: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="Use the 'num_cpus' and 'num_gpus' keyword"):
        place(resources={name: 1})


@pytest.mark.parametrize("place", BOTH)
def test_several_gpus_may_be_in_parts_until_the_call(place: Callable[..., Any]) -> None:
    place(num_gpus=1.5)  # what the call says: test_resources


def test_amounts_of_resources_are_numbers() -> None:
    with pytest.raises(TypeError):
        in_task(resources={"custom": "many"})


@pytest.mark.parametrize(
    ("name", "value", "words", "places"),
    [
        ("max_retries", -2, "only accepts None, 0, -1 or a positive integer", TASKS),
        ("max_restarts", -2, "only accepts None, 0, -1 or a positive integer", ACTORS),
        ("max_task_retries", -2, "only accepts None, 0, -1 or a positive integer", ACTORS),
        ("max_pending_calls", -2, "only accepts None, 0, -1 or a positive integer", ACTORS),
        ("max_concurrency", -1, "only accepts None, 0 or a positive integer", ACTORS),
        ("max_calls", -1, "only accepts None, 0 or a positive integer", TASKS[:1]),
        ("num_returns", -1, "only accepts None, a non-negative integer", TASKS),
        ("retry_exceptions", [1], "retry_exceptions must be either a boolean or a list of exceptions", TASKS),
        ("lifetime", "forever", "must be one of 'detached', 'non_detached'", ACTORS),
        ("get_if_exists", True, "name must be specified to use `get_if_exists`", ACTORS),
        ("_generator_backpressure_num_objects", 0, "is not allowed. Use|is not allowed: .* Use", TASKS),
        ("_actor_generator_backpressure_num_objects", 0, "must be > 0", ACTORS),
        ("_num_objects_per_yield", 0, "must be set to a positive integer", TASKS[:1]),
        ("object_store_memory", 5, "Setting 'object_store_memory' is not implemented for tasks", TASKS),
        ("object_store_memory", -1, "'object_store_memory' only accepts", ACTORS),
    ],
)
def test_the_value(name: str, value: Any, words: str, places: Places) -> None:
    for place in places:
        with pytest.raises(ValueError, match=words):
            place(**{name: value})


@pytest.mark.parametrize("value", ["streaming", "dynamic"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_only_generators_stream(value: str) -> None:
    for place in TASKS:
        with pytest.raises(
            ValueError, match=f"num_returns='{value}' can only be used with generator functions"
        ):
            place(num_returns=value)
    ray.remote(num_returns=value)(items)


# ---------------------------------------------------------------- what can be remote


@pytest.mark.parametrize("arguments", [(), (plain, 1), (1,), ("x",)])
def test_remote_takes_one_function_or_class_or_options(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(
        AssertionError, match=r"The @ray\.remote decorator must be applied either with no arguments"
    ):
        ray.remote(*arguments)


def test_options_go_to_the_decorator_and_not_beside_the_function() -> None:
    with pytest.raises(AssertionError, match=r"The @ray\.remote decorator"):
        ray.remote(plain, num_cpus=1)


class Callable_:
    def __call__(self) -> int:
        return 1


@pytest.mark.parametrize("target", [len, print, Class().method, Callable_()])
def test_neither_function_nor_class(target: Any) -> None:
    with pytest.raises(TypeError, match="must be applied to either a function or a class"):
        ray.remote(num_cpus=1)(target)


@pytest.mark.parametrize("target", [plain, Class])
def test_remote_twice(target: Any) -> None:
    with pytest.raises(TypeError, match="must be applied to either a function or a class"):
        ray.remote(ray.remote(target))


def test_async_functions_are_not_tasks() -> None:
    async def asynchronous() -> None:
        pass

    with pytest.raises(ValueError, match="'async def' should not be used for remote tasks"):
        ray.remote(asynchronous)


def test_remote_functions_are_not_called_directly() -> None:
    with pytest.raises(TypeError, match="Remote functions cannot be called directly"):
        ray.remote(plain)()


def test_remote_functions_keep_what_they_are() -> None:
    remote = ray.remote(plain)
    assert remote._function is plain
    assert remote._function_name.endswith(".plain")
