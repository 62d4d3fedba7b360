"""Which replicas are started, updated and stopped next."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.serve._core.rollout import Plan, Seen, free_ranks, node_for, plan, surge


def seen(name: str, **what: Any) -> Seen:
    """A replica that serves; o... has the version before, s... starts, u... has other options."""
    facts = {
        "is_current": not name.startswith("o"),
        "has_options": not name.startswith("u"),
        "serves": not name.startswith("s"),
        "settles": name.startswith("s"),
    }
    return Seen(name, int(name[1:]), **{**facts, **what})


@pytest.mark.parametrize(
    ("names", "wanted", "start", "stop", "update"),
    [
        ("", 3, 3, (), ()),
        ("c0 c1", 3, 1, (), ()),
        ("c0 c1 c2", 3, 0, (), ()),
        ("c0 c1 c2 c3", 3, 0, ("c3",), ()),
        ("c0 s1 c2 c3", 3, 0, ("s1",), ()),
        # Two more than wanted at most, and nothing stops before something else serves.
        ("o0 o1 o2", 3, 2, (), ()),
        ("o0 o1 o2 s0 s1", 3, 0, (), ()),
        ("o0 o1 o2 c0 s1", 3, 1, ("o2",), ()),
        ("o0 o1 c0 c1", 3, 1, ("o1",), ()),
        ("o0 c0 c1 c2", 3, 0, ("o0",), ()),
        ("o0 o1 o2", 1, 1, ("o2", "o1"), ()),
        ("c0 c1", 0, 0, ("c1", "c0"), ()),
        ("u0 u1 u2", 3, 0, (), ("u0", "u1")),
    ],
)
def test_the_next_moves(
    names: str, wanted: int, start: int, stop: tuple[str, ...], update: tuple[str, ...]
) -> None:
    replicas = [seen(name) for name in names.split()]
    assert plan(replicas, wanted, surge(3)) == Plan(start, stop, update)


def test_an_old_replica_that_serves_nobody_stops_at_once() -> None:
    assert plan([seen("o0", serves=False, settles=True)], 1, 1) == Plan(1, ("o0",))


def test_old_replicas_make_room_for_new_ones_that_find_none() -> None:
    assert plan([seen("o0"), seen("s0")], 1, 1).stop == ()
    assert plan([seen("o0"), seen("s0")], 1, 1, squeeze=1).stop == ("o0",)


def test_a_replica_that_takes_its_options_counts_as_one_of_those_that_change() -> None:
    taking = seen("u0", settles=True, has_options=True)
    assert plan([taking, seen("u1"), seen("u2")], 3, 2).update == ("u1",)


def test_how_many_more_there_may_be() -> None:
    assert [surge(wanted) for wanted in (1, 2, 3, 20)] == [1, 1, 2, 10]
    assert surge(20, 10) == 2


def test_ranks_have_no_gaps() -> None:
    assert free_ranks({0, 2, 3}, 3) == [1, 4, 5]


def test_nodes_are_filled_evenly_up_to_their_limit() -> None:
    nodes = {"a": {"CPU": 4.0}, "b": {"CPU": 4.0}, "small": {"CPU": 0.5}}
    assert node_for(nodes, {"a": 1}, 2, {"CPU": 1.0}) == "b"
    assert node_for(nodes, {"a": 1, "b": 2}, 2, {"CPU": 1.0}) == "a"
    assert node_for(nodes, {"a": 2, "b": 2}, 2, {"CPU": 1.0}) is None
