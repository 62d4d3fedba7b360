"""What get, put, wait, kill and cancel say to arguments that they cannot take, and what they accept."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.under_test import OWN, ray

pytestmark = pytest.mark.usefixtures("session")


@ray.remote
def one() -> int:
    return 1


@ray.remote
def two(a: int, b: int = 1, *, c: int = 2) -> int:
    return a + b + c


@ray.remote(num_cpus=0)
class Actor:
    def ping(self) -> int:
        return 1


@pytest.fixture(scope="module")
def ref(session: None) -> Any:
    made = one.remote()
    ray.get(made)
    return made


@pytest.fixture(scope="module")
def actor(session: None) -> Any:
    return Actor.remote()


# ---------------------------------------------------------------- get


@pytest.mark.parametrize("wrong", [None, 1, "x", {}, (), object(), one])
def test_get_takes_a_reference_or_a_list(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"Invalid type of object refs, .*ObjectRef or a list of ObjectRefs"):
        ray.get(wrong)


def test_get_takes_no_other_collection(ref: Any, actor: Any) -> None:
    for wrong in ((ref, ref), {ref}, {ref: 1}, (r for r in [ref]), actor):
        with pytest.raises(ValueError, match="Invalid type of object refs"):
            ray.get(wrong)


def test_get_of_a_list_with_something_else(ref: Any) -> None:
    for wrong in ([1], [ref, 1], [[ref]], [None]):
        with pytest.raises(TypeError, match=r"call `get` on the value .*, which is not an ray\.ObjectRef"):
            ray.get(wrong)


def test_get_of_what_is_there(ref: Any) -> None:
    assert ray.get([]) == []
    assert ray.get([ref, ref]) == [1, 1]
    assert ray.get(ref, timeout=0) == 1
    assert ray.get(ref, timeout=-1) == 1
    assert ray.get([ref], timeout=10**6) == [1]
    with pytest.raises(TypeError):
        ray.get(ref, 1)


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_get_in_time(timeout: float) -> None:
    @ray.remote(num_cpus=0)
    class Waits:
        def __init__(self) -> None:
            self.event = threading.Event()

        def wait(self) -> None:
            self.event.wait()

    waits = Waits.remote()
    waiting = waits.wait.remote()
    for refs in (waiting, [waiting]):
        with pytest.raises(ray.exceptions.GetTimeoutError, match="Get timed out: some object") as caught:
            ray.get(refs, timeout=timeout)
        assert isinstance(caught.value, TimeoutError)
    ray.kill(waits)


# ---------------------------------------------------------------- put


def test_put_of_a_reference(ref: Any) -> None:
    with pytest.raises(TypeError, match=r"Calling 'put' on an ray\.ObjectRef is not allowed"):
        ray.put(ref)
    assert ray.get(ray.get(ray.put([ref]))) == [1]


def test_put_takes_one_value() -> None:
    assert ray.get(ray.put(None)) is None
    with pytest.raises(TypeError):
        ray.put()
    with pytest.raises(TypeError):
        ray.put(1, 2)


@pytest.mark.parametrize("value", [threading.Lock(), (i for i in [1])])
def test_put_of_what_cannot_travel(value: Any) -> None:
    with pytest.raises(TypeError, match=r"erializ|pickle"):
        ray.put(value)


# ---------------------------------------------------------------- wait


def test_wait_takes_a_list(ref: Any, actor: Any) -> None:
    for wrong in (1, None, "x", (ref,), {ref}, {ref: 1}, ref, actor, (r for r in [ref])):
        with pytest.raises(TypeError, match=r"wait\(\) expected a list of ray\.ObjectRef or .*, got"):
            ray.wait(wrong)
    for inside in ([1], [actor], [ref, None]):
        with pytest.raises(TypeError, match="got list containing"):
            ray.wait(inside)


def test_wait_takes_each_once(ref: Any) -> None:
    with pytest.raises(ValueError, match="Wait requires a list of unique"):
        ray.wait([ref, ref])


@pytest.mark.parametrize("num_returns", [0, -1])
def test_wait_for_one_at_least(ref: Any, num_returns: int) -> None:
    with pytest.raises(ValueError, match=f"Invalid number of objects to return {num_returns}"):
        ray.wait([ref], num_returns=num_returns)


def test_wait_for_no_more_than_there_are(ref: Any) -> None:
    with pytest.raises(ValueError, match="num_returns cannot be greater than the number of"):
        ray.wait([ref], num_returns=2)


def test_wait_with_odd_times(ref: Any) -> None:
    with pytest.raises(ValueError, match="'timeout' argument must be nonnegative"):
        ray.wait([ref], timeout=-1)
    with pytest.raises(TypeError):
        ray.wait([ref], timeout="x")
    assert ray.wait([ref], timeout=10**6) == ([ref], [])


def test_wait_for_nothing() -> None:
    assert ray.wait([]) == ([], [])
    assert ray.wait([], num_returns=3) == ([], [])


# ---------------------------------------------------------------- kill, cancel, get_actor


@pytest.mark.parametrize("wrong", [1, None, "name", Actor])
def test_kill_takes_an_actor(wrong: Any) -> None:
    with pytest.raises(
        ValueError, match=r"kill\(\) only supported for actors\. For tasks, try ray\.cancel\(\)"
    ):
        ray.kill(wrong)


def test_kill_takes_no_reference(ref: Any, actor: Any) -> None:
    with pytest.raises(ValueError, match="only supported for actors"):
        ray.kill(ref)
    with pytest.raises(TypeError):
        ray.kill(actor, True)


@pytest.mark.parametrize("wrong", [1, None, "x", one])
def test_cancel_takes_a_reference(wrong: Any) -> None:
    with pytest.raises(
        TypeError, match=r"cancel\(\) only supported for object refs\. For actors, try ray\.kill\(\)"
    ):
        ray.cancel(wrong)


def test_cancel_of_what_there_is_nothing_to_cancel(ref: Any, actor: Any) -> None:
    ray.cancel(ref)
    ray.cancel(ref, force=True)
    ray.cancel(ray.put(1))
    assert ray.get(ref) == 1
    for wrong in (actor, [ref]):
        with pytest.raises(TypeError, match="only supported for object refs"):
            ray.cancel(wrong)


def test_get_actor_takes_names() -> None:
    for empty in ("", None):
        with pytest.raises(ValueError, match="non-empty value" if not OWN else "empty"):
            ray.get_actor(empty)
    with pytest.raises(ValueError, match="namespace"):
        ray.get_actor("x", namespace="")
    with pytest.raises(TypeError, match="namespace"):
        ray.get_actor("x", namespace=1)


def test_names_of_the_arguments(ref: Any, actor: Any) -> None:
    assert ray.get(object_refs=ref) == ray.get(object_refs=[ref])[0] == 1
    assert ray.wait(ray_waitables=[ref], num_returns=1, timeout=None, fetch_local=True) == ([ref], [])
    assert ray.get(ray.put(value=5)) == 5
    ray.cancel(ray_waitable=ref, force=False, recursive=True)
    other = Actor.options(name="named by keyword").remote()
    assert ray.get_actor(name="named by keyword", namespace=None) == other
    ray.kill(actor=other, no_restart=True)


def test_get_through_the_object_store(ref: Any) -> None:
    assert ray.get(ref, _use_object_store=True) == 1


# ---------------------------------------------------------------- calls


def test_wrong_arguments_show_where_the_call_is() -> None:
    for call, words in (
        (lambda: one.remote(1), "too many positional arguments"),
        (lambda: one.remote(x=1), "got an unexpected keyword argument 'x'"),
        (lambda: two.remote(), "missing a required argument: 'a'"),
        (lambda: two.remote(1, 2, 3), "too many positional arguments"),
        (lambda: two.remote(1, a=1), "multiple values for argument 'a'"),
    ):
        with pytest.raises(TypeError, match=words):
            call()


def test_underscore_remote_takes_arguments_and_options_at_once() -> None:
    assert ray.get(two._remote(args=[1], kwargs={"c": 5}, num_cpus=0)) == 7
    first, second = ray.remote(lambda: (1, 2))._remote(num_returns=2)
    assert ray.get([first, second]) == [1, 2]
