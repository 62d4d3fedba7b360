"""Which objects `wait` finds ready, without a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runtime._owner.waiting import BRINGS, LOOKS, split
from runtime._ownership.records import INLINE, STORED
from runtime._wire.messages.base import ErrorKind, ErrorReply, Ok
from runtime._wire.messages.worker import AddLocation, Value
from runtime.object_ref import ObjectRef
from tests.runtime._owner.lone_process import OWNER, US, LoneProcess

HERE, ELSEWHERE = US.node_id, OWNER.node_id
INLINE_NONE = Value(INLINE, b"N.")


@pytest.fixture
def process() -> LoneProcess:
    return LoneProcess()


def pending(process: LoneProcess, count: int) -> list[ObjectRef]:
    return [
        process.objects.new_ref(process.objects.own(number.to_bytes(28, "big")))
        for number in range(1, count + 1)
    ]


def come_while_waiting(process: LoneProcess, refs: list[ObjectRef]) -> None:
    """Each look of a waiting thread finds one more value."""

    def wait(ready: Callable[[], Any], _timeout_s: float | None) -> bool:
        left = list(refs)
        while not ready():
            if not left:
                return False
            process.objects.set_value(left.pop(0)._entry, INLINE_NONE)
        return True

    process.wait = wait  # type: ignore[method-assign]


def test_split() -> None:
    assert split(["a", "b", "c", "d"], [1]) == (["b"], ["a", "c", "d"])
    assert split(["a", "b", "c", "d"], [0, 2]) == (["a", "c"], ["b", "d"])


def test_the_first_that_are_ready(process: LoneProcess) -> None:
    refs = [*pending(process, 2), *(process.objects.put(number) for number in range(3))]
    assert process.waiter.wait(refs, 2, 0) == [2, 3]
    assert process.waiter.wait(refs, 5, 0) == [2, 3, 4]


def test_what_comes_meanwhile(process: LoneProcess) -> None:
    refs = pending(process, 3)
    come_while_waiting(process, [refs[2], refs[0]])
    assert process.waiter.wait(refs, 2, None) == [0, 2]


def test_not_in_time(process: LoneProcess) -> None:
    refs = pending(process, 3)
    come_while_waiting(process, [refs[1]])
    assert process.waiter.wait(refs, 2, 10.0) == [1]


def test_after_many_looks_each_object_calls_back(process: LoneProcess) -> None:
    refs = pending(process, 1)
    others = [process.objects.own(bytes([9, number]) * 14) for number in range(LOOKS + 5)]

    def wait(ready: Callable[[], Any], _timeout_s: float | None) -> bool:
        while others:  # values that nobody here waits for
            if ready():
                return True
            process.objects.set_value(others.pop(), INLINE_NONE)
        process.objects.set_value(refs[0]._entry, INLINE_NONE)
        return bool(ready())

    process.wait = wait  # type: ignore[method-assign]
    assert process.waiter.wait(refs, 1, None) == [0]
    assert not refs[0]._entry.callbacks


def test_callbacks_are_taken_back(process: LoneProcess) -> None:
    refs = pending(process, 2)
    assert process.waiter.wait(refs, 1, 0) == []
    assert [ref._entry.callbacks for ref in refs] == [[], []]


def stored(process: LoneProcess, node_id: bytes) -> ObjectRef:
    ref = process.objects.put(1)
    ref._entry.value = Value(STORED, b"", (), (), (node_id,), 10)
    return ref


def prefetch(process: LoneProcess, error: ErrorReply | None) -> list[bytes]:
    """Has fetches answered at once. Returns what is fetched."""
    fetched: list[bytes] = []

    def run(object_id: bytes, _locations: Any, callback: Callable[[ErrorReply | None], None]) -> None:
        fetched.append(object_id)
        callback(error)

    process.store.prefetch = run  # type: ignore[attr-defined]
    return fetched


def test_what_is_to_be_fetched_is_ready_when_it_is_here(process: LoneProcess) -> None:
    here, elsewhere = stored(process, HERE), stored(process, ELSEWHERE)
    fetched = prefetch(process, None)
    assert process.waiter.wait([here, elsewhere], 2, 0, fetch=False) == [0, 1]
    assert fetched == []
    assert process.waiter.wait([here, elsewhere], 2, None, fetch=True) == [0, 1]
    assert fetched == [elsewhere.binary()]
    assert elsewhere._entry.value is not None
    assert set(elsewhere._entry.value.locations) == {HERE, ELSEWHERE}


def test_the_owner_hears_of_a_copy(process: LoneProcess) -> None:
    owner = process.others[OWNER.worker_id]
    owner.answer = lambda _request: Ok()
    ref = process.admin.put_for([1], OWNER)
    ref._entry.value = Value(STORED, b"", (), (), (ELSEWHERE,), 10)
    prefetch(process, None)
    assert process.waiter.wait([ref], 1, None, fetch=True) == [0]
    assert AddLocation(ref.binary(), HERE) in owner.sent


def test_what_is_lost_is_made_again(process: LoneProcess) -> None:
    ref = stored(process, ELSEWHERE)
    rebuilt: list[bytes] = []

    def rebuild(entry: Any) -> None:
        rebuilt.append(entry.object_id)
        entry.value = INLINE_NONE

    process.lineage.rebuild = rebuild
    prefetch(process, ErrorReply(ErrorKind.LOST, "no copy is left"))
    assert process.waiter.wait([ref], 1, None, fetch=True) == [0]
    assert rebuilt == [ref.binary()]


def elsewhere(process: LoneProcess, size_bytes: int = 10) -> ObjectRef:
    """An object whose value has come, and lies in the store of another node."""
    ref = process.objects.put(1)
    process.objects.set_value(ref._entry, Value(STORED, b"", (), (), (ELSEWHERE,), size_bytes))
    return ref


def test_what_exists_beyond_the_first_is_brought_too(process: LoneProcess) -> None:
    refs = [process.objects.put(1), *pending(process, 1), *(elsewhere(process) for _ in range(2))]
    fetched = prefetch(process, None)
    assert process.waiter.wait(refs, 1, 0, fetch=False) == [0]
    assert fetched == []
    assert process.waiter.wait(refs, 1, 0, fetch=True) == [0]
    assert fetched == [ref.binary() for ref in refs[2:]]


def test_a_known_list_is_looked_through_for_something_new(process: LoneProcess) -> None:
    refs = [process.objects.put(1), elsewhere(process), *pending(process, 1)]
    fetched = prefetch(process, None)
    process.waiter.wait(refs, 1, 0, fetch=True)
    assert fetched == [refs[1].binary()]
    come = Value(STORED, b"", (), (), (ELSEWHERE,), 10)
    process.objects.set_value(refs[2]._entry, come)
    process.waiter.wait(refs, 1, 0, fetch=True, known=True)
    assert fetched == [ref.binary() for ref in refs[1:]]


def test_what_is_brought_ahead_leaves_room_for_others(process: LoneProcess) -> None:
    refs = [process.objects.put(1), *(elsewhere(process, 60) for _ in range(3))]
    asked: list[tuple[bytes, Callable[[ErrorReply | None], None]]] = []
    process.store.prefetch = lambda name, _places, callback: asked.append((name, callback))  # type: ignore[attr-defined]
    for ref in refs[1:]:
        process.waiter.wait(refs, 1, 0, fetch=True, known=True)
        assert [name for name, _ in asked] == [ref.binary()]
        asked.pop()[1](None)


def test_what_is_on_its_way_is_kept(process: LoneProcess) -> None:
    refs = [process.objects.put(1), elsewhere(process)]
    asked: list[Callable[[ErrorReply | None], None]] = []
    process.store.prefetch = lambda _name, _places, callback: asked.append(callback)  # type: ignore[attr-defined]
    process.waiter.wait(refs, 1, 0, fetch=True)
    name = refs.pop().binary()
    process.objects.drain()
    assert process.store.freed == []
    asked.pop()(ErrorReply(ErrorKind.LOST, "no copy is left"))
    assert process.store.freed == [name]


def test_what_found_no_room_ahead_is_tried_again_when_it_is_waited_for(process: LoneProcess) -> None:
    refs = [process.objects.put(1), elsewhere(process)]
    prefetch(process, ErrorReply(ErrorKind.FULL, "no room"))
    assert process.waiter.wait(refs, 1, 0, fetch=True) == [0]
    fetched = prefetch(process, None)
    assert process.waiter.wait(refs[1:], 1, 0, fetch=True) == [0]
    assert fetched == [refs[1].binary()]


def test_a_long_list_is_not_looked_through_for_each_new_value(process: LoneProcess) -> None:
    count = 4 * BRINGS
    refs = [process.objects.put(1), elsewhere(process), *pending(process, count)]
    fetched = prefetch(process, None)
    process.waiter.wait(refs, 1, 0, fetch=True)
    seen = []
    for ref in refs[2:]:
        process.objects.set_value(ref._entry, Value(STORED, b"", (), (), (ELSEWHERE,), 10))
        process.waiter.wait(refs, 1, 0, fetch=True, known=True)
        seen.append(len(fetched))
    assert len(set(seen)) <= BRINGS
    assert seen[-1] > count - 2 * count // BRINGS
