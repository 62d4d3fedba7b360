"""put and get: what goes in comes out; arrays are shared, not copied."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import gc
import pathlib
import threading
import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.under_test import OWN, exceptions, ray

pytestmark = pytest.mark.usefixtures("session")

LARGE = 2**20


class Colour(enum.Enum):
    RED = 1


@dataclass
class Point:
    x: int
    y: list[int]


Pair = collections.namedtuple("Pair", "a b")

VALUES = [
    None,
    True,
    0,
    -(2**100),
    1.5,
    float("inf"),
    1 + 2j,
    "",
    "text \N{SNOWMAN}",
    b"",
    b"bytes",
    [],
    [1, [2, [3]]],
    (),
    (1,),
    {1, 2},
    frozenset({1}),
    {},
    {"a": {"b": [None]}},
    {(1, 2): "tuple key"},
    range(5),
    slice(1, 2),
    Ellipsis,
    Colour.RED,
    Point(1, [2]),
    Pair(1, 2),
    datetime.datetime(2024, 1, 2, 3, 4),
    datetime.timedelta(seconds=3),
    decimal.Decimal("1.10"),
    uuid.UUID(int=5),
    pathlib.PurePosixPath("/a/b"),
    collections.OrderedDict(a=1),
    collections.Counter("aab"),
    collections.deque([1, 2]),
    int,
    len,
    "x" * LARGE,
    b"x" * LARGE,
    list(range(100_000)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}-{str(value)[:12]}")
def test_round_trip(value: Any) -> None:
    back = ray.get(ray.put(value))
    assert back == value
    assert type(back) is type(value)


ARRAYS = [
    np.arange(10),
    np.zeros((0,)),
    np.array(3.5),
    np.arange(24).reshape(2, 3, 4),
    np.asfortranarray(np.arange(12).reshape(3, 4)),
    np.arange(10)[::2],
    np.array(["a", "bcd"]),
    np.array([(1, 2.5)], dtype=[("i", "i4"), ("f", "f8")]),
    np.array([True, False]),
    np.array([1, "a", None], dtype=object),
    np.array(["2024-01-01"], dtype="datetime64[D]"),
    np.arange(LARGE),
    np.ones((512, 512), dtype=np.float32),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}-{array.shape}")
def test_arrays_round_trip(array: Any) -> None:
    back = ray.get(ray.put(array))
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert np.array_equal(back, array)


def test_large_arrays_are_read_only() -> None:
    array = ray.get(ray.put(np.zeros(LARGE)))
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_large_arrays_are_not_copied_by_get() -> None:
    ref = ray.put(np.zeros(LARGE))
    first, second = ray.get(ref), ray.get(ref)
    assert first.__array_interface__["data"][0] == second.__array_interface__["data"][0]


def test_arrays_inside_containers_are_not_copied_either() -> None:
    ref = ray.put({"a": np.zeros(LARGE), "b": [np.ones(LARGE)]})
    first, second = ray.get(ref), ray.get(ref)
    assert np.shares_memory(first["a"], second["a"])
    assert np.shares_memory(first["b"][0], second["b"][0])


def test_views_stay_valid_after_the_reference_is_gone() -> None:
    ref = ray.put(np.arange(LARGE))
    view = ray.get(ref)[100:200]
    del ref
    gc.collect()
    others = [ray.put(np.full(LARGE, i)) for i in range(5)]
    assert view.sum() == sum(range(100, 200))
    del others


@pytest.mark.parametrize("size", [1, 5, 100, 1000, 20_000])
def test_arrays_in_messages_are_aligned(size: int) -> None:
    @ray.remote(num_returns=4)
    def make() -> list[Any]:
        return [np.ones(size, np.uint8) for _ in range(4)]

    @ray.remote
    def place(array: Any) -> int:
        found: int = array.ctypes.data % 64
        return found

    arrays = [np.ones(size, np.uint8) for _ in range(4)]
    read = ray.get([ray.put(array) for array in arrays]) + ray.get(make.remote())
    assert [array.ctypes.data % 64 for array in read] == [0] * 8
    assert not any(array.flags.writeable for array in read)
    as_arguments = [place.remote(array) for array in arrays] + [
        place.remote(ray.put(array)) for array in arrays
    ]
    assert ray.get(as_arguments) == [0] * 8


def test_arrays_are_aligned() -> None:
    array = ray.get(ray.put(np.zeros(LARGE)))
    assert array.__array_interface__["data"][0] % 64 == 0


def test_put_takes_a_snapshot() -> None:
    array = np.zeros(LARGE)
    items = [1]
    refs = ray.put(array), ray.put(items)
    array[:] = 1
    items.append(2)
    assert ray.get(refs[0]).sum() == 0
    assert ray.get(refs[1]) == [1]


def test_small_values_are_copies_each_time() -> None:
    ref = ray.put([1])
    ray.get(ref).append(2)
    assert ray.get(ref) == [1]


def test_tasks_read_the_shared_array() -> None:
    array = np.arange(LARGE)
    ref = ray.put(array)

    @ray.remote
    def look(data: Any, start: int) -> tuple[bool, int]:
        return data.flags.writeable, int(data[start])

    assert ray.get([look.remote(ref, i) for i in range(4)]) == [(False, i) for i in range(4)]


def test_tasks_return_arrays() -> None:
    @ray.remote
    def make(value: int) -> Any:
        return np.full(LARGE, value)

    results = ray.get([make.remote(i) for i in range(4)])
    assert [int(array[-1]) for array in results] == [0, 1, 2, 3]
    assert not results[0].flags.writeable


def test_functions_and_classes_travel() -> None:
    class Local:
        value = 3

        def double(self) -> int:
            return self.value * 2

    back = ray.get(ray.put((Local, lambda x: x + 1, Local())))
    assert back[0]().double() == 6
    assert back[1](1) == 2
    assert back[2].double() == 6


def test_shared_identity_inside_one_object_is_kept() -> None:
    inner = Point(1, [])
    back = ray.get(ray.put(Pair(inner, Point(2, inner.y))))
    assert back.a.y is back.b.y


def test_recursive_values() -> None:
    loop: list[Any] = []
    loop.append(loop)
    back = ray.get(ray.put(loop))
    assert back[0] is back


def test_get_of_a_list_keeps_order_and_duplicates() -> None:
    one, two = ray.put(1), ray.put(2)
    assert ray.get([two, one, two]) == [2, 1, 2]
    assert ray.get([]) == []


def test_references_inside_put_values() -> None:
    inner = ray.put(np.arange(LARGE))
    outer = ray.put({"ref": inner})
    del inner
    gc.collect()
    assert ray.get(ray.get(outer)["ref"])[5] == 5


def test_many_small_objects() -> None:
    refs = [ray.put(i) for i in range(2000)]
    assert ray.get(refs) == list(range(2000))


def test_freed_space_is_used_again() -> None:
    for _ in range(60):
        ref = ray.put(np.zeros(4 * LARGE))
        del ref
    assert ray.get(ray.put("still alive")) == "still alive"


def test_puts_from_threads() -> None:
    found: list[int] = []

    def work(base: int) -> None:
        found.extend(ray.get([ray.put(base + i) for i in range(50)]))

    threads = [threading.Thread(target=work, args=(base * 100,)) for base in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == sorted(base * 100 + i for base in range(4) for i in range(50))


def test_a_value_with_custom_reduce() -> None:
    class Reduced:
        def __init__(self, value: int) -> None:
            self.value = value

        def __reduce__(self) -> Any:
            return Reduced, (self.value + 1,)

    assert ray.get(ray.put(Reduced(1))).value == 2


# ---------------------------------------------------------------- misuse


def test_put_of_a_reference_is_refused() -> None:
    with pytest.raises(TypeError, match="put"):
        ray.put(ray.put(1))


@pytest.mark.parametrize("wrong", [3, "abc", None, {"a": 1}], ids=repr)
def test_get_of_something_else_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="ObjectRef"):
        ray.get(wrong)


def test_get_of_a_mixed_list_is_refused() -> None:
    with pytest.raises(TypeError, match="3"):
        ray.get([ray.put(1), 3])


def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(TypeError, match="lock"):
        ray.put(threading.Lock())


def test_get_times_out() -> None:
    from tests.gate import Gate

    gate = Gate.remote()
    ref = gate.pass_through.remote()
    with pytest.raises(exceptions.GetTimeoutError):
        ray.get(ref, timeout=0.1)
    with pytest.raises(TimeoutError):
        ray.get([ref], timeout=0)
    ray.get(gate.open.remote())
    assert ray.get(ref, timeout=60) is None


def test_timeout_zero_gets_what_is_ready() -> None:
    assert ray.get(ray.put(1), timeout=0) == 1


@pytest.mark.skipif(not OWN, reason="the other engine gives objects away")
@pytest.mark.parametrize(
    ("option", "match"), [("_owner", "_owner"), ("_tensor_transport", "tensor transport protocol")]
)
def test_an_object_is_not_given_away_silently(option: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        ray.put(1, **{option: object()})
