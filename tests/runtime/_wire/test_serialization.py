"""User values as bytes: what travels by value, what by reference, and what lies in place."""

from __future__ import annotations

import array
import collections
import datetime
import enum
import fractions
import math
import pickle
import sys
import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime._wire import serialization
from runtime._wire.serialization import (
    ALIGNMENT,
    collector,
    deregister_serializer,
    deserialize,
    dumps_function,
    layout,
    read_block,
    register_serializer,
    serialize,
    write_block,
)


def round_trip(value: Any) -> Any:
    serialized = serialize(value)
    return deserialize(serialized.data, serialized.buffers)[0]


@dataclass
class Point:
    x: int
    y: int


class Color(enum.Enum):
    RED = 1


class Link:
    """Reports to the collector like a reference does."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        assert collector.pickled is not None
        collector.pickled.append(self.name)
        return _rebuild_link, (self.name,)


def _rebuild_link(name: str) -> Link:
    assert collector.unpickled is not None
    collector.unpickled.append(name)
    return Link(name)


# ---------------------------------------------------------------- values

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(), inner)
        | st.frozensets(st.integers())
    ),
    max_leaves=20,
)


@given(PLAIN)
def test_builtins_come_back_equal(value: Any) -> None:
    assert round_trip(value) == value


@pytest.mark.parametrize(
    "value",
    [
        Point(1, 2),
        [Point(1, 2), {"p": Point(3, 4)}],
        Color.RED,
        datetime.datetime(2024, 2, 29, 12, 30),
        fractions.Fraction(1, 3),
        collections.OrderedDict(a=1),
        collections.deque([1, 2], maxlen=3),
        {1, 2, 3},
        bytearray(b"abc"),
        complex(1, 2),
        range(3, 9, 2),
        slice(1, None, 2),
        ValueError("what"),
        math.inf,
        ...,
    ],
    ids=repr,
)
def test_values_come_back_equal(value: Any) -> None:
    back = round_trip(value)
    assert type(back) is type(value)
    assert back == value or repr(back) == repr(value)


def test_cycles_come_back() -> None:
    value: list[Any] = [1]
    value.append(value)
    back = round_trip(value)
    assert back[1] is back


def test_what_is_shared_stays_shared() -> None:
    inner = [1]
    first, second = round_trip((inner, inner))
    assert first is second


def test_functions_made_here_travel_by_value() -> None:
    offset = 3
    assert round_trip(lambda value: value + offset)(4) == 7


def test_classes_made_here_travel_by_value() -> None:
    class Local:
        def __init__(self, value: int) -> None:
            self.value = value

    back = round_trip(Local(5))
    assert back.value == 5


def test_a_class_inside_plain_containers_is_found() -> None:
    class Local:
        value = 7

    assert round_trip({"deep": [(Local(),)]})["deep"][0][0].value == 7


def test_modules_travel_by_name() -> None:
    assert round_trip(math) is math


@pytest.mark.parametrize("value", [None, 1, "text", b"bytes", [1, 2], {"a": (1.5, None)}], ids=repr)
def test_builtins_do_not_need_cloudpickle(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serialization, "_dump_cloud", None)
    assert round_trip(value) == value


def test_arrays_do_not_need_cloudpickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serialization, "_dump_cloud", None)
    assert np.array_equal(round_trip([np.arange(4), np.float64(2)])[0], np.arange(4))


# ---------------------------------------------------------------- arrays


@pytest.mark.parametrize(
    "array",
    [
        np.arange(10),
        np.zeros((3, 4), dtype=np.float32),
        np.asfortranarray(np.arange(12).reshape(3, 4)),
        np.arange(20)[::2],
        np.array(5),
        np.empty((0, 3)),
        np.array(["a", "bc"]),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array([True, False]),
        np.array(["2024-01-01"], dtype="datetime64[D]"),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_come_back(array: Any) -> None:
    back = round_trip({"array": array})["array"]
    assert back.dtype == array.dtype
    assert np.array_equal(back, array)


def test_the_data_of_an_array_lies_out_of_band() -> None:
    serialized = serialize(np.zeros(100_000))
    assert len(serialized.buffers) == 1
    assert len(serialized.data) < 1000
    assert serialized.size_bytes == len(serialized.data) + 800_000


def test_an_array_is_not_copied_on_the_way_out() -> None:
    array = np.zeros(1000)
    [buffer] = serialize(array).buffers
    array[0] = 7
    assert np.frombuffer(buffer)[0] == 7


def test_an_array_of_objects_travels() -> None:
    back = round_trip(np.array([Point(1, 2), None], dtype=object))
    assert back[0] == Point(1, 2)


def test_an_array_rebuilt_over_read_only_memory_is_read_only() -> None:
    serialized = serialize(np.arange(10))
    views = [memoryview(bytes(buffer)) for buffer in serialized.buffers]
    back, _ = deserialize(serialized.data, views)
    assert not back.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        back[0] = 1


# ---------------------------------------------------------------- references


def test_references_inside_are_collected_in_order() -> None:
    serialized = serialize({"a": [Link("first"), (Link("second"),)]})
    assert serialized.references == ["first", "second"]
    _, made = deserialize(serialized.data)
    assert made == ["first", "second"]


def test_one_reference_twice_is_one() -> None:
    link = Link("only")
    assert serialize([link, link]).references == ["only"]


def test_references_in_a_closure_are_collected() -> None:
    link = Link("captured")
    _, references = dumps_function(lambda: link)
    assert references == ["captured"]


def test_the_second_attempt_does_not_count_the_first() -> None:
    """Plain pickle meets the reference, then the class that needs cloudpickle."""

    class Local:
        pass

    assert serialize([Link("once"), Local()]).references == ["once"]


def test_values_without_references_have_none() -> None:
    serialized = serialize([1, "two"])
    assert serialized.references == []
    assert deserialize(serialized.data)[1] == []


def test_a_serialization_inside_another_keeps_its_references_apart() -> None:
    inner: list[Any] = []

    class Nosy:
        def __reduce__(self) -> tuple[Any, ...]:
            inner.extend(serialize([Link("inner")]).references)
            return int, ()

    assert serialize([Link("before"), Nosy(), Link("after")]).references == ["before", "after"]
    assert inner == ["inner"]


def test_a_failed_serialization_leaves_nothing_behind() -> None:
    with pytest.raises(TypeError):
        serialize([Link("lost"), threading.Lock()])
    assert collector.pickled is None
    assert serialize([Link("next")]).references == ["next"]


def test_a_failed_deserialization_leaves_nothing_behind() -> None:
    with pytest.raises(pickle.UnpicklingError):
        deserialize(b"nonsense")
    assert collector.unpickled is None


# ---------------------------------------------------------------- what cannot travel


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (threading.Lock(), "lock"),
        ([1, {"deep": threading.Lock()}], "lock"),
        ((item for item in ()), "generator"),
    ],
    ids=["a lock", "a lock inside", "a generator"],
)
def test_what_cannot_be_pickled_is_named(value: Any, name: str) -> None:
    with pytest.raises(TypeError, match=name):
        serialize(value)


def test_an_object_that_refuses_raises_what_it_raises_or_a_type_error() -> None:
    class Refuses:
        def __reduce__(self) -> tuple[Any, ...]:
            raise TypeError("cannot pickle a Refuses")

    with pytest.raises(TypeError, match="Refuses"):
        serialize(Refuses())


def test_a_missing_module_is_told_by_the_receiver() -> None:
    module = types.ModuleType("module_of_nowhere")
    module.value = 1  # type: ignore[attr-defined]
    with pytest.raises(ModuleNotFoundError, match="module_of_nowhere"):
        deserialize(b"cmodule_of_nowhere\nvalue\n.")


# ---------------------------------------------------------------- registered serializers


@pytest.fixture
def point_as_text() -> Iterator[None]:
    register_serializer(
        Point,
        lambda point: f"{point.x},{point.y}",
        lambda text: Point(*(int(part) * 10 for part in text.split(","))),
    )
    yield
    deregister_serializer(Point)


@pytest.mark.usefixtures("point_as_text")
def test_a_registered_serializer_is_used() -> None:
    assert round_trip(Point(1, 2)) == Point(10, 20)


@pytest.mark.usefixtures("point_as_text")
def test_a_registered_serializer_is_used_inside_builtins() -> None:
    assert round_trip([{"p": Point(1, 2)}])[0]["p"] == Point(10, 20)


@pytest.mark.usefixtures("point_as_text")
def test_other_classes_are_not_touched() -> None:
    assert round_trip([Color.RED, np.arange(2).sum()]) == [Color.RED, 1]


def test_a_serializer_makes_the_unpicklable_travel() -> None:
    class Holder:
        def __init__(self) -> None:
            self.lock = threading.Lock()

    register_serializer(Holder, lambda holder: None, lambda state: "rebuilt")
    try:
        assert round_trip(Holder()) == "rebuilt"
    finally:
        deregister_serializer(Holder)
    with pytest.raises(TypeError):
        serialize(Holder())


def test_deregistering_what_was_never_registered_is_fine() -> None:
    deregister_serializer(Point)


# ---------------------------------------------------------------- layout


@given(st.binary(max_size=200), st.lists(st.binary(max_size=200), max_size=5))
def test_a_block_holds_what_was_written(data: bytes, parts: list[bytes]) -> None:
    buffers = [memoryview(part) for part in parts]
    size, offsets = layout(data, buffers)
    block = bytearray(b"\xaa" * size)
    write_block(memoryview(block), data, buffers, offsets)
    got, views = read_block(memoryview(block).toreadonly())
    assert bytes(got) == data
    assert [bytes(view) for view in views] == parts


@given(st.binary(max_size=200), st.lists(st.integers(0, 500), max_size=6))
def test_buffers_are_aligned_and_do_not_overlap(data: bytes, lengths: list[int]) -> None:
    buffers = [memoryview(bytes(length)) for length in lengths]
    size, offsets = layout(data, buffers)
    end = 16 + 16 * len(buffers) + len(data)
    for offset, length in zip(offsets, lengths, strict=True):
        assert offset % ALIGNMENT == 0
        assert offset >= end
        end = offset + length
    assert size == end


def test_an_array_is_read_in_place() -> None:
    array = np.arange(1000, dtype=np.float64).reshape(10, 100)
    serialized = serialize({"array": array, "name": "it"})
    size, offsets = layout(serialized.data, serialized.buffers)
    block = bytearray(size)
    write_block(memoryview(block), serialized.data, serialized.buffers, offsets)
    data, buffers = read_block(memoryview(block).toreadonly())
    value, _ = deserialize(data, buffers)
    assert np.array_equal(value["array"], array)
    assert not value["array"].flags.writeable
    assert np.shares_memory(value["array"], np.frombuffer(block, dtype=np.uint8))


@pytest.mark.parametrize("without_numpy", [False, True])
def test_what_is_large_is_written_alike(monkeypatch: pytest.MonkeyPatch, without_numpy: bool) -> None:
    monkeypatch.setattr("runtime._wire.serialization.LONG_COPY_BYTES", 8)
    if without_numpy:
        monkeypatch.delitem(sys.modules, "numpy")
    data, parts = b"0123456789", [memoryview(b"abcdefghijkl"), memoryview(array.array("q", [1, 2, 3]))]
    size, offsets = layout(data, parts)
    block = bytearray(size)
    with memoryview(block) as target:
        write_block(target, data, parts, offsets)  # nothing holds on to the target
    got, views = read_block(memoryview(block))
    assert bytes(got) == data
    assert [bytes(view) for view in views] == [bytes(part) for part in parts]


def test_buffers_of_any_item_size_are_written() -> None:
    buffer = memoryview(np.arange(6, dtype=np.int64).reshape(2, 3))
    size, offsets = layout(b"", [buffer])
    block = bytearray(size)
    write_block(memoryview(block), b"", [buffer], offsets)
    [view] = read_block(memoryview(block))[1]
    assert np.frombuffer(view, dtype=np.int64).tolist() == [0, 1, 2, 3, 4, 5]


# ---------------------------------------------------------------- code


def test_code_keeps_the_name_of_its_file_which_tracebacks_show() -> None:
    def outer() -> Any:
        def inner() -> None: ...

        return inner

    outer.__module__ = "__main__"  # by value
    made = pickle.loads(dumps_function(outer)[0])
    assert made is not outer
    assert made.__code__.co_filename == made().__code__.co_filename == __file__


def test_equal_code_gives_equal_bytes() -> None:
    source = "def f(x, *, y=(1, 'two')):\n    return [x[1:2] for x in (x, y, 'two', 'name')]"
    functions = []
    for _ in range(2):
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(source, namespace)
        functions.append(namespace["f"])
    kept = list(functions[0].__code__.co_consts)  # how often a constant is referred to does not matter
    assert len({dumps_function(function)[0] for function in functions}) == 1
    assert kept
