"""References among the arguments of a call: small values travel in the push, others as references."""

from __future__ import annotations

from runtime._ownership.arguments import fill
from runtime._ownership.records import INLINE_ERROR, STORED, Entry, PackedArguments
from runtime._wire.messages.worker import Push, Value
from tests.runtime._ownership.fakes import PLAIN, Network, address_of, object_name

US = address_of("us")
PUSH = Push(b"t" * 24, b"f", "", None, [], 1)


def entry(name: str, value: Value | None, owner: str = "") -> Entry:
    process = Network("us").processes[0]
    return Entry(
        object_name(name), address_of(owner) if owner else None, released=process.released, value=value
    )


def packed(places: dict[int | str, Entry]) -> PackedArguments:
    entries = list(places.values())
    return PackedArguments(None, entries, list(places), entries)


def test_small_values_at_positions_travel_together() -> None:
    push, error = fill(packed({2: entry("a", PLAIN), 0: entry("b", PLAIN, "other")}), PUSH, US)
    assert error is None
    assert push.refs == []
    assert push.inline is not None
    assert (push.inline.positions, push.inline.data) == ([2, 0], [PLAIN.data, PLAIN.data])


def test_what_is_large_named_or_nests_references_travels_as_a_reference() -> None:
    stored = Value(STORED, b"", (), (), (b"n" * 28,), 10)
    nests = Value(0, b"x", (), ((object_name("inner"), US),))
    buffers = Value(0, b"x", (b"buffer",))
    places: dict[int | str, Entry] = {
        0: entry("a", stored, "other"),
        "word": entry("b", PLAIN),
        1: entry("c", nests),
        2: entry("d", buffers),
    }
    push, error = fill(packed(places), PUSH, US)
    assert error is None
    assert push.inline is None
    assert [(ref.position, ref.keyword) for ref in push.refs] == [(0, ""), (-1, "word"), (1, ""), (2, "")]
    assert [ref.owner for ref in push.refs] == [address_of("other"), US, US, US]
    assert [ref.value for ref in push.refs] == [stored, PLAIN, nests, buffers]


def test_the_first_error_is_returned_and_counts_as_seen() -> None:
    errors = [Value(INLINE_ERROR, b"first"), Value(INLINE_ERROR, b"second")]
    first, second = entry("a", errors[0]), entry("b", errors[1])
    push, error = fill(packed({0: entry("c", PLAIN), 1: first, 2: second}), PUSH, US)
    assert push is PUSH
    assert error == errors[0]
    assert (first.seen, second.seen) == (True, False)
