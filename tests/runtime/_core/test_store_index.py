"""Objects, pins and eviction of one node's store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime._core.store_index import StoreFullError, StoreIndex

KIB = 1 << 10
A, B, C = b"a" * 28, b"b" * 28, b"c" * 28


def index(capacity: int = 64 * KIB) -> StoreIndex:
    return StoreIndex(capacity)


def put(store: StoreIndex, object_id: bytes, size: int = KIB, creator: str = "w", **options: object) -> None:
    assert store.create(object_id, size, creator, **options) is not None  # type: ignore[arg-type]
    assert store.seal(object_id, creator)


def test_an_unsealed_object_cannot_be_read() -> None:
    store = index()
    store.create(A, KIB, "w")
    assert store.sealed(A) is None
    assert store.pin(A, "r") is None


def test_a_sealed_object_can_be_pinned_by_others() -> None:
    store = index()
    put(store, A)
    entry = store.pin(A, "r")
    assert entry is not None
    assert entry.size_bytes == KIB


def test_only_the_creator_seals() -> None:
    store = index()
    store.create(A, KIB, "w")
    assert not store.seal(A, "other")
    assert store.seal(A, "w")


def test_the_same_object_cannot_be_made_twice() -> None:
    store = index()
    put(store, A)
    with pytest.raises(ValueError, match="exists"):
        store.create(A, KIB, "w")


def test_an_object_above_the_capacity_never_fits() -> None:
    with pytest.raises(StoreFullError):
        index().create(A, 65 * KIB, "w")


def test_a_full_store_has_no_room_for_now() -> None:
    store = index()
    put(store, A, 60 * KIB)
    assert store.create(B, 8 * KIB, "w") is None


def test_an_aborted_object_leaves_nothing() -> None:
    store = index()
    store.create(A, KIB, "w")
    assert store.abort(A, "w")
    assert store.used_bytes == 0
    assert A not in store


def test_a_sealed_object_cannot_be_aborted() -> None:
    store = index()
    put(store, A)
    assert not store.abort(A, "w")
    assert store.sealed(A) is not None


def test_a_dead_writer_leaves_nothing() -> None:
    store = index()
    store.create(A, KIB, "w")
    assert store.drop_holder("w")
    assert store.used_bytes == 0


def test_a_sealed_object_survives_its_writer() -> None:
    store = index()
    put(store, A)
    store.drop_holder("w")
    assert store.sealed(A) is not None


def test_a_freed_object_that_nobody_pins_goes_at_once() -> None:
    store = index()
    put(store, A)
    store.unpin(A, "w")
    assert store.free([A])
    assert store.used_bytes == 0


def test_a_freed_object_stays_until_the_last_pin() -> None:
    store = index()
    put(store, A)
    store.pin(A, "r")
    store.pin(A, "r")
    assert not store.free([A])
    assert store.pin(A, "late") is None
    assert not store.unpin(A, "w")
    assert not store.unpin(A, "r")
    assert store.used_bytes > 0
    assert store.unpin(A, "r")
    assert store.used_bytes == 0


def test_a_freed_object_can_be_made_again_while_the_old_one_is_pinned() -> None:
    store = index()
    put(store, A)
    store.free([A])
    put(store, A, creator="w2")
    store.unpin(A, "w")
    assert store.sealed(A) is not None
    assert store.used_bytes == KIB


def test_an_object_freed_before_its_seal_goes_with_the_writers_pin() -> None:
    store = index()
    store.create(A, KIB, "w")
    store.free([A])
    assert not store.seal(A, "w")
    assert store.unpin(A, "w")
    assert store.used_bytes == 0


def test_an_object_freed_before_its_abort_goes() -> None:
    store = index()
    store.create(A, KIB, "w")
    store.free([A])
    assert store.abort(A, "w")
    assert store.used_bytes == 0


def test_primary_copies_are_never_evicted() -> None:
    store = index()
    put(store, A, 60 * KIB)
    store.unpin(A, "w")
    assert store.create(B, 8 * KIB, "w") is None


def test_the_oldest_unpinned_secondary_copy_is_evicted_first() -> None:
    store = index()
    for object_id in (A, B):
        put(store, object_id, 28 * KIB, primary=False)
        store.unpin(object_id, "w")
    store.pin(A, "r")
    store.unpin(A, "r")
    put(store, C, 28 * KIB)
    assert store.sealed(A) is not None
    assert store.sealed(B) is None


def test_a_pinned_secondary_copy_is_not_evicted() -> None:
    store = index()
    put(store, A, 60 * KIB, primary=False)
    assert store.create(B, 8 * KIB, "w") is None


def test_objects_of_dead_owners_are_found_by_condition() -> None:
    store = index()
    put(store, A, owner_worker=b"dead")
    put(store, B, owner_worker=b"alive")
    store.drop_holder("w")
    assert store.drop_where(lambda entry: entry.owner_worker == b"dead")
    assert store.sealed(A) is None
    assert store.sealed(B) is not None


def test_primary_copies_are_counted() -> None:
    store = index()
    put(store, A)
    put(store, B, primary=False)
    assert store.primary_count == 1
    store.free([A])
    assert store.primary_count == 0


def test_the_biggest_holders_come_first() -> None:
    store = index()
    put(store, A, 2 * KIB, owner_worker=b"small")
    put(store, B, 8 * KIB, owner_worker=b"big")
    assert [owner for owner, _, _ in store.biggest_holders()] == [b"big", b"small"]


def test_unpinning_what_was_never_pinned_does_nothing() -> None:
    store = index()
    put(store, A)
    assert not store.unpin(A, "stranger")
    assert not store.unpin(B, "w")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["create", "seal", "abort", "pin", "unpin", "free", "drop"]),
            st.sampled_from([A, B, C]),
            st.sampled_from(["w", "x", "y"]),
        ),
        max_size=60,
    )
)
def test_all_memory_comes_back_when_everybody_is_gone(steps: list[tuple[str, bytes, str]]) -> None:
    store = index()
    for action, object_id, holder in steps:
        if action == "create":
            if object_id not in store:
                store.create(object_id, 10 * KIB, holder, primary=holder != "y")
        elif action == "free":
            store.free([object_id])
        elif action == "drop":
            store.drop_holder(holder)
        else:
            getattr(store, action)(object_id, holder)
        sizes = sum(entry.size_bytes for entry in store.entries())
        assert store.used_bytes == sizes
    for holder in ("w", "x", "y"):
        store.drop_holder(holder)
    store.free([A, B, C])
    assert store.used_bytes == 0
    assert store.primary_count == 0
