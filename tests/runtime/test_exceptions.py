"""The public errors: fields, messages, pickling; the class that is both RayTaskError and the cause."""

from __future__ import annotations

import inspect
import pickle
import threading
from typing import Any

import pytest

from runtime import exceptions as exc
from runtime._core.ids import TaskID
from runtime.util import deregister_serializer, register_serializer

TASK = TaskID(b"t" * 24)


class OddError(Exception):
    """Its constructor wants more than its `args` hold."""

    def __init__(self, left: int, right: int) -> None:
        super().__init__(f"{left}-{right}")
        self.left = left
        self.right = right

    def total(self) -> int:
        return self.left + self.right


class SlottedError(Exception):
    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class FinalError(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("this class is final")


class Frozen(Exception):
    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("frozen")


class Meta(type):
    pass


class MetaError(Exception, metaclass=Meta):
    pass


class UnpicklableError(Exception):
    def __init__(self) -> None:
        super().__init__("has a generator")
        self.generator = (number for number in ())


class ComputedArgs(Exception):
    """Its `args` cannot be set."""

    def __init__(self, left: int, right: int) -> None:
        self.left = left
        self.right = right

    @property
    def args(self) -> Any:
        return self.left, self.right


class TakenNames(Exception):
    """Has properties with the names of what a task error holds."""

    @property
    def cause(self) -> str:
        return "mine"

    @property
    def traceback_str(self) -> str:
        return "mine"

    @property
    def __dict__(self) -> Any:
        return {}


class Refusing(Exception):
    """Raises when it is asked for what it does not have."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class Locked(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value
        self.lock = threading.Lock()


def task_error(cause: BaseException | None, **fields: Any) -> exc.RayTaskError:
    return exc.RayTaskError("module.work", "ray::work()\nValueError: x", cause, **fields)


def reload(error: BaseException) -> Any:
    return pickle.loads(pickle.dumps(error))


EXAMPLES: list[exc.RayError] = [
    exc.RayError("text"),
    exc.CrossLanguageError("java says no"),
    exc.TaskCancelledError(),
    exc.TaskCancelledError(TASK),
    exc.TaskCancelledError(TASK, "because"),
    exc.TaskCancelledError(error_message="because"),
    exc.LocalRayletDiedError(),
    exc.WorkerCrashedError(),
    exc.WorkerCrashedError("exit code 3"),
    exc.NodeDiedError("node n died"),
    exc.RpcError("no answer"),
    exc.RpcError("no answer", 14),
    exc.AuthenticationError("wrong secret"),
    exc.UserCodeException("udf"),
    exc.RayActorError(),
    exc.RayActorError("ab", "text", actor_init_failed=True, preempted=True),
    exc.ActorDiedError(),
    exc.ActorDiedError("killed"),
    exc.ActorDiedError(exc.ActorDeath("killed", actor_id="ab", class_name="C", pid=3, preempted=True)),
    exc.ActorUnavailableError("restarting", b"\x01" * 16),
    exc.ActorUnavailableError("restarting", None),
    exc.RaySystemError("boo"),
    exc.RaySystemError("boo", "tb"),
    exc.RayChannelError("boo"),
    exc.RayChannelTimeoutError("boo"),
    exc.RayCgraphCapacityExceeded("boo"),
    exc.RayDirectTransportError("boo"),
    exc.StreamingGeneratorReplayInconsistentError("boo"),
    exc.ObjectStoreFullError("5 bytes"),
    exc.OutOfDiskError("5 bytes"),
    exc.OutOfMemoryError("killed"),
    exc.ObjectLostError("ab", None, ""),
    exc.ObjectLostError("ab", b"address", "file.py:3"),
    exc.ObjectFetchTimedOutError("ab", None, ""),
    exc.ReferenceCountingAssertionError("ab", None, ""),
    exc.ObjectFreedError("ab", None, ""),
    exc.OwnerDiedError("ab", b"address", ""),
    exc.ObjectReconstructionFailedError("ab"),
    exc.ObjectReconstructionFailedError(
        "ab", "OBJECT_UNRECONSTRUCTABLE_PUT", owner_address=b"a", call_site="f:1"
    ),
    exc.GetTimeoutError("late"),
    exc.PlasmaObjectNotAvailable("no"),
    exc.AsyncioActorExit(),
    exc.RuntimeEnvSetupError(),
    exc.RuntimeEnvSetupError("pip failed"),
    exc.TaskPlacementGroupRemoved(),
    exc.ActorPlacementGroupRemoved(),
    exc.PendingCallsLimitExceeded("100 calls"),
    exc.TaskUnschedulableError("no node"),
    exc.ActorUnschedulableError("no node"),
    exc.ObjectRefStreamEndOfStreamError(),
    exc.OufOfBandObjectRefSerializationException("no"),
    exc.UnserializableException("tb"),
    exc.ActorAlreadyExistsError("taken"),
    exc.ActorHandleNotFoundError("gone"),
]


def example_id(error: exc.RayError) -> str:
    return f"{type(error).__name__}{error.args}"


@pytest.mark.parametrize("error", EXAMPLES, ids=example_id)
def test_every_error_survives_pickling(error: exc.RayError) -> None:
    copy = reload(error)
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_every_public_class_has_an_example_and_is_drawn() -> None:
    public = {
        value
        for name, value in vars(exc).items()
        if inspect.isclass(value) and issubclass(value, exc.RayError) and not name.startswith("_")
    }
    assert public - {type(error) for error in EXAMPLES} == {exc.RayTaskError}
    assert exc.__doc__ is not None
    missing = [cls.__name__ for cls in public if cls.__name__ not in exc.__doc__]
    assert not missing


@pytest.mark.parametrize(
    ("child", "parents"),
    [
        (exc.ActorDiedError, (exc.RayActorError,)),
        (exc.ActorUnavailableError, (exc.RayActorError,)),
        (exc.GetTimeoutError, (TimeoutError,)),
        (exc.RayChannelTimeoutError, (exc.RayChannelError, exc.RaySystemError, TimeoutError)),
        (exc.ReferenceCountingAssertionError, (exc.ObjectLostError, AssertionError)),
        (exc.OwnerDiedError, (exc.ObjectLostError,)),
        (exc.ObjectFreedError, (exc.ObjectLostError,)),
        (exc.ObjectFetchTimedOutError, (exc.ObjectLostError,)),
        (exc.ObjectReconstructionFailedError, (exc.ObjectLostError,)),
        (exc.ActorAlreadyExistsError, (ValueError,)),
        (exc.ActorHandleNotFoundError, (ValueError,)),
        (exc.StreamingGeneratorReplayInconsistentError, (exc.RaySystemError,)),
    ],
)
def test_the_tree(child: type[BaseException], parents: tuple[type[BaseException], ...]) -> None:
    assert issubclass(child, (exc.RayError,))
    for parent in parents:
        assert issubclass(child, parent)


# ---------------------------------------------------------------- the dual class


def test_the_dual_is_both() -> None:
    error = task_error(ValueError("x")).as_instanceof_cause()
    assert isinstance(error, exc.RayTaskError)
    assert isinstance(error, ValueError)
    assert type(error).__name__ == "RayTaskError(ValueError)"
    assert type(error).__module__ == "runtime.exceptions"
    assert isinstance(error.cause, ValueError)
    assert error.args == (error.cause,)
    assert repr(error) == "RayTaskError(ValueError)(ValueError('x'))"


def test_the_dual_shows_the_remote_traceback_even_if_the_cause_has_its_own_str() -> None:
    assert str(task_error(KeyError("k")).as_instanceof_cause()) == "ray::work()\nValueError: x"


def test_the_dual_knows_where_it_happened() -> None:
    plain = task_error(ValueError("x"), proctitle="title", pid=5, ip="1.2.3.4", actor_repr="<A>")
    error = plain.as_instanceof_cause()
    assert error.function_name == "module.work"
    assert (error.proctitle, error.pid, error.ip, error.actor_repr) == ("title", 5, "1.2.3.4", "<A>")


def test_the_dual_can_be_caught_as_the_cause() -> None:
    with pytest.raises(OddError) as caught:
        raise task_error(OddError(1, 2)).as_instanceof_cause()
    assert caught.value.left == 1
    assert caught.value.total() == 3


@pytest.mark.parametrize(
    "cause",
    [ValueError("x"), KeyError("k"), SlottedError(7), OSError(2, "no", "f")],
    ids=repr,
)
def test_the_dual_survives_pickling_when_the_cause_does(cause: Exception) -> None:
    error = task_error(cause, pid=9).as_instanceof_cause()
    copy = reload(error)
    assert str(copy) == str(error)
    assert type(copy) is type(error)
    assert copy.pid == 9


def test_os_errors_keep_their_numbers() -> None:
    error: Any = task_error(FileNotFoundError(2, "no such file", "name")).as_instanceof_cause()
    assert (error.errno, error.strerror, error.filename) == (2, "no such file", "name")


def test_slots_are_copied() -> None:
    error: Any = task_error(SlottedError(7)).as_instanceof_cause()
    assert error.code == 7


def test_unicode_errors_keep_their_position() -> None:
    cause = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")
    error: Any = task_error(cause).as_instanceof_cause()
    assert (error.encoding, error.object, error.start, error.end) == ("utf-8", b"\xff", 0, 1)


def test_a_frozen_cause_works() -> None:
    assert isinstance(task_error(Frozen("x")).as_instanceof_cause(), Frozen)


def test_a_cause_whose_args_cannot_be_set_works() -> None:
    error: Any = reload(task_error(ComputedArgs(1, 2))).as_instanceof_cause()
    assert isinstance(error, ComputedArgs)
    assert (error.left, error.right) == (1, 2)
    assert error.args == (error.cause,)
    assert isinstance(reload(error), ComputedArgs)


def test_a_cause_whose_properties_have_our_names_works() -> None:
    error: Any = task_error(TakenNames("x")).as_instanceof_cause()
    assert isinstance(error, TakenNames)
    assert error.cause == "mine"
    assert str(error) == "ray::work()\nValueError: x"
    outer = exc.RayTaskError("outer", "tb", error).as_instanceof_cause()
    assert isinstance(outer, TakenNames)
    assert isinstance(reload(outer), TakenNames)


def test_a_cause_that_refuses_questions_is_named() -> None:
    error = exc.RayTaskError.from_exception(Refusing("x"), "work").as_instanceof_cause()
    assert isinstance(error, Refusing)
    assert "Refusing (its traceback cannot be shown: RuntimeError: no __notes__)" in str(error)


def test_a_cause_with_a_registered_serializer() -> None:
    register_serializer(Locked, serializer=lambda error: error.value, deserializer=Locked)
    try:
        for error in (task_error(Locked(3)), task_error(ExceptionGroup("many", [Locked(3)]))):
            copy = reload(error)
            cause = copy.cause.exceptions[0] if isinstance(copy.cause, ExceptionGroup) else copy.cause
            assert (type(cause), cause.value) == (Locked, 3)
        assert isinstance(reload(task_error(Locked(3)).as_instanceof_cause()), Locked)
    finally:
        deregister_serializer(Locked)
    assert "isn't serializable" in str(reload(task_error(Locked(3))).cause)


def test_a_cause_with_a_metaclass_works() -> None:
    assert isinstance(task_error(MetaError("x")).as_instanceof_cause(), MetaError)


def test_a_final_class_gives_the_plain_error(caplog: pytest.LogCaptureFixture) -> None:
    plain = task_error(FinalError("x"))
    assert plain.as_instanceof_cause() is plain
    assert isinstance(plain.cause, FinalError)
    assert "FinalError" in caplog.text


@pytest.mark.parametrize("cause", [None, Exception("x"), exc.RayError("x")], ids=repr)
def test_a_base_class_as_cause_gives_the_plain_error(cause: BaseException | None) -> None:
    plain = task_error(cause)
    assert plain.as_instanceof_cause() is plain


@pytest.mark.parametrize("cause", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_causes_that_are_no_plain_exceptions(cause: BaseException) -> None:
    error = task_error(cause).as_instanceof_cause()
    assert isinstance(error, type(cause))
    assert isinstance(error, Exception)


def test_an_engine_error_as_cause() -> None:
    error = task_error(exc.ActorDiedError("gone")).as_instanceof_cause()
    assert isinstance(error, exc.ActorDiedError)
    assert isinstance(error, exc.RayTaskError)


def test_exception_groups_can_be_split() -> None:
    group = ExceptionGroup("many", [ValueError("a"), KeyError("b")])
    error = task_error(group).as_instanceof_cause()
    assert isinstance(error, ExceptionGroup)
    assert error.message == "many"
    assert [type(inner) for inner in error.exceptions] == [ValueError, KeyError]
    matched, rest = error.split(ValueError)
    assert matched is not None
    assert rest is not None
    assert isinstance(reload(error), ExceptionGroup)


def test_a_dual_of_a_dual_is_itself() -> None:
    error = task_error(ValueError("x")).as_instanceof_cause()
    assert error.as_instanceof_cause() is error


def test_a_nested_task_error_is_unwrapped() -> None:
    inner = task_error(ValueError("deep")).as_instanceof_cause()
    outer = exc.RayTaskError("outer", "tb", inner).as_instanceof_cause()
    assert isinstance(outer, ValueError)
    assert repr(outer.cause) == "ValueError('deep')"


# ---------------------------------------------------------------- causes that do not travel


def test_a_cause_that_cannot_be_pickled_becomes_text() -> None:
    copy = reload(task_error(UnpicklableError()))
    assert type(copy) is exc.RayTaskError
    assert type(copy.cause) is exc.RayError
    assert "UnpicklableError isn't serializable" in str(copy.cause)
    assert str(copy) == "ray::work()\nValueError: x"


def test_a_cause_that_cannot_be_unpickled_is_named() -> None:
    plain = task_error(OddError(1, 2))
    for error in (plain, plain.as_instanceof_cause()):
        copy = reload(error)
        assert type(copy) is exc.UnserializableException
        assert "Failed to deserialize exception" in str(copy)
        assert "__reduce__" in str(copy)
        assert "ray::work()" in str(copy)


def test_the_error_of_an_argument_is_told_with_the_call_that_could_not_run() -> None:
    error = exc.RayTaskError.from_argument(task_error(ValueError(1)), "after", 7, "10.0.0.1")
    assert isinstance(error.as_instanceof_cause(), ValueError)
    assert str(error).startswith("ray::after() (pid=7, ip=10.0.0.1)\n")
    assert "input arguments for this task could not be computed" in str(error)
    assert "ray::work()" in str(error)


def test_an_argument_that_holds_an_error_of_the_system() -> None:
    error = exc.RayTaskError.from_argument(exc.WorkerCrashedError(), "after").as_instanceof_cause()
    assert isinstance(error, exc.WorkerCrashedError)
    assert isinstance(error, exc.RayTaskError)
    assert "died unexpectedly" in str(error)


# ---------------------------------------------------------------- tracebacks


def caught(raiser: Any) -> BaseException:
    try:
        raiser()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def divide() -> float:
    return 1 / 0


def chained() -> None:
    try:
        divide()
    except ZeroDivisionError as error:
        raise RuntimeError("outer") from error


def test_from_exception_shows_call_process_and_user_frames() -> None:
    error = exc.RayTaskError.from_exception(caught(divide), "divide", pid=5, ip="1.2.3.4")
    text = str(error)
    assert text.startswith("ray::divide() (pid=5, ip=1.2.3.4)\n")
    assert "return 1 / 0" in text
    assert text.endswith("ZeroDivisionError: division by zero")
    assert isinstance(error.cause, ZeroDivisionError)


def test_from_exception_shows_the_actor() -> None:
    error = exc.RayTaskError.from_exception(
        caught(divide), "A.divide", pid=5, ip="1.2.3.4", actor_repr="<A>", actor_id="ab"
    )
    assert "actor_id=ab" in str(error)
    assert "repr=<A>" in str(error)


def test_from_exception_shows_what_an_error_was_raised_from() -> None:
    text = str(exc.RayTaskError.from_exception(caught(chained), "chained"))
    assert "ZeroDivisionError" in text
    assert "direct cause" in text
    assert text.endswith("RuntimeError: outer")


def test_frames_of_the_engine_are_left_out() -> None:
    error = caught(lambda: TaskID(b"too short"))
    text = exc.RayTaskError.from_exception(error, "work").traceback_str
    assert "_core/ids.py" not in text
    assert "lambda: TaskID" in text


def test_an_error_of_a_nested_get_shows_every_hop() -> None:
    def outer() -> None:
        raise exc.RayTaskError.from_exception(caught(divide), "divide").as_instanceof_cause()

    error = exc.RayTaskError.from_exception(caught(outer), "outer")
    assert isinstance(error.cause, ZeroDivisionError)
    assert "ray::outer()" in str(error)
    assert "ray::divide()" in str(error)


# ---------------------------------------------------------------- actors


def test_an_actor_whose_constructor_raised() -> None:
    cause = exc.RayTaskError("C.__init__", "ray::C.__init__()\nKeyError: 'k'", KeyError("k"), actor_id="ab")
    error = exc.ActorDiedError(cause)
    assert error.actor_init_failed
    assert error.actor_id == "ab"
    assert "KeyError: 'k'" in str(error)
    copy = reload(error)
    assert copy.actor_init_failed
    assert str(copy) == str(error)
    assert str(exc.ActorDiedError.from_task_error(cause)) == str(error)


def test_the_death_of_an_actor_is_described() -> None:
    death = exc.ActorDeath(
        "It was killed.", actor_id="ab", class_name="C", name="n", namespace="s", pid=7, ip="h"
    )
    text = str(exc.ActorDiedError(death))
    for fact in (
        "class_name: C",
        "actor_id: ab",
        "pid: 7",
        "name: n",
        "namespace: s",
        "ip: h",
        "It was killed.",
    ):
        assert fact in text


def test_an_actor_that_never_started_says_so() -> None:
    assert "The actor never ran" in str(exc.ActorDiedError(exc.ActorDeath("No node.", never_started=True)))


def test_an_unavailable_actor_is_named_in_hex() -> None:
    error = exc.ActorUnavailableError("it restarts", b"\xab" * 16)
    assert error.actor_id == "ab" * 16
    assert "it restarts" in str(error)
    assert "max_task_retries" in str(error)


# ---------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (exc.TaskCancelledError(TASK), [TASK.hex(), "cancelled"]),
        (exc.ObjectLostError("abcd", None, "f.py:3"), ["abcd", "f.py:3"]),
        (exc.OwnerDiedError("abcd", None, ""), ["abcd", "owner has exited"]),
        (exc.ObjectReconstructionFailedError("abcd", reason_message="words"), ["abcd", "words", "UNKNOWN"]),
        (
            exc.ObjectReconstructionFailedError("a", "OBJECT_UNRECONSTRUCTABLE_PUT"),
            ["`put`", "UNRECONSTRUCTABLE_PUT"],
        ),
        (exc.RaySystemError("boo", "tb"), ["boo", "tb"]),
        (exc.RuntimeEnvSetupError("pip"), ["environment", "pip"]),
        (exc.ObjectStoreFullError("wants 5 GiB"), ["wants 5 GiB", "object_store_memory"]),
        (exc.OutOfDiskError("wants 5 GiB"), ["wants 5 GiB", "df"]),
        (exc.WorkerCrashedError("exit code 3"), ["exit code 3", "max_retries"]),
        (exc.TaskUnschedulableError("no node"), ["task", "no node"]),
        (exc.ActorUnschedulableError("no node"), ["actor", "no node"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_messages_say_what_and_what_to_do(error: exc.RayError, parts: list[str]) -> None:
    for part in parts:
        assert part in str(error)


@pytest.mark.parametrize("subclassed", [False, True])
@pytest.mark.parametrize(
    "builtin", [MemoryError, OSError, KeyError, ImportError, StopIteration, RecursionError]
)
def test_builtin_errors_are_caught_as_what_they_are(builtin: Any, subclassed: bool) -> None:
    cause = type("Own", (builtin,), {})("m") if subclassed else builtin("m")
    error = task_error(cause).as_instanceof_cause()
    assert isinstance(error, builtin)
    assert isinstance(error, exc.RayTaskError)
