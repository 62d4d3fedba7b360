"""The words that programs and people match on. What else a text says is ours: the patterns hold what it must contain.

The same table holds for Ray (`RAY_MODULE=ray`): see `tests/under_test.py`.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import re
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import pytest

from tests.under_test import NAME, exceptions, ray, scheduling_strategies, util

pytestmark = pytest.mark.usefixtures("session")
ROOT = str(pathlib.Path(__file__).parents[3])
In = scheduling_strategies.PlacementGroupSchedulingStrategy
cloudpickle: Any = importlib.import_module(f"{NAME}.cloudpickle")


def nothing() -> None:
    """Does nothing."""


class Calls:
    def ok(self) -> int:
        return os.getpid()

    def fails(self) -> None:
        raise ValueError("from a method")

    def crashes(self) -> None:
        os._exit(1)

    def sleeps(self) -> None:
        time.sleep(600)


def fails() -> None:
    raise ValueError("from a task")


def takes(_value: Any) -> None:
    """Takes an argument."""


# ---------------------------------------------------------------- what goes wrong


def a_large_function() -> None:
    data = bytearray(96 * 2**20)
    ray.remote(lambda: len(data)).remote()


def a_taken_name() -> None:
    first = ray.remote(Calls).options(name="taken").remote()
    ray.get(first.ok.remote())
    ray.remote(Calls).options(name="taken").remote()


def exit_actor_in_a_task() -> None:
    ray.get(ray.remote(lambda: ray.actor.exit_actor()).remote())


def is_canceled_in_a_coroutine() -> None:
    class Asynchronous:
        async def ask(self) -> bool:
            answer: bool = ray.get_runtime_context().is_canceled()
            return answer

    ray.get(ray.remote(Asynchronous).remote().ask.remote())


def in_a_group(bundle: dict[str, float], what: Any, index: int = -1) -> None:
    group = util.placement_group([bundle])
    try:
        what.options(scheduling_strategy=In(group, placement_group_bundle_index=index)).remote()
    finally:
        util.remove_placement_group(group)


def in_a_group_by_the_old_option() -> None:
    group = util.placement_group([{"CPU": 1}])
    try:
        ray.get(ray.remote(nothing).options(placement_group=group).remote())
    finally:
        util.remove_placement_group(group)


def a_task_too_large_for_its_group() -> None:
    def inner() -> None: ...

    in_a_group({"CPU": 1}, ray.remote(num_cpus=2)(inner))


def an_actor_without_room_for_its_constructor() -> None:
    in_a_group({"nothing_of_this": 1}, ray.remote(Calls))


def an_error_of_an_argument() -> None:
    ray.get(ray.remote(takes).remote(ray.remote(fails).remote()))


def an_error_of_a_nested_task() -> None:
    def outer() -> None:
        ray.get(ray.remote(fails).remote())

    ray.get(ray.remote(outer).remote())


def an_error_that_cannot_be_rebuilt() -> None:
    class Two(Exception):
        def __init__(self, _first: int, _second: int) -> None:
            super().__init__("only one")

    def raises() -> None:
        raise Two(1, 2)

    ray.get(ray.remote(raises).remote())


def a_constructor_that_fails() -> None:
    class Broken:
        def __init__(self) -> None:
            raise ValueError("in the constructor")

        def ok(self) -> None: ...

    ray.get(ray.remote(Broken).remote().ok.remote())


def a_constructor_of_a_class_with_a_repr() -> None:
    class Named:
        def __init__(self) -> None:
            self.name = "half made"
            raise ValueError("in the constructor")

        def __repr__(self) -> str:
            return f"<{self.name}>"

    ray.get(ray.remote(Named).remote().__ray_ready__.remote())


def an_error_of_a_function_that_travels() -> None:
    def travels() -> None:
        raise ValueError("far away")

    ray.get(ray.remote(travels).remote())


def a_call_of_a_dead_actor() -> None:
    actor = ray.remote(Calls).remote()
    with pytest.raises(exceptions.ActorDiedError):
        ray.get(actor.crashes.remote())
    ray.get(actor.ok.remote())


def the_wrong_number_of_results() -> None:
    ray.get(ray.remote(num_returns=2)(lambda: (1, 2, 3)).remote())


def a_module_that_workers_lack() -> None:
    module = types.ModuleType("only_in_the_driver")
    exec("def function(): pass", vars(module))
    sys.modules["only_in_the_driver"] = module
    try:
        ray.get(ray.remote(module.function).remote())
    finally:
        del sys.modules["only_in_the_driver"]


def an_actor_of_a_module_that_workers_lack() -> None:
    module = types.ModuleType("only_in_the_driver")
    exec("class OfTheDriver: pass", vars(module))
    sys.modules["only_in_the_driver"] = module
    try:
        ray.get(ray.remote(vars(module)["OfTheDriver"]).remote().__ray_ready__.remote())
    finally:
        del sys.modules["only_in_the_driver"]


def two_calls_where_one_may_wait() -> None:
    actor = ray.remote(max_pending_calls=1)(Calls).remote()
    for _ in range(2):
        actor.sleeps.remote()


def a_subclass_of_an_actor_class() -> None:
    types.new_class("Derived", (ray.remote(Calls),))


def calls_in_order_side_by_side() -> None:
    ray.remote(Calls).options(max_concurrency=2, allow_out_of_order_execution=False).remote()


def a_graph_compiled_twice() -> None:
    with importlib.import_module(f"{NAME}.dag").InputNode() as given:
        node = ray.remote(Echo).remote().echo.bind(given)
    compiled = node.experimental_compile()
    try:
        node.experimental_compile()
    finally:
        compiled.teardown()


class Echo:
    def echo(self, value: Any) -> Any:
        return value


LOCK = threading.Lock()
ERRORS: list[tuple[str, Callable[[], Any], str, str]] = [
    (
        "a large function",
        a_large_function,
        "ValueError",
        r"The remote function .* is too large \(96 MiB > FUNCTION_SIZE_ERROR_THRESHOLD=95 MiB\)",
    ),
    (
        "a taken name",
        a_taken_name,
        "ActorAlreadyExistsError",
        r"The name taken \(namespace=.*\) is already taken.*use a different name",
    ),
    ("exit_actor in a task", exit_actor_in_a_task, "TypeError", "called on a non-actor worker"),
    ("exit_actor in a driver", lambda: ray.actor.exit_actor(), "TypeError", "called on a non-actor worker"),
    (
        "is_canceled in a coroutine",
        is_canceled_in_a_coroutine,
        "RuntimeError",
        "not supported in an async actor",
    ),
    (
        "is_canceled in a driver",
        lambda: ray.get_runtime_context().is_canceled(),
        "RuntimeError",
        "only available when the process is a worker",
    ),
    (
        "a task in a group",
        a_task_too_large_for_its_group,
        "ValueError",
        r"Cannot schedule a_task_too_large_for_its_group\.<locals>\.inner with the placement group "
        r"because the resource request {'CPU': 2} cannot fit into any bundles for the placement group",
    ),
    (
        "a constructor in a group",
        an_actor_without_room_for_its_constructor,
        "ValueError",
        "Cannot schedule Calls with the placement group because the actor requires 1 CPU for "
        "creation.*cannot fit into any bundles",
    ),
    (
        "a bundle's index",
        lambda: in_a_group({"CPU": 1}, ray.remote(nothing), 3),
        "ValueError",
        "placement group bundle index 3 is invalid. Valid placement group indexes: 0-",
    ),
    (
        "bundles",
        lambda: util.placement_group({"CPU": 1}),
        "ValueError",
        "Placement group bundles must be a list, got <class 'dict'>",
    ),
    (
        "no bundle",
        lambda: util.placement_group([]),
        "ValueError",
        "Bundles must be a non-empty list of resource dictionaries",
    ),
    (
        "a group's strategy",
        lambda: util.placement_group([{"CPU": 1}], strategy="X"),
        "ValueError",
        "Invalid placement group strategy X. Supported strategies are",
    ),
    (
        "an error",
        lambda: ray.get(ray.remote(fails).remote()),
        "ValueError",
        r"(?s)^ray::fails\(\) \(pid=\d+, ip=[\d.]+\)\n.*in fails\n.*ValueError: from a task$",
    ),
    (
        "an error of a method",
        lambda: ray.get(ray.remote(Calls).remote().fails.remote()),
        "ValueError",
        r"ray::Calls\.fails\(\) \(pid=\d+, ip=[\d.]+, actor_id=\w+, repr=<\S+Calls object at 0x\w+>\)",
    ),
    (
        "an error of an argument",
        an_error_of_an_argument,
        "ValueError",
        r"(?s)ray::takes\(\) \(pid=\d+, ip=[\d.]+\)\n  At least one of the input arguments for this task "
        r"could not be computed:\n\w+\.exceptions\.RayTaskError: ray::fails\(\)",
    ),
    (
        "an error of a nested task",
        an_error_of_a_nested_task,
        "ValueError",
        r"(?s)ray::outer\(\).*\n\w+\.exceptions\.RayTaskError\(ValueError\): ray::fails\(\) \(pid=\d+, ip=",
    ),
    (
        "an error that cannot be rebuilt",
        an_error_that_cannot_be_rebuilt,
        "UnserializableException",
        r"(?s)Failed to deserialize exception.*Original exception:\n\w+\.exceptions\.RayTaskError: ray::raises\(\)",
    ),
    (
        "a constructor",
        a_constructor_that_fails,
        "ActorDiedError",
        r"because of an error raised in its creation task, ray::Broken\.__init__\(\) \(pid=\d+, ip=",
    ),
    (
        "a constructor of a class with a repr",
        a_constructor_of_a_class_with_a_repr,
        "ActorDiedError",
        r"ray::\S*Named\.__init__\(\) \(pid=\d+, ip=[\d.]+, actor_id=\w+, repr=<half made>\)",
    ),
    (
        "the lines of a function that travels",
        an_error_of_a_function_that_travels,
        "ValueError",
        r'File ".*test_words\.py", line \d+, in travels\n    raise ValueError\("far away"\)',
    ),
    (
        "a dead actor",
        a_call_of_a_dead_actor,
        "ActorDiedError",
        r"(?s)The actor died unexpectedly before finishing this task\.\n\tclass_name: Calls\n.*The actor "
        r"is dead because its worker process has died",
    ),
    (
        "the number of results",
        the_wrong_number_of_results,
        "ValueError",
        "Task returned 3 objects, but num_returns=2",
    ),
    (
        "a missing module",
        a_module_that_workers_lack,
        "RuntimeError",
        "The remote function failed to import on the worker",
    ),
    (
        "a missing module of an actor",
        an_actor_of_a_module_that_workers_lack,
        "ActorDiedError",
        "The actor with name OfTheDriver failed to import on the worker",
    ),
    (
        "pending calls",
        two_calls_where_one_may_wait,
        "PendingCallsLimitExceeded",
        "could not be submitted to .* because more than 1 tasks are queued on the actor.*`max_pending_calls`",
    ),
    (
        "a subclass",
        a_subclass_of_an_actor_class,
        "ActorClassInheritanceException",
        "Inheriting from actor classes is not currently supported",
    ),
    (
        "calls in order",
        calls_in_order_side_by_side,
        "ValueError",
        "If you're using multi-threaded actors.*in order.*allow_out_of_order_execution",
    ),
    (
        "an argument's pickling",
        lambda: ray.remote(takes).remote(LOCK),
        "TypeError",
        r"Could not serialize the argument <unlocked _thread\.lock object at .*> for a task or actor .*takes",
    ),
    (
        "a function's pickling",
        lambda: ray.remote(lambda: _lock_of(LOCK)).remote(),
        "TypeError",
        r"Could not serialize the function .*<lambda>.*(?s:.*)cannot pickle '_thread\.lock' object",
    ),
    (
        "a value's pickling",
        lambda: ray.put(LOCK),
        "TypeError",
        r"Could not serialize the put value <unlocked _thread\.lock object",
    ),
    (
        "dumps_debug",
        lambda: cloudpickle.dumps_debug(LOCK),
        "TypeError",
        r"cloudpickle\.dumps\(<unlocked _thread\.lock object at .*\) failed",
    ),
    (
        "a function called",
        lambda: ray.remote(nothing)(),
        "TypeError",
        "Remote functions cannot be called directly",
    ),
    ("a class called", lambda: ray.remote(Calls)(), "TypeError", "Actors cannot be instantiated directly"),
    (
        "a method called",
        lambda: ray.remote(Calls).remote().ok(),
        "TypeError",
        "Actor methods cannot be called directly",
    ),
    (
        "remote",
        lambda: ray.remote(5),
        "AssertionError",
        "The @ray.remote decorator must be applied either with no arguments and no parentheses",
    ),
    (
        "get_actor",
        lambda: ray.get_actor("nobody"),
        "ValueError",
        "Failed to look up actor with name 'nobody'",
    ),
    (
        "get",
        lambda: ray.get([5]),
        "TypeError",
        "Attempting to call `get` on the value 5, which is not an ray.ObjectRef",
    ),
    (
        "wait",
        lambda: ray.wait(5),
        "TypeError",
        "expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got <class 'int'>",
    ),
    ("put", lambda: ray.put(ray.put(1)), "TypeError", "Calling 'put' on an ray.ObjectRef is not allowed"),
    (
        "kill",
        lambda: ray.kill(5),
        "ValueError",
        r"ray\.kill\(\) only supported for actors. For tasks, try ray\.cancel\(\)",
    ),
    (
        "cancel",
        lambda: ray.cancel(5),
        "TypeError",
        r"ray\.cancel\(\) only supported for object refs. For actors, try ray\.kill\(\)",
    ),
    (
        "a timeout",
        lambda: ray.get(ray.remote(num_cpus=99)(nothing).remote(), timeout=0.1),
        "GetTimeoutError",
        r"Get timed out: some object\(s\) not ready",
    ),
    (
        "init again",
        lambda: ray.init(),
        "RuntimeError",
        r"Maybe you called ray\.init twice by accident\?.*'ignore_reinit_error=True'",
    ),
    (
        "a graph compiled twice",
        a_graph_compiled_twice,
        "ValueError",
        "not allowed to call `experimental_compile` on the same DAG object multiple times",
    ),
]


def _lock_of(lock: Any) -> Any:
    return lock


@pytest.mark.parametrize(
    ("what", "error", "words"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS]
)
def test_errors(what: Callable[[], Any], error: str, words: str) -> None:
    with pytest.raises(Exception) as caught:
        what()
    assert error in [cls.__name__ for cls in type(caught.value).__mro__]
    assert re.search(words, _plain(str(caught.value))), str(caught.value)


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[\d+m", "", text)


WARNINGS: list[tuple[str, Callable[[], Any], str]] = [
    (
        "placement_group",
        in_a_group_by_the_old_option,
        r"placement_group parameter is deprecated\. Use "
        r"scheduling_strategy=PlacementGroupSchedulingStrategy\(\.\.\.\) "
        r"instead, see .*package-ref\.html#ray-remote",
    ),
    (
        "object_store_memory of actors",
        lambda: ray.remote(object_store_memory=80 * 2**20)(Calls),
        "Setting 'object_store_memory' for actors is deprecated.*object-spilling.html",
    ),
    (
        "object_store_memory of bundles",
        lambda: util.remove_placement_group(util.placement_group([{"CPU": 1, "object_store_memory": 1}])),
        "Setting 'object_store_memory' for bundles is deprecated.*object-spilling.html",
    ),
]


@pytest.mark.parametrize(("what", "words"), [row[1:] for row in WARNINGS], ids=[row[0] for row in WARNINGS])
def test_warnings(what: Callable[[], Any], words: str) -> None:
    with pytest.warns(DeprecationWarning, match=words):
        what()
