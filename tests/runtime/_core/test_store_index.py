"""Objects, pins and eviction of one node's store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime._core.store_index import IdClash, StoredObject, StoreIndex

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
    store = index()
    put(store, A, 60 * KIB, primary=False)
    store.unpin(A, "w")
    assert store.create(B, 65 * KIB, "w") is None
    assert store.sealed(A) is not None  # nothing is evicted in vain


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


def spill(store: StoreIndex, size: int = 1) -> list[bytes]:
    taken = store.take_spillable(size)
    for entry in taken:
        store.spilled(entry, f"file of {entry.object_id[:1].decode()}")
    return [entry.object_id for entry in taken]


def test_a_primary_copy_on_disk_gives_its_memory_when_it_is_wanted() -> None:
    store = index()
    put(store, A, 60 * KIB)
    store.unpin(A, "w")
    assert spill(store) == [A]
    entry = store.sealed(A)
    assert entry is not None
    assert entry.offset is not None  # as long as nobody wants it
    put(store, B, 60 * KIB)
    assert entry.offset is None
    assert entry.file == "file of a"
    assert store.pin(A, "r") is entry
    assert not store.unpin(A, "r")


def test_only_as_much_is_spilled_as_is_wanted_and_the_oldest_first() -> None:
    store = index()
    for object_id in (A, B, C):
        put(store, object_id, 10 * KIB)
        store.unpin(object_id, "w")
    store.pin(A, "r")
    store.unpin(A, "r")
    assert spill(store, 15 * KIB) == [B, C]
    assert spill(store, 15 * KIB) == [A]
    assert spill(store, 15 * KIB) == []


def test_what_is_pinned_or_a_copy_is_not_spilled() -> None:
    store = index()
    put(store, A)
    put(store, B, primary=False)
    store.unpin(B, "w")
    assert store.take_spillable(KIB) == []


def test_an_object_that_is_being_spilled_stays_where_it_is() -> None:
    store = index()
    put(store, A, 60 * KIB)
    store.unpin(A, "w")
    (entry,) = store.take_spillable(1)
    assert store.spilling_bytes == 60 * KIB
    assert store.create(B, 60 * KIB, "w") is None
    store.pin(A, "r")
    store.spilled(entry, "file")
    assert store.create(B, 60 * KIB, "w") is None  # somebody reads it there
    store.unpin(A, "r")
    assert store.create(B, 60 * KIB, "w") is not None
    assert store.spilling_bytes == 0


def test_a_failed_spill_can_be_tried_again() -> None:
    store = index()
    put(store, A)
    store.unpin(A, "w")
    (entry,) = store.take_spillable(1)
    store.not_spilled(entry)
    assert store.take_spillable(1) == [entry]


def test_a_file_goes_with_its_object() -> None:
    dropped: list[str] = []
    store = StoreIndex(64 * KIB, dropped.append)
    put(store, A, 60 * KIB)
    store.unpin(A, "w")
    spill(store)
    store.pin(A, "r")
    store.free([A])
    assert dropped == ["file of a"]
    assert store.used_bytes > 0
    store.unpin(A, "r")
    assert store.used_bytes == 0


def test_an_object_freed_while_it_is_spilled_leaves_nothing() -> None:
    dropped: list[str] = []
    store = StoreIndex(64 * KIB, dropped.append)
    put(store, A)
    store.unpin(A, "w")
    (entry,) = store.take_spillable(1)
    store.free([A])
    assert store.used_bytes > 0
    store.spilled(entry, "file")
    assert dropped == ["file"]
    assert store.used_bytes == 0


def test_an_object_that_never_had_memory() -> None:
    dropped: list[str] = []
    store = StoreIndex(64 * KIB, dropped.append)
    entry = store.create_in_file(A, 100 * KIB, "w", "file")
    assert store.seal(A, "w")
    assert store.used_bytes == 0
    store.unpin(A, "w")
    assert store.pin(A, "r") is entry
    store.unpin(A, "r")
    store.free([A])
    assert dropped == ["file"]


def test_a_copy_in_a_file_goes_with_its_last_reader() -> None:
    dropped: list[str] = []
    store = StoreIndex(64 * KIB, dropped.append)
    store.create_in_file(A, 100 * KIB, "w", "file", primary=False)
    store.seal(A, "w")
    store.unpin(A, "w")
    assert dropped == ["file"]
    assert A not in store


@given(
    st.lists(
        st.tuples(
            st.sampled_from("create file seal abort pin unpin free drop take spilled failed".split()),
            st.sampled_from([A, B, C]),
            st.sampled_from(["w", "x", "y"]),
        ),
        max_size=60,
    )
)
def test_all_memory_comes_back_when_everybody_is_gone(steps: list[tuple[str, bytes, str]]) -> None:
    dropped: list[str] = []
    store = StoreIndex(25 * KIB, dropped.append)
    spilling: list[StoredObject] = []
    files = 0
    for action, object_id, holder in steps:
        if action == "create":
            if object_id not in store:
                store.create(object_id, 10 * KIB, holder, primary=holder != "y")
        elif action == "file":
            if object_id not in store:
                files += 1
                store.create_in_file(object_id, KIB, holder, f"{files}", primary=holder != "y")
        elif action == "take":
            spilling += store.take_spillable(1)
        elif action in ("spilled", "failed"):
            if not spilling:
                continue
            if action == "failed":
                store.not_spilled(spilling.pop())
            else:
                files += 1
                store.spilled(spilling.pop(), f"{files}")
        elif action == "free":
            store.free([object_id])
        elif action == "drop":
            store.drop_holder(holder)
        else:
            getattr(store, action)(object_id, holder)
        sizes = sum(entry.size_bytes for entry in store.entries() if entry.offset is not None)
        assert store.used_bytes == sizes
        assert 0 <= store.kept_bytes <= store.used_bytes
    for holder in ("w", "x", "y"):
        store.drop_holder(holder)
    store.free([A, B, C])
    for entry in spilling:
        store.not_spilled(entry)
    assert store.used_bytes == 0
    assert store.evictable_bytes == store.spilling_bytes == 0
    assert sorted(dropped, key=int) == [str(number + 1) for number in range(files)]
    assert store.primary_count == 0


# ---------------------------------------------------------------- two owners, one id


def place(store: StoreIndex, owner: bytes, creator: str, keeper: str | None) -> int:
    """Places an object with the id b"a"; returns where."""
    [(offset, _)] = store.allotments.allot(creator, KIB, 1)
    store.place(b"a", offset, KIB, creator, keeper, owner_worker=owner)
    return offset


def test_the_owner_may_make_an_object_again() -> None:
    store = index()
    place(store, b"owner", "w", "w")
    place(store, b"owner", "x", "x")
    entry = store.pin(b"a", "reader")
    assert entry is not None
    assert entry.creator == "x"


def test_what_another_owner_has_by_the_id_is_neither_freed_nor_read_by_mistake() -> None:
    store = index()
    first = place(store, b"owner", "w", "reader")
    with pytest.raises(IdClash, match=b"a".hex()):
        place(store, b"stranger", "x", "other reader")
    assert len({entry.offset for entry in store.entries()}) == 2  # both who have a pin read on
    assert {entry.offset for entry in store.entries()} >= {first}
    with pytest.raises(IdClash, match="different objects with the id"):
        store.pin(b"a", "third reader")


@pytest.mark.parametrize("keeper", [None, "other reader"])
def test_after_a_clash_all_memory_comes_back(keeper: str | None) -> None:
    store = index()
    place(store, b"owner", "w", None)
    with pytest.raises(IdClash):
        place(store, b"stranger", "x", keeper)
    store.free([b"a"])  # whoever says so: the other one's may be meant
    assert b"a" in store
    if keeper is not None:
        store.free([b"a"], unpinning=keeper)
    assert store.used_bytes == KIB
    store.drop_owners([b"owner"])
    assert store.used_bytes == 0
    assert store.primary_count == 0
    assert list(store.entries()) == []


# ---------------------------------------------------------------- dead owners


class Looked(bytes):
    """A process id that counts how often an object's is looked at."""

    count = 0

    def __hash__(self) -> int:
        Looked.count += 1
        return super().__hash__()


def of_owners(count: int) -> StoreIndex:
    store = index(2 * count * KIB)
    for number in range(count):
        name = number.to_bytes(2, "big")
        put(store, name, owner_worker=Looked(name), owner_node=Looked(b"odd" if number % 2 else b"even"))
        store.unpin(name, "w")
    return store


def test_objects_of_dead_owners_go() -> None:
    store = of_owners(10)
    store.pin(bytes([0, 3]), "reader")
    assert store.drop_owners({bytes([0, 3]), bytes([0, 4]), b"stranger"})
    assert (len(store), store.used_bytes) == (8, 9 * KIB)
    store.unpin(bytes([0, 3]), "reader")
    assert store.used_bytes == 8 * KIB
    assert not store.drop_owners({bytes([0, 3])})


def test_objects_of_a_dead_nodes_processes_go() -> None:
    store = of_owners(10)
    assert store.drop_node(b"odd")
    assert sorted(entry.object_id[1] for entry in store.entries()) == [0, 2, 4, 6, 8]
    assert not store.drop_node(b"odd")


def test_the_death_of_one_owner_looks_at_its_own_objects_only() -> None:
    store = of_owners(1000)
    Looked.count = 0
    for number in range(500):
        store.drop_owners({number.to_bytes(2, "big")})
    assert len(store) == 500
    assert Looked.count < 500 * 10


def test_what_a_process_has_not_finished_is_found() -> None:
    store = index()
    store.create(b"a", KIB, "w")
    store.create(b"b", KIB, "w")
    put(store, b"c")
    store.create(b"d", KIB, "other")
    store.free([b"b"])
    assert sorted(store.unsealed_of("w")) == [b"a", b"b"]
    assert store.unsealed_of("nobody") == []
