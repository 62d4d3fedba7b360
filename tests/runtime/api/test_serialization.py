"""What travels between processes, as what it arrives, and what is refused in which words."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import enum
import gc
import pathlib
import sys
import threading
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.under_test import NAME, OWN, exceptions, ray, util

pytestmark = pytest.mark.usefixtures("session")


@ray.remote
def echo(value: Any) -> Any:
    return value


def trip(value: Any) -> Any:
    """The value after it went to a worker and back."""
    return ray.get(echo.remote(value))


LARGE = 300_000
ARRAYS = {
    "large": np.arange(LARGE),
    "no dimension": np.array(5),
    "empty": np.empty((0, 3)),
    "structured": np.zeros(3, dtype=[("a", "i4"), ("b", "U5")]),
    "objects": np.array([1, "a", None], dtype=object),
    "fortran": np.asfortranarray(np.ones((300, 400))),
    "strided": np.arange(LARGE)[::3],
    "dates": np.array(["2020-01-01"], dtype="M8[D]"),
    "text": np.array(["a", "bb"]),
    "bytes": np.array([b"x"]),
    "bool": np.array([True, False]),
    "complex": np.ones(3, dtype=complex),
    "half": np.ones(3, dtype="f2"),
    "big endian": np.arange(3, dtype=">i4"),
    "variable text": np.array(["abc" * 50], dtype=np.dtypes.StringDType()),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_numpy_arrays(kind: str) -> None:
    array = ARRAYS[kind]
    for result in (trip(array), ray.get(ray.put(array)), trip({"a": [array]})["a"][0]):
        assert result.dtype == array.dtype
        assert result.shape == array.shape
        assert np.array_equal(result, array)
    if kind == "fortran":
        assert result.flags.f_contiguous


@pytest.mark.parametrize("size", [10, LARGE])
def test_arrays_are_read_only(size: int) -> None:
    for result in (trip(np.arange(size)), ray.get(ray.put({"a": np.arange(size)}))["a"]):
        assert not result.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            result[0] = 5
        writable = result.copy()
        writable[0] = 5


def test_a_view_outlives_its_reference() -> None:
    view = ray.get(ray.put(np.full(LARGE, 7)))[10:20]
    for i in range(5):
        ray.put(np.full(LARGE, i))
    assert view.sum() == 70


def test_numpy_scalars_and_subclasses() -> None:
    for value in (np.int64(5), np.float32(2), np.bool_(True), np.datetime64("2020-01-01")):
        result = trip(value)
        assert result == value
        assert type(result) is type(value)
    masked = trip(np.ma.array([1, 2], mask=[False, True]))
    assert masked.sum() == 1
    assert type(trip(np.rec.array([(1, 2)], dtype=[("x", "i4"), ("y", "i4")]))) is np.recarray


def test_large_bytes() -> None:
    assert trip(b"x" * LARGE) == b"x" * LARGE
    assert trip(bytearray(b"x" * LARGE)) == b"x" * LARGE
    assert bytes(trip(memoryview(b"x" * LARGE))) == b"x" * LARGE


def test_pandas() -> None:
    frame = pd.DataFrame(
        {
            "number": np.arange(float(LARGE)),
            "text": ["a", "b", None] * (LARGE // 3),
            "kind": pd.Categorical(["x", "y", "x"] * (LARGE // 3)),
            "time": pd.date_range("2020", periods=LARGE, freq="s", tz="UTC"),
            "arrow": pd.array([1, None, 3] * (LARGE // 3), dtype="int64[pyarrow]"),
        }
    )
    result = trip(frame)
    pd.testing.assert_frame_equal(result, frame)
    pd.testing.assert_frame_equal(trip(frame.iloc[5:10]), frame.iloc[5:10])
    pd.testing.assert_series_equal(ray.get(ray.put(frame["number"])), frame["number"])
    with pytest.raises(ValueError, match="read-only"):
        result.loc[0, "number"] = 7.0


def test_arrow() -> None:
    table = pa.table({"a": np.arange(LARGE), "b": [str(i) for i in range(LARGE)]})
    assert trip(table).equals(table)
    part = table.slice(LARGE // 2, 10)
    assert ray.get(ray.put(part)).equals(part)
    assert trip([part.to_batches()[0]])[0].equals(part.to_batches()[0])


@dataclasses.dataclass
class Point:
    x: int
    tags: list[str]


class Color(enum.Enum):
    RED = 1


class Flag(enum.IntFlag):
    A = 1
    B = 2


Pair = collections.namedtuple("Pair", "a b")


class Reduced:
    def __init__(self, value: int) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        return Reduced, (self.value + 1,)


class Stateful:
    def __init__(self) -> None:
        self.kept, self.lock = 1, threading.Lock()

    def __getstate__(self) -> Any:
        return {"kept": self.kept}

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state, lock=threading.Lock())


def test_classes_of_all_kinds() -> None:
    assert trip(Point(1, ["a"])) == Point(1, ["a"])
    assert trip(Color.RED) is Color.RED
    assert trip(Flag.A | Flag.B) == Flag.A | Flag.B
    assert trip(Pair(1, b=2)) == Pair(1, 2)
    assert trip(Reduced(1)).value == 3  # once each way
    assert trip(Stateful()).kept == 1
    assert trip(Point)(3, []).x == 3
    assert trip(int) is int
    assert trip(type(None)) is type(None)
    assert trip(np) is np


def test_local_classes_travel_by_value() -> None:
    @dataclasses.dataclass
    class Local:
        x: int

        def double(self) -> int:
            return 2 * self.x

    assert trip(Local(4)).double() == 8
    assert trip(Local)(5).double() == 10


def test_functions() -> None:
    offset = 10

    def add(x: int) -> int:
        return x + offset

    def fact(n: int) -> int:
        return 1 if n <= 1 else n * fact(n - 1)

    assert trip(add)(1) == 11
    assert trip(lambda x: x + 1)(1) == 2
    assert trip({"f": fact})["f"](5) == 120
    assert trip(len) is len
    assert trip("a b".split)() == ["a", "b"]


def test_recursion() -> None:
    circle: list[Any] = []
    circle.append(circle)
    result = trip(circle)
    assert result[0] is result

    @ray.remote
    def fact(n: int) -> int:
        return 1 if n <= 1 else n * ray.get(fact.remote(n - 1))

    assert ray.get(fact.remote(4)) == 24


def test_a_module_beside_the_program(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What workers cannot import is their error, and says which module it was."""
    (tmp_path / "beside_the_program.py").write_text("class Thing:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = __import__("beside_the_program")
    try:
        with pytest.raises(exceptions.RayTaskError, match="beside_the_program"):
            trip(module.Thing())
    finally:
        del sys.modules["beside_the_program"]


# ---------------------------------------------------------------- what cannot travel


def test_what_cannot_be_pickled_is_named() -> None:
    async def coroutine() -> None:
        pass

    running = coroutine()
    for value, word in (
        (threading.Lock(), "lock"),
        ((i for i in range(3)), "generator"),
        (running, "coroutine"),
        ([{"deep": threading.Lock()}], "lock"),
    ):
        with pytest.raises(
            TypeError, match=f"(?s)Could not serialize the argument .* for a task or actor.*{word}"
        ):
            echo.remote(value)
        with pytest.raises(TypeError, match="Could not serialize the argument"):
            echo.remote(value=value)
        with pytest.raises(TypeError, match=f"(?s)Could not serialize the put value .*cannot pickle.*{word}"):
            ray.put(value)
    running.close()


def test_functions_and_classes_that_cannot_be_pickled() -> None:
    lock = threading.Lock()

    @ray.remote
    def task() -> Any:
        return lock

    @ray.remote
    class Actor:
        held = lock

        def method(self, value: Any) -> Any:
            return value

    @ray.remote
    class Good:
        def method(self, value: Any) -> Any:
            return value

    with pytest.raises(TypeError, match=r"(?s)Could not serialize the function.*inspect_serializability"):
        task.remote()
    with pytest.raises(TypeError, match="Could not serialize the actor class"):
        Actor.remote()
    with pytest.raises(
        TypeError, match=r"(?s)Could not serialize the argument.*for a task or actor.*Good.method"
    ):
        Good.remote().method.remote(lock)


def test_a_result_that_cannot_be_pickled() -> None:
    @ray.remote
    def task() -> Any:
        return threading.Lock()

    with pytest.raises(exceptions.RayTaskError, match="cannot pickle") as caught:
        ray.get(task.remote())
    assert isinstance(caught.value, TypeError)


class Broken:
    def __reduce__(self) -> Any:
        return _break, ()


def _break() -> Any:
    raise RuntimeError("cannot rebuild this")


def test_what_cannot_be_rebuilt() -> None:
    ref = ray.put(Broken())
    with pytest.raises(exceptions.RaySystemError, match="cannot rebuild this"):
        ray.get(ref)
    for argument in (ref, Broken()):
        with pytest.raises(exceptions.RayTaskError, match="cannot rebuild this") as caught:
            ray.get(echo.remote(argument))
        assert isinstance(caught.value, exceptions.RaySystemError)


# ---------------------------------------------------------------- exceptions


class TwoArguments(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__("message")
        self.a, self.b = a, b


class KeywordOnly(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__()
        self.code = code


class WithReduce(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__()
        self.code = code

    def __reduce__(self) -> Any:
        return _with_reduce, (self.code,)


def _with_reduce(code: int) -> WithReduce:
    return WithReduce(code=code)


class WithLock(Exception):
    def __init__(self) -> None:
        super().__init__("locked")
        self.lock = threading.Lock()


@ray.remote
def fail(error: Any, *args: Any, **kwargs: Any) -> None:
    raise error(*args, **kwargs)


def test_exceptions_with_odd_constructors() -> None:
    for call in (fail.remote(TwoArguments, 1, 2), fail.remote(KeywordOnly, code=3)):
        with pytest.raises(
            exceptions.UnserializableException, match=r"(?s)Failed to deserialize exception.*in fail"
        ):
            ray.get(call)
    with pytest.raises(WithReduce) as caught:
        ray.get(fail.remote(WithReduce, code=4))
    assert caught.value.code == 4
    with pytest.raises(exceptions.RayTaskError, match="in fail"):
        ray.get(fail.remote(WithLock))


# ---------------------------------------------------------------- serializers of the user's


class Secret:
    def __init__(self, value: int) -> None:
        self.value, self.lock = value, threading.Lock()


def test_registered_serializers() -> None:
    util.register_serializer(Secret, serializer=lambda secret: secret.value, deserializer=Secret)

    @ray.remote
    def reveal(secret: Secret) -> int:
        return secret.value

    try:
        assert ray.get(reveal.remote(Secret(3))) == 3
        assert ray.get(ray.put({"in": [Secret(4)]}))["in"][0].value == 4
        assert ray.cloudpickle.loads(ray.cloudpickle.dumps(Secret(5))).value == 5
    finally:
        util.deregister_serializer(Secret)
    with pytest.raises(TypeError, match="Could not serialize"):
        ray.put(Secret(3))
    util.deregister_serializer(Secret)


# ---------------------------------------------------------------- cloudpickle


def test_cloudpickle() -> None:
    assert ray.cloudpickle.loads(ray.cloudpickle.dumps(lambda x: x + 1))(1) == 2
    assert issubclass(ray.cloudpickle.CloudPickler, object)
    assert sys.modules[f"{NAME}.cloudpickle"] is ray.cloudpickle


def test_references_pickled_out_of_band() -> None:
    pickled = ray.cloudpickle.dumps(ray.put("kept"))
    assert ray.get(ray.cloudpickle.loads(pickled)) == "kept"  # though nothing holds it any more


@pytest.mark.skipif(not OWN, reason="the other engine reads the variable at its start")
def test_references_pickled_out_of_band_can_be_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_allow_out_of_band_object_ref_serialization", "0")
    ref = ray.put(1)

    @ray.remote
    def closure() -> Any:
        return ray.get(ref)

    with pytest.raises(exceptions.OufOfBandObjectRefSerializationException, match="not allowed to serialize"):
        ray.cloudpickle.dumps({"in": ref})
    with pytest.raises(exceptions.OufOfBandObjectRefSerializationException, match="Could not serialize"):
        closure.remote()
    assert ray.get(trip([ref])[0]) == 1
    assert asyncio.run(_await(echo.remote(ref))) == 1


@pytest.mark.skipif(not OWN, reason="the other engine has another limit")
def test_a_function_that_cannot_be_sent_lets_go_of_nothing() -> None:
    ref, large = ray.put("kept"), bytes(96 << 20)

    @ray.remote
    def closure() -> Any:
        return ray.get(ref), large

    with pytest.raises(ValueError, match="too large"):
        closure.remote()
    del closure
    gc.collect()
    for _ in range(20):  # what died is let go of while others are waited for
        assert ray.get(trip([ref])[0]) == "kept"


async def _await(ref: Any) -> Any:
    return await ref
