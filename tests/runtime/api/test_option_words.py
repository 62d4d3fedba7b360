"""The words of errors of options that programs and people match on. See `test_words`; the table holds for Ray too."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.under_test import ray

pytestmark = pytest.mark.usefixtures("session")


def nothing() -> None:
    pass


class Calls:
    def ok(self) -> int:
        return 1


def task_options(**options: Any) -> Callable[[], Any]:
    return lambda: ray.remote(nothing).options(**options).remote()


def actor_options(**options: Any) -> Callable[[], Any]:
    return lambda: ray.remote(Calls).options(**options).remote()


ERRORS: list[tuple[str, Callable[[], Any], str, str]] = [
    ("max_retries", task_options(max_retries=-2), "ValueError", "where -1 represents infinity"),
    ("max_restarts", actor_options(max_restarts=-2), "ValueError", "where -1 represents infinity"),
    ("max_task_retries", actor_options(max_task_retries=-2), "ValueError", "where -1 represents infinity"),
    ("max_pending_calls", actor_options(max_pending_calls=-2), "ValueError", "where -1 represents infinity"),
    (
        "max_concurrency",
        actor_options(max_concurrency=-1),
        "ValueError",
        "only accepts None, 0 or a positive integer",
    ),
    (
        "num_returns",
        task_options(num_returns=-1),
        "ValueError",
        "'num_returns' only accepts None, a non-negative integer",
    ),
    (
        "num_cpus",
        task_options(num_cpus=-1),
        "ValueError",
        "The quantity of resource num_cpus cannot be negative",
    ),
    ("num_gpus", task_options(num_gpus=1.5), "ValueError", "resource quantities >1 must.*be whole numbers"),
    ("CPU", task_options(resources={"CPU": 1}), "ValueError", "Use the 'num_cpus' and 'num_gpus' keyword"),
    (
        "retry_exceptions",
        task_options(retry_exceptions=[1]),
        "ValueError",
        "must be either a boolean or a list of exceptions",
    ),
    (
        "a wrong type",
        task_options(max_retries="x"),
        "TypeError",
        r"must be \(<class 'int'>, <class 'NoneType'>\), but received type <class 'str'>",
    ),
    (
        "accelerator_type",
        task_options(accelerator_type=5),
        "TypeError",
        r"must be \(<class 'str'>, <class 'NoneType'>\), but received type <class 'int'>",
    ),
    (
        "label_selector",
        task_options(label_selector=5),
        "TypeError",
        r"must be \(<class 'dict'>, <class 'NoneType'>\), but received type <class 'int'>",
    ),
    (
        "a label's value",
        task_options(label_selector={"zone": "in("}),
        "ValueError",
        r"Invalid label selector value `in\(`",
    ),
    (
        "a label's name",
        task_options(label_selector={"a b": "c"}),
        "ValueError",
        "Invalid label key name `a b`",
    ),
    (
        "an unknown option",
        task_options(foo=1),
        "ValueError",
        "Invalid option keyword foo for remote functions. Valid ones are",
    ),
    (
        "an unknown option of actors",
        actor_options(foo=1),
        "ValueError",
        "Invalid option keyword foo for actors. Valid ones are",
    ),
    (
        "lifetime",
        actor_options(lifetime="x"),
        "ValueError",
        "actor `lifetime` argument must be one of 'detached', 'non_detached'",
    ),
    (
        "get_if_exists",
        actor_options(get_if_exists=True),
        "ValueError",
        "The actor name must be specified to use `get_if_exists`",
    ),
    ("an empty name", actor_options(name=""), "ValueError", "Actor name cannot be an empty string"),
    (
        "an empty namespace",
        actor_options(namespace=""),
        "ValueError",
        '"" is not a valid namespace. Pass None',
    ),
    (
        "scheduling_strategy",
        task_options(scheduling_strategy="x"),
        "ValueError",
        "Invalid scheduling_strategy value x",
    ),
    (
        "object_store_memory",
        task_options(object_store_memory=1),
        "ValueError",
        "'object_store_memory' is not implemented for tasks",
    ),
]


@pytest.mark.parametrize(
    ("what", "error", "words"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS]
)
def test_errors(what: Callable[[], Any], error: str, words: str) -> None:
    with pytest.raises(Exception) as caught:
        what()
    assert error in [cls.__name__ for cls in type(caught.value).__mro__]
    assert re.search(words, str(caught.value)), str(caught.value)
