"""What the caller sees when remote code fails."""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from typing import Any

import pytest

from tests.under_test import OWN, exceptions, ray, util

pytestmark = pytest.mark.usefixtures("session")


class CustomError(Exception):
    def __init__(self, code: int, text: str = "custom") -> None:
        super().__init__(code, text)
        self.code = code


class HardToLoadError(Exception):
    def __init__(self, left: int, right: int) -> None:
        super().__init__(f"{left} {right}")


class ComputedArgsError(Exception):
    def __init__(self, code: int) -> None:
        self.code = code

    @property
    def args(self) -> Any:
        return (self.code,)


class LockedError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code
        self.lock = threading.Lock()


class RefusingError(Exception):
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


@ray.remote
def fail(error: BaseException) -> None:
    raise error


@ray.remote
def get(refs: list[Any]) -> Any:
    return ray.get(refs[0])


@ray.remote
def identity(value: Any) -> Any:
    return value


@ray.remote(max_retries=0)
def die(code: int) -> None:
    os._exit(code)


@ray.remote(num_cpus=0)
class Actor:
    def __init__(self, fail: bool = False) -> None:
        if fail:
            raise CustomError(5, "in the constructor")

    def fail(self) -> None:
        raise CustomError(6)

    def die(self) -> None:
        os._exit(3)

    def fine(self) -> str:
        return "fine"


def test_the_users_exception_comes_back() -> None:
    with pytest.raises(CustomError) as caught:
        ray.get(fail.remote(CustomError(4)))
    assert caught.value.code == 4
    assert isinstance(caught.value, exceptions.RayTaskError)
    assert isinstance(caught.value.cause, CustomError)


@pytest.mark.parametrize(
    "error",
    [ValueError("v"), KeyError("k"), ZeroDivisionError(), StopIteration(3), AssertionError("a")],
    ids=repr,
)
def test_builtin_exceptions(error: Exception) -> None:
    with pytest.raises(type(error)):
        ray.get(fail.remote(error))


def test_the_message_shows_where_it_was_raised() -> None:
    with pytest.raises(ValueError) as caught:
        ray.get(fail.remote(ValueError("needle")))
    text = str(caught.value)
    assert "fail()" in text
    assert "pid=" in text
    assert "test_errors.py" in text
    assert "raise error" in text
    assert text.rstrip().endswith("ValueError: needle")


def test_an_error_passes_through_a_nested_get() -> None:
    with pytest.raises(CustomError) as caught:
        ray.get(get.remote([fail.remote(CustomError(7))]))
    assert isinstance(caught.value.cause, CustomError)
    assert "get()" in str(caught.value)
    assert "fail()" in str(caught.value)


def test_an_error_passes_through_an_argument() -> None:
    with pytest.raises(CustomError):
        ray.get(identity.remote(fail.remote(CustomError(8))))


def test_an_error_passes_through_a_chain() -> None:
    ref = fail.remote(CustomError(9))
    for _ in range(5):
        ref = identity.remote(ref)
    with pytest.raises(CustomError):
        ray.get(ref)


def test_a_task_can_catch_the_error_of_another() -> None:
    @ray.remote
    def catch(refs: list[Any]) -> str:
        try:
            ray.get(refs[0])
        except CustomError as error:
            return f"caught {error.code}"
        return "nothing"

    assert ray.get(catch.remote([fail.remote(CustomError(10))])) == "caught 10"


def test_get_of_several_raises_the_failure() -> None:
    with pytest.raises(CustomError):
        ray.get([identity.remote(1), fail.remote(CustomError(1)), identity.remote(2)])


def test_getting_twice_raises_twice() -> None:
    ref = fail.remote(CustomError(1))
    for _ in range(2):
        with pytest.raises(CustomError):
            ray.get(ref)


def test_all_results_of_a_failed_task_raise() -> None:
    for ref in fail.options(num_returns=2).remote(CustomError(1)):
        with pytest.raises(CustomError):
            ray.get(ref)


def test_chained_exceptions_show_both() -> None:
    @ray.remote
    def chained() -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise RuntimeError("outer") from error

    with pytest.raises(RuntimeError) as caught:
        ray.get(chained.remote())
    assert "KeyError: 'inner'" in str(caught.value)
    assert "direct cause" in str(caught.value)


def test_exception_groups() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        ray.get(fail.remote(ExceptionGroup("many", [ValueError(1), KeyError(2)])))
    assert len(caught.value.exceptions) == 2


def test_an_exception_that_cannot_be_pickled_keeps_its_text() -> None:
    @ray.remote
    def unpicklable() -> None:
        error = ValueError("has a frame")
        error.frame = sys._getframe()  # type: ignore[attr-defined]
        raise error

    with pytest.raises(exceptions.RayTaskError) as caught:
        ray.get(unpicklable.remote())
    assert "has a frame" in str(caught.value)


def test_an_exception_that_cannot_be_rebuilt_keeps_its_text() -> None:
    @ray.remote
    def hard() -> None:
        raise HardToLoadError(1, 2)

    with pytest.raises(exceptions.UnserializableException) as caught:
        ray.get(hard.remote())
    assert "1 2" in str(caught.value)


def test_an_exception_whose_args_cannot_be_set_is_caught_by_its_class() -> None:
    for call in (fail, get):
        failed = fail.remote(ComputedArgsError(3))
        with pytest.raises(ComputedArgsError) as caught:
            ray.get(failed if call is fail else get.remote([failed]))
        assert caught.value.code == 3


def test_an_exception_travels_by_its_registered_serializer() -> None:
    @ray.remote(max_calls=1)
    def registered() -> None:
        util.register_serializer(LockedError, serializer=lambda error: error.code, deserializer=LockedError)
        raise LockedError(4)

    with pytest.raises(LockedError) as caught:
        ray.get(registered.remote())
    assert caught.value.code == 4


@pytest.mark.skipif(not OWN, reason="the worker dies there")
def test_an_exception_that_refuses_questions_does_not_end_the_worker() -> None:
    @ray.remote(max_retries=0)
    def refuse() -> None:
        raise RefusingError("x")

    text = ""
    try:
        ray.get(refuse.remote())
    except RefusingError as error:  # pytest.raises would ask it, too
        text = str(error)
    assert "its traceback cannot be shown" in text


def test_a_worker_that_dies() -> None:
    with pytest.raises(exceptions.WorkerCrashedError):
        ray.get(die.remote(1))


def test_sys_exit_ends_the_worker() -> None:
    @ray.remote(max_retries=0)
    def leave() -> None:
        sys.exit(2)

    with pytest.raises(exceptions.WorkerCrashedError):
        ray.get(leave.remote())


def test_work_goes_on_after_a_crash() -> None:
    refs = [die.remote(1) for _ in range(3)]
    fine = [identity.remote(i) for i in range(10)]
    assert ray.get(fine) == list(range(10))
    for ref in refs:
        with pytest.raises(exceptions.WorkerCrashedError):
            ray.get(ref)


def test_a_crashed_task_runs_again(tmp_path: Any) -> None:
    @ray.remote(max_retries=2)
    def third_time() -> int:
        attempt = len(list(tmp_path.iterdir()))
        (tmp_path / str(attempt)).touch()
        if attempt < 2:
            os._exit(1)
        return attempt

    assert ray.get(third_time.remote()) == 2


def test_retries_are_bounded(tmp_path: Any) -> None:
    @ray.remote(max_retries=1)
    def always() -> None:
        (tmp_path / str(len(list(tmp_path.iterdir())))).touch()
        os._exit(1)

    with pytest.raises(exceptions.WorkerCrashedError):
        ray.get(always.remote())
    assert len(list(tmp_path.iterdir())) == 2


def test_an_actor_method_that_fails_names_class_and_method() -> None:
    actor = Actor.remote()
    with pytest.raises(CustomError) as caught:
        ray.get(actor.fail.remote())
    assert "Actor.fail()" in str(caught.value)
    assert "actor_id=" in str(caught.value)


def test_a_constructor_that_fails() -> None:
    actor = Actor.remote(fail=True)
    with pytest.raises(exceptions.ActorDiedError) as caught:
        ray.get(actor.fine.remote())
    assert caught.value.actor_init_failed
    assert "in the constructor" in str(caught.value)
    assert "__init__" in str(caught.value)


def test_an_actor_that_dies() -> None:
    actor = Actor.remote()
    assert ray.get(actor.fine.remote()) == "fine"
    with pytest.raises(exceptions.ActorDiedError) as caught:
        ray.get(actor.die.remote())
    assert not caught.value.actor_init_failed
    assert caught.value.actor_id
    assert caught.value.actor_id in repr(actor)
    with pytest.raises(exceptions.ActorDiedError):
        ray.get(actor.fine.remote())


class Held:
    """What a frame above `ray.get` refers to."""


@pytest.mark.skipif(not OWN, reason="Ray's frames name their errors")
@pytest.mark.parametrize("of_an_actor", [True, False], ids=["actor died", "task raised"])
def test_a_caught_error_keeps_nothing_alive(of_an_actor: bool) -> None:
    ref = Actor.remote(fail=True).fine.remote() if of_an_actor else fail.remote(CustomError(1))
    ray.wait([ref])

    def catch() -> weakref.ref[Held]:
        held = Held()
        try:
            ray.get(ref)
        except (CustomError, exceptions.RayActorError):
            return weakref.ref(held)
        raise AssertionError("it has not failed")

    gc.disable()
    try:
        assert catch()() is None
    finally:
        gc.enable()


def test_calls_behind_a_dying_one_fail_too() -> None:
    actor = Actor.remote()
    refs = [actor.die.remote(), actor.fine.remote(), actor.fine.remote()]
    for ref in refs:
        with pytest.raises(exceptions.RayActorError):
            ray.get(ref, timeout=60)


def test_an_error_can_be_an_ordinary_value() -> None:
    error = ray.get(identity.remote(ValueError("just data")))
    assert isinstance(error, ValueError)
    assert not isinstance(error, exceptions.RayTaskError)
    assert isinstance(ray.get(ray.put(KeyError("data"))), KeyError)


def test_a_call_whose_argument_failed_says_so_and_raises_the_cause() -> None:
    with pytest.raises(KeyError) as caught:
        ray.get(identity.remote(identity.remote(fail.remote(KeyError("first")))))
    assert str(caught.value).count("input arguments for this task could not be computed") == 2
    assert isinstance(caught.value, exceptions.RayTaskError)


def test_get_of_several_raises_as_soon_as_one_has_failed() -> None:
    @ray.remote(num_cpus=0)
    class Gate:
        def __init__(self) -> None:
            self.opened = threading.Event()

        def open(self) -> None:
            self.opened.set()

        def wait(self) -> None:
            self.opened.wait()

    gate = Gate.options(max_concurrency=2).remote()
    waiting = gate.wait.remote()
    with pytest.raises(KeyError):
        ray.get([waiting, identity.remote(1), fail.remote(KeyError("soon"))], timeout=60)
    ray.get(gate.open.remote())
    ray.get(waiting)


def test_what_failed_before_is_raised_in_the_order_of_the_list() -> None:
    refs = [fail.remote(KeyError("first")), fail.remote(ValueError("second"))]
    ray.wait(refs, num_returns=2)
    with pytest.raises(KeyError):
        ray.get(refs)
    with pytest.raises(ValueError):
        ray.get(refs[::-1])
