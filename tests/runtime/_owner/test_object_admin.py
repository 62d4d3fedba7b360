"""What programs ask of owners besides values: adoption, freeing by hand, and locations."""

from __future__ import annotations

from typing import Any

import pytest

from runtime import exceptions
from runtime._ownership.records import INLINE, STORED
from runtime._wire.messages.base import ErrorKind, ErrorReply, Ok
from runtime._wire.messages.node import StoreFree
from runtime._wire.messages.worker import (
    AdoptObject,
    ForceFree,
    GetLocations,
    Location,
    Locations,
    Value,
)
from tests.runtime._owner.lone_process import OWNER, US, LoneProcess, Peer

OBJECT = b"o" * 28


@pytest.fixture
def process() -> LoneProcess:
    return LoneProcess()


@pytest.fixture
def owner(process: LoneProcess) -> Peer:
    return process.others[OWNER.worker_id]


# ---------------------------------------------------------------- adoption


def test_a_value_for_another_process_is_its_object(process: LoneProcess, owner: Peer) -> None:
    owner.answer = lambda _request: Ok()
    ref = process.admin.put_for([1], OWNER)
    assert [type(message) for message in owner.sent] == [AdoptObject]
    assert ref._entry.owner == OWNER
    assert ref._entry.registered
    assert process.reader.get_one(ref, None) == [1]


def test_a_value_for_us_is_an_ordinary_object(process: LoneProcess, owner: Peer) -> None:
    ref = process.admin.put_for([1], US)
    assert ref._entry.owner is None
    assert owner.sent == []


def test_an_owner_that_is_gone(process: LoneProcess) -> None:
    del process.others[OWNER.worker_id]
    with pytest.raises(exceptions.OwnerDiedError):
        process.admin.put_for([1], OWNER)
    assert [type(message) for message in process.agent.sent] == [StoreFree]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (ErrorKind.CLASH, exceptions.RaySystemError),
        (ErrorKind.UNAVAILABLE, exceptions.OwnerDiedError),
    ],
)
def test_an_owner_that_refuses(process: LoneProcess, owner: Peer, kind: str, error: type[Exception]) -> None:
    owner.answer = lambda _request: ErrorReply(kind, "no")
    with pytest.raises(error):
        process.admin.put_for([1], OWNER)
    assert len(process.store.freed) == 1


def test_adopting(process: LoneProcess, owner: Peer) -> None:
    connection: Any = owner
    adopt = AdoptObject(OBJECT, Value(INLINE, b"N."))
    process.admin.on_adopt(connection, adopt, 5)
    assert owner.replies == [(Ok(), 5)]
    entry = process.objects.table.entries[OBJECT]
    assert entry.owner is None
    assert entry.borrowers == {OWNER.worker_id}
    process.admin.on_adopt(connection, adopt, 6)  # another object has this id
    assert owner.replies[1][0].kind == ErrorKind.CLASH


# ---------------------------------------------------------------- freeing by hand


def freed(process: LoneProcess, ref: Any) -> bool:
    try:
        process.reader.get_one(ref, None)
    except exceptions.ObjectFreedError:
        return True
    return False


def test_our_object_is_freed_although_there_is_a_reference(process: LoneProcess) -> None:
    small, large = process.objects.put(1), process.objects.put(2)
    large._entry.value = Value(STORED, b"", (), (), (b"n" * 28,), 10)
    process.admin.free([small, large])
    assert freed(process, small)
    assert freed(process, large)
    assert process.store.freed == [large.binary()]


def test_what_is_still_to_come_is_freed_when_it_is_there(process: LoneProcess) -> None:
    ref = process.objects.new_ref(process.objects.own(OBJECT))
    process.admin.free([ref])
    process.objects.set_value(ref._entry, Value(INLINE, b"N."))
    assert freed(process, ref)


def test_an_object_of_another_is_freed_by_its_owner(process: LoneProcess, owner: Peer) -> None:
    owner.answer = lambda _request: Ok()
    ref = process.admin.put_for([1], OWNER)
    process.admin.free([ref])
    assert owner.sent[1:] == [ForceFree(ref.binary())]
    assert freed(process, ref)


def test_a_borrower_has_it_freed(process: LoneProcess, owner: Peer) -> None:
    connection: Any = owner
    ref = process.objects.put(1)
    process.admin.on_free(connection, ForceFree(b"unknown" * 4), 0)
    process.admin.on_free(connection, ForceFree(ref.binary()), 0)
    assert freed(process, ref)


def test_an_error_is_not_freed(process: LoneProcess) -> None:
    ref = process.objects.put(1)
    ref._entry.value = process.objects.error_value(KeyError("why"))
    process.admin.free([ref])
    with pytest.raises(KeyError):
        process.reader.get_one(ref, None)


# ---------------------------------------------------------------- locations


def test_where_our_own_objects_are(process: LoneProcess) -> None:
    small, large = process.objects.put(1), process.objects.put(2)
    pending = process.objects.new_ref(process.objects.own(b"p" * 28))
    large._entry.value = Value(STORED, b"", (), (), (b"a" * 28, b"b" * 28), 10)
    found = process.admin.locations([small, large, pending, small], None)
    assert found[small].node_ids == [US.node_id]
    assert found[large] == Location([b"a" * 28, b"b" * 28], 10)
    assert found[pending] == Location([], -1)
    assert process.admin.known_locations([large]) == {large: found[large]}


def test_where_objects_of_others_are(process: LoneProcess, owner: Peer) -> None:
    owner.answer = lambda _request: Ok()
    known, unknown = (process.admin.put_for([number], OWNER) for number in range(2))
    place = Location([b"m" * 28], 10)

    def answer(request: Any) -> Any:
        if known.binary() in request.object_ids:
            return Locations([place, Location([], -1)])
        return ErrorReply(ErrorKind.UNAVAILABLE, "gone")

    owner.answer = answer
    owner.sent.clear()
    found = process.admin.locations([known, unknown], None)
    assert found == {known: place, unknown: Location([], -1)}
    assert owner.sent == [GetLocations([known.binary(), unknown.binary()])]  # both in one message
    assert process.admin.locations([unknown], None) == {}


def test_many_locations_are_asked_for_in_parts(
    process: LoneProcess, owner: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime._owner.object_admin.AT_ONCE", 2)
    owner.answer = lambda _request: Ok()
    refs = [process.admin.put_for([number], OWNER) for number in range(5)]
    owner.answer = lambda request: Locations(
        [Location([b"m" * 28], len(request.object_ids))] * len(request.object_ids)
    )
    sizes = [location.size_bytes for location in process.admin.locations(refs, None).values()]
    assert sizes == [2, 2, 2, 2, 1]


def test_an_owner_that_does_not_say_in_time(process: LoneProcess, owner: Peer) -> None:
    owner.answer = lambda _request: Ok()
    ref = process.admin.put_for([1], OWNER)
    owner.answer = lambda _request: None
    with pytest.raises(exceptions.GetTimeoutError, match="Owners did not say in time"):
        process.admin.locations([ref], 0.0)


def test_what_an_owner_says(process: LoneProcess, owner: Peer) -> None:
    connection: Any = owner
    ref = process.objects.put(1)
    process.admin.on_locations(connection, GetLocations([ref.binary(), b"unknown" * 4]), 7)
    (reply, correlation) = owner.replies[0]
    assert correlation == 7
    assert [location.node_ids for location in reply.found] == [[US.node_id], []]
