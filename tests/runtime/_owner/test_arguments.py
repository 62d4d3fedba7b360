"""Arguments: packed by the caller, filled in when their values are there, and rebuilt by the executor."""

from __future__ import annotations

from typing import Any

import pytest

from runtime import exceptions, object_ref
from runtime._owner import arguments
from runtime._owner.arguments import LostArguments
from runtime._ownership.arguments import fill
from runtime._ownership.failures import ArgumentFailed
from runtime._ownership.records import INLINE_ERROR, NO_ARGUMENTS, STORED, PackedArguments
from runtime._wire import serialization
from runtime._wire.messages.worker import ObjectLost, Push, Value
from runtime.exceptions import RayTaskError
from tests.runtime._owner.lone_process import LoneProcess

TASK = b"t" * 24


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> LoneProcess:
    process = LoneProcess()
    monkeypatch.setattr(object_ref, "_current", lambda: process)
    return process


def push_of(packed: PackedArguments) -> Push:
    return Push(TASK, b"key", "", packed.value, [], 1)


def travel(process: LoneProcess, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any], Push]:
    """What the executor gets of these arguments, and the push that carried them."""
    packed = process.packer.pack("f", args, kwargs)
    push, error = fill(packed, push_of(packed), process.address)
    assert error is None
    got, named, _ = process.argument_reader.unpack(push)
    return tuple(got), named, push


def test_no_arguments_pack_nothing(process: LoneProcess) -> None:
    assert process.packer.pack("f", (), {}) is NO_ARGUMENTS


def test_plain_arguments(process: LoneProcess) -> None:
    assert travel(process, 1, "two", three=[3])[:2] == ((1, "two"), {"three": [3]})


def test_references_at_top_level_become_values(process: LoneProcess) -> None:
    one, two, three = (process.objects.put(value) for value in (1, [2], {"three": 3}))
    got, named, push = travel(process, one, "between", two, named=three)
    assert got == (1, "between", [2])
    assert named == {"named": {"three": 3}}
    assert push.inline is not None  # small values of positions travel as bare pickles
    assert push.inline.positions == [0, 2]
    assert [ref.keyword for ref in push.refs] == ["named"]


def test_nested_references_stay_references(process: LoneProcess) -> None:
    ref = process.objects.put(1)
    got, _, _ = travel(process, [ref])
    assert got == ([ref],)


def test_arguments_are_held_until_the_call_is_over(process: LoneProcess) -> None:
    ref = process.objects.put(1)
    entry = ref._entry
    before = entry.holds
    packed = process.packer.pack("f", (ref, [ref]), {})
    assert packed.held == [entry, entry]
    assert entry.holds == before + 2
    assert process.store.said == 1  # the executor may ask the node for them


def test_large_arguments_go_to_the_store_once(process: LoneProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "INLINE_BYTES", 1000)
    monkeypatch.setattr("runtime._owner.objects.INLINE_BYTES", 1000)
    large = "x" * 2000
    got, named, push = travel(process, 1, large, small="y", large=large)
    assert got == (1, large)
    assert named == {"small": "y", "large": large}
    assert len(process.store.objects) == 2
    assert [ref.value.kind for ref in push.refs if ref.value is not None] == [STORED, STORED]


def test_what_cannot_be_pickled_is_named(process: LoneProcess) -> None:
    unpicklable = (number for number in range(3))
    with pytest.raises(TypeError, match="the argument <generator object"):
        process.packer.pack("f", (1, unpicklable), {})


def test_an_argument_that_failed_fails_the_call(process: LoneProcess) -> None:
    failed = process.objects.put(0)
    failed._entry.value = process.objects.error_value(KeyError("why"))
    packed = process.packer.pack("f", (failed,), {})
    push = push_of(packed)
    filled, error = fill(packed, push, process.address)
    assert filled is push
    assert error is failed._entry.value
    assert failed._entry.seen  # the call passes it on
    value = process.packer.not_computed(ArgumentFailed(error.data, "f"))
    assert value.kind == INLINE_ERROR
    raised = serialization.deserialize(value.data)[0]
    assert isinstance(raised, RayTaskError)
    assert "why" in str(raised)


def test_an_error_that_cannot_be_rebuilt_fails_the_call_too(process: LoneProcess) -> None:
    value = process.packer.not_computed(ArgumentFailed(b"no pickle", "f"))
    raised = serialization.deserialize(value.data)[0]
    assert "cannot be rebuilt here" in str(raised)


def test_a_lost_argument_is_not_waited_for(process: LoneProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = process.objects.put(1)
    ref._entry.value = Value(STORED, b"", (), (), (b"m" * 28,), 10)
    packed = process.packer.pack("f", (ref,), {})
    push, _ = fill(packed, push_of(packed), process.address)

    def lost(object_id: bytes, *_: Any) -> None:
        raise exceptions.ObjectLostError(object_id.hex(), b"", "")

    monkeypatch.setattr(process.store, "fetch", lost)
    with pytest.raises(LostArguments) as caught:
        process.argument_reader.unpack(push, waits=False)
    assert caught.value.lost == [ObjectLost(ref.binary(), [b"m" * 28])]
