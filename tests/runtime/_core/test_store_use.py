"""What the objects of a node take, by job and by tag."""

from __future__ import annotations

from runtime._core.store_index import StoreIndex
from runtime._core.store_use import MAX_TAGS, Held, use_of

KIB = 1024


def object_id(job: int, number: int) -> bytes:
    """As `ids.job_of_object` reads it."""
    return number.to_bytes(20, "big") + job.to_bytes(4, "big") + bytes(4)


def test_bytes_in_memory_and_on_disk_by_job_and_tag() -> None:
    index = StoreIndex(64 * KIB)
    for number, (job, tag) in enumerate([(1, "a"), (1, "a"), (2, "a"), (2, "")]):
        assert index.create(object_id(job, number), KIB, "writer", tag=tag)
        index.seal(object_id(job, number), "writer")
        index.unpin(object_id(job, number), "writer")
    index.create_in_file(object_id(1, 4), 2 * KIB, "writer", "/file", tag="b")
    assert index.create(object_id(1, 5), 4 * KIB, "puller", primary=False, tag="")
    [spilled] = index.take_spillable(1)
    index.spilled(spilled, "/other")
    use = use_of(index.entries())
    assert use.in_memory == 5
    assert sorted(use.jobs.values()) == [Held(2 * KIB, 0, 2), Held(6 * KIB, 3 * KIB, 4)]
    assert use.tags == {"a": Held(3 * KIB, KIB, 3), "": Held(KIB, 0, 1), "b": Held(0, 2 * KIB, 1)}
    assert [tag for tag, _ in use.largest_tags()] == ["a", "b", ""]
    index.free([object_id(1, 4)])
    assert "b" in use_of(index.entries()).tags  # its writer has not finished with it


def test_the_largest_tags_are_told() -> None:
    index = StoreIndex(64 << 20)
    for number in range(MAX_TAGS + 5):
        assert index.create(object_id(1, number), KIB * (1 + number % 7), "writer", tag=str(number))
    told = use_of(index.entries()).largest_tags()
    assert len(told) == MAX_TAGS
    assert told[0][1].memory_bytes == 7 * KIB
