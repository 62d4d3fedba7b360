"""Waiting actors in lines: the order in which they came, and what is counted."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from runtime._control.actor_queue import ActorQueue
from runtime._control.actor_table import Actor
from tests.sim.control import specs


def actor(number: int, cpus: int = 1) -> Actor:
    return Actor(specs.actor(number, needs={"CPU": cpus}))


def numbers(queue: ActorQueue, room: set[int]) -> list[bytes]:
    """Who gets a place, in order, when only actors of these sizes fit."""
    served = []
    for line in queue.in_turn():
        first = line.first
        if first.request.resources["CPU"] // 10_000 in room:
            served.append(first.actor_id)
            queue.discard(first)
    return served


def test_equal_actors_are_one_line() -> None:
    queue = ActorQueue()
    for number in range(1000):
        queue.add(actor(number, cpus=1 + number % 2))
    assert sorted(len(line) for line in queue.lines()) == [500, 500]
    (counts, _) = (line.counts for line in queue.lines())
    assert list(counts.values()) == [500]


def test_a_line_that_has_no_room_is_looked_at_once() -> None:
    queue = ActorQueue()
    for number in range(1000):
        queue.add(actor(number))
    assert len(list(queue.in_turn())) == 1


def test_who_comes_back_stands_at_the_end() -> None:
    queue = ActorQueue()
    first, second = actor(1), actor(2)
    queue.add(first)
    queue.add(second)
    queue.discard(first)
    queue.add(first)
    assert numbers(queue, {1}) == [second.actor_id, first.actor_id]
    assert not queue


def test_adding_twice_and_leaving_twice_change_nothing() -> None:
    queue = ActorQueue()
    one, two = actor(1), actor(2)
    queue.add(one)
    queue.add(two)
    queue.changed = False
    queue.add(one)
    assert not queue.changed
    queue.discard(one)
    queue.changed = False
    queue.discard(one)
    assert not queue.changed
    assert numbers(queue, {1}) == [two.actor_id]


@given(st.lists(st.integers(1, 4), max_size=30), st.sets(st.integers(1, 4)), st.data())
def test_places_go_to_those_who_came_first(sizes: list[int], room: set[int], data: st.DataObject) -> None:
    queue = ActorQueue()
    actors = [actor(number, cpus) for number, cpus in enumerate(sizes)]
    for one in actors:
        queue.add(one)
    gone = data.draw(st.sets(st.integers(0, max(0, len(sizes) - 1)))) if sizes else set()
    for number in gone:
        queue.discard(actors[number])
    left = [one for number, one in enumerate(actors) if number not in gone]
    assert sum(len(line) for line in queue.lines()) == len(left)
    assert Counter(len(line) == sum(line.counts.values()) for line in queue.lines())[False] == 0
    wanted = [one.actor_id for one in left if one.request.resources["CPU"] // 10_000 in room]
    assert numbers(queue, room) == wanted
