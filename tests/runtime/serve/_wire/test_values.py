"""Bodies of messages, outside of a cluster; tests/runtime/serve/integration has those in the object store."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from runtime.exceptions import RaySystemError, RayTaskError
from runtime.serve._wire import values


@pytest.mark.parametrize("value", [None, 1, "text", b"bytes", [1, {"a": (2, 3)}], {"key": {1, 2}}, lambda: 5])
def test_values_arrive(value):
    dumped = values.dump(value)
    assert dumped.kept is None
    assert not values.is_address(dumped.body)
    loaded = values.load(dumped.body)
    if callable(value):
        assert loaded() == value()
    else:
        assert (type(loaded), loaded) == (type(value), value)


def test_arrays_arrive_aligned_and_read_only():
    array = np.arange(1000.0)
    loaded = values.load(values.dump({"array": array, "other": array[::2]}).body)
    assert np.array_equal(loaded["array"], array)
    assert np.array_equal(loaded["other"], array[::2])
    assert loaded["array"].ctypes.data % 64 == 0
    assert not loaded["array"].flags.writeable


def test_large_values_arrive_without_a_cluster():
    assert values.load(values.dump(bytes(3 << 20)).body) == bytes(3 << 20)


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, "two"), {}), (([1],), {"key": 2}), ((), {"key": None})]
)
def test_arguments_arrive(args, kwargs):
    assert values.load_arguments(values.dump_arguments(args, kwargs).body) == (args, kwargs)


def test_what_cannot_be_pickled_is_named():
    with pytest.raises(TypeError, match="the arguments of a call"):
        values.dump_arguments((threading.Lock(),), {})


def test_failures_arrive_as_the_users_exception():
    error = RayTaskError.from_exception(KeyError("missing"), "D.method")
    loaded = values.load_failure(values.dump_failure(error))
    assert isinstance(loaded, KeyError)
    assert isinstance(loaded, RayTaskError)
    plain = values.load_failure(values.dump_failure(ValueError("plain")))
    assert (type(plain), str(plain)) == (ValueError, "plain")


class Unloadable(Exception):
    """Its constructor wants more than pickle gives it."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Undumpable(Exception):
    """It refers to what cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("locked", threading.Lock())


def test_exceptions_that_cannot_travel_are_told_as_text():
    loaded = values.load_failure(values.dump_failure(Unloadable(1, 2)))
    assert isinstance(loaded, RaySystemError)
    assert "Unloadable" in str(loaded) or "two" in str(loaded)
    loaded = values.load_failure(values.dump_failure(Undumpable()))
    assert isinstance(loaded, RaySystemError)
    assert "Undumpable: " in str(loaded)


class Body:
    """Stands for an object reference: `Kept` only holds it."""


def sent(kept: values.Kept, number: int, size: int, body: Body | None) -> None:
    kept.sent(number, values.Dumped(bytes(size), body))


def test_a_result_is_kept_until_it_has_arrived():
    kept = values.Kept()
    sent(kept, 1, 50, Body())
    kept.ended(1)
    assert len(kept) == 1
    kept.used(1, 50)
    assert len(kept) == 0
    kept.used(1, 50)  # of a request that is over


def test_items_are_kept_until_they_have_arrived_in_order():
    kept = values.Kept()
    for size, body in [(10, None), (20, Body()), (30, None), (40, Body())]:
        sent(kept, 7, size, body)
    kept.ended(7)
    kept.used(7, 10)
    assert [end for end, _ in kept._streams[7].kept] == [30, 100]
    kept.used(7, 25)
    assert [end for end, _ in kept._streams[7].kept] == [100]
    kept.used(7, 65)
    assert len(kept) == 0


def test_a_stream_that_keeps_nothing_is_forgotten_at_its_end():
    kept = values.Kept()
    sent(kept, 1, 10, None)
    assert len(kept) == 1
    kept.ended(1)
    assert len(kept) == 0
