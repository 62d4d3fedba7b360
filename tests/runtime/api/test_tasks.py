"""Remote functions: arguments, results, options, nesting."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from tests.under_test import exceptions, ray

pytestmark = pytest.mark.usefixtures("session")

OFFSET = 100


@ray.remote
def add(left: int, right: int = 10) -> int:
    return left + right


@ray.remote
def collect(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


@ray.remote
def plus_offset(value: int) -> int:
    return value + OFFSET


@ray.remote
def fib(n: int) -> int:
    if n < 2:
        return n
    return sum(ray.get([fib.remote(n - 1), fib.remote(n - 2)]))


def test_a_call_gives_a_reference() -> None:
    ref = add.remote(1, 2)
    assert isinstance(ref, ray.ObjectRef)
    assert ray.get(ref) == 3


def test_defaults_and_keywords() -> None:
    assert ray.get([add.remote(1), add.remote(1, right=5), add.remote(right=1, left=2)]) == [11, 6, 3]


def test_variable_arguments() -> None:
    assert ray.get(collect.remote(1, "b", c=[3])) == ((1, "b"), {"c": [3]})
    assert ray.get(collect.remote()) == ((), {})


def test_no_result_is_none() -> None:
    @ray.remote
    def nothing() -> None:
        pass

    assert ray.get(nothing.remote()) is None


def test_the_work_happens_in_another_process() -> None:
    @ray.remote
    def pid() -> int:
        return os.getpid()

    assert ray.get(pid.remote()) != os.getpid()


def test_module_globals_are_seen() -> None:
    assert ray.get(plus_offset.remote(1)) == 101


def test_closures_travel() -> None:
    secret = {"value": [1, 2, 3]}

    @ray.remote
    def read() -> list[int]:
        return secret["value"]

    assert ray.get(read.remote()) == [1, 2, 3]


def test_lambdas_and_plain_functions_can_be_made_remote() -> None:
    assert ray.get(ray.remote(lambda x: x * 2).remote(21)) == 42
    assert ray.get(ray.remote(num_cpus=2)(lambda: "two").remote()) == "two"


def test_many_tasks_keep_their_order() -> None:
    refs = [add.remote(i, 0) for i in range(500)]
    assert ray.get(refs) == list(range(500))


def test_references_are_resolved_as_arguments() -> None:
    first = add.remote(1, 1)
    assert ray.get(add.remote(first, right=add.remote(first, first))) == 6


def test_a_chain_of_dependent_tasks() -> None:
    ref = add.remote(0, 1)
    for _ in range(50):
        ref = add.remote(ref, 1)
    assert ray.get(ref) == 51


def test_nested_references_stay_references() -> None:
    args, kwargs = ray.get(collect.remote([add.remote(1, 2)], key={"ref": add.remote(3, 4)}))
    assert ray.get(args[0][0]) == 3
    assert ray.get(kwargs["key"]["ref"]) == 7


def test_a_reference_in_a_list_can_be_got_by_the_task() -> None:
    @ray.remote
    def total(refs: list[Any]) -> int:
        return sum(ray.get(refs))

    assert ray.get(total.remote([add.remote(i, 0) for i in range(10)])) == 45


def test_a_task_can_return_a_reference() -> None:
    @ray.remote
    def indirect() -> Any:
        return add.remote(20, 1), ray.put("put")

    refs = ray.get(indirect.remote())
    assert ray.get(list(refs)) == [21, "put"]


def test_recursion() -> None:
    assert ray.get(fib.remote(7)) == 13


def test_recursion_with_a_default_argument() -> None:
    @ray.remote
    def power(n: int, base: int = 3) -> int:
        return base * ray.get(power.remote(n - 1)) if n else 1

    assert ray.get(power.remote(4)) == 81


def test_nested_tasks_do_not_deadlock_when_every_cpu_waits() -> None:
    @ray.remote
    def leaf(i: int) -> int:
        return i

    @ray.remote
    def inner(i: int) -> int:
        return sum(ray.get([leaf.remote(i), leaf.remote(1)]))

    @ray.remote
    def outer(i: int) -> int:
        return ray.get(inner.remote(i))

    assert ray.get([outer.remote(i) for i in range(12)]) == [i + 1 for i in range(12)]


def test_a_remote_function_can_be_an_argument() -> None:
    @ray.remote
    def call(function: Any, value: int) -> int:
        return ray.get(function.remote(value))

    assert ray.get(call.remote(add, 1)) == 11


def test_several_results() -> None:
    @ray.remote(num_returns=3)
    def three() -> tuple[int, int, int]:
        return 1, 2, 3

    first, second, third = three.remote()
    assert ray.get([first, second, third]) == [1, 2, 3]


def test_several_results_may_come_as_a_list() -> None:
    assert ray.get(collect.options(num_returns=2).remote(1, k=2)) == [(1,), {"k": 2}]


def test_no_results() -> None:
    assert add.options(num_returns=0).remote(1) is None


def test_one_result_that_is_a_tuple() -> None:
    @ray.remote(num_returns=1)
    def pair() -> tuple[int, int]:
        return 1, 2

    assert ray.get(pair.remote()) == (1, 2)


@pytest.mark.parametrize("count", [1, 3])
def test_a_wrong_number_of_results_is_an_error(count: int) -> None:
    @ray.remote(num_returns=2)
    def wrong() -> tuple[int, ...]:
        return tuple(range(count))

    for ref in wrong.remote():
        with pytest.raises(ValueError, match="num_returns=2"):
            ray.get(ref)


def test_options_do_not_change_the_original() -> None:
    two = collect.options(num_returns=2)
    assert len(two.remote()) == 2
    assert isinstance(collect.remote(), ray.ObjectRef)


def test_the_name_option_is_what_the_task_is_called() -> None:
    @ray.remote
    def name() -> str:
        return ray.get_runtime_context().get_task_name()

    assert ray.get(name.options(name="special").remote()) == "special"


def test_large_arguments_and_results() -> None:
    payload = os.urandom(3 * 2**20)

    @ray.remote
    def echo(data: bytes) -> bytes:
        return data

    assert ray.get(echo.remote(payload)) == payload
    assert ray.get(echo.remote(ray.put(payload))) == payload


def test_many_reference_arguments() -> None:
    refs = [ray.put(i) for i in range(300)]
    args, _ = ray.get(collect.remote(*refs))
    assert sum(args) == sum(range(300))


def test_the_same_reference_twice() -> None:
    ref = ray.put(5)
    assert ray.get(add.remote(ref, ref)) == 10


def test_arguments_are_copies() -> None:
    @ray.remote
    def append(items: list[int]) -> list[int]:
        items.append(4)
        return items

    mine = [1, 2, 3]
    assert ray.get(append.remote(mine)) == [1, 2, 3, 4]
    assert mine == [1, 2, 3]


def test_tasks_from_several_threads() -> None:
    results: dict[int, list[int]] = {}

    def work(base: int) -> None:
        results[base] = ray.get([add.remote(base, i) for i in range(20)])

    threads = [threading.Thread(target=work, args=(base,)) for base in (0, 1000, 2000, 3000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {base: [base + i for i in range(20)] for base in (0, 1000, 2000, 3000)}


def test_fractional_cpus_run_side_by_side() -> None:
    refs = [add.options(num_cpus=0.5).remote(i, 0) for i in range(16)]
    assert ray.get(refs) == list(range(16))


def test_zero_cpus() -> None:
    assert ray.get(add.options(num_cpus=0).remote(1)) == 11


def test_retry_exceptions_runs_the_task_again(tmp_path: Any) -> None:
    @ray.remote(max_retries=3, retry_exceptions=True)
    def third_time() -> int:
        attempt = len(list(tmp_path.iterdir()))
        (tmp_path / str(attempt)).touch()
        if attempt < 2:
            raise OSError("not yet")
        return attempt

    assert ray.get(third_time.remote()) == 2


def test_only_listed_exceptions_are_retried(tmp_path: Any) -> None:
    @ray.remote(max_retries=3, retry_exceptions=[KeyError])
    def fail() -> None:
        (tmp_path / str(len(list(tmp_path.iterdir())))).touch()
        raise OSError("no retry")

    with pytest.raises(OSError, match="no retry"):
        ray.get(fail.remote())
    assert len(list(tmp_path.iterdir())) == 1


def test_exceptions_are_not_retried_unless_asked(tmp_path: Any) -> None:
    @ray.remote
    def fail() -> None:
        (tmp_path / str(len(list(tmp_path.iterdir())))).touch()
        raise OSError("once")

    with pytest.raises(OSError, match="once"):
        ray.get(fail.remote())
    assert len(list(tmp_path.iterdir())) == 1


# ---------------------------------------------------------------- misuse


def test_calling_directly_is_refused() -> None:
    with pytest.raises(TypeError, match=r"\.remote\(\)"):
        add(1, 2)


def test_wrong_arguments_are_refused_at_the_call() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'left'"):
        add.remote()
    with pytest.raises(TypeError, match="too many positional arguments"):
        add.remote(1, 2, 3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrong'"):
        add.remote(1, wrong=2)


def test_unknown_options_are_refused_and_the_valid_ones_listed() -> None:
    with pytest.raises(ValueError, match="num_returns"):
        add.options(no_such_option=1)
    with pytest.raises(ValueError, match="no_such_option"):
        ray.remote(no_such_option=1)(lambda: None)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"num_cpus": -1}, ValueError),
        ({"num_cpus": "one"}, TypeError),
        ({"num_returns": -2}, ValueError),
        ({"max_retries": -2}, ValueError),
        ({"max_retries": "x"}, TypeError),
        ({"resources": {"CPU": 1}}, ValueError),
        ({"resources": {"GPU": 1}}, ValueError),
        ({"max_restarts": 1}, ValueError),
    ],
    ids=str,
)
def test_bad_options_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        add.options(**options).remote(1)


def test_coroutine_functions_are_refused() -> None:
    async def work() -> None:
        pass

    with pytest.raises(ValueError, match="async"):
        ray.remote(work).remote()


def test_an_argument_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(TypeError, match="lock"):
        collect.remote(threading.Lock())


def test_a_result_that_cannot_be_pickled_is_the_tasks_error() -> None:
    @ray.remote
    def lock() -> Any:
        return threading.Lock()

    with pytest.raises(exceptions.RayTaskError) as caught:
        ray.get(lock.remote())
    assert isinstance(caught.value, TypeError)
