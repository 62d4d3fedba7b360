"""Who ends when a node runs low on memory."""

from __future__ import annotations

import random

from runtime._core.memory_policy import Holder, Victim, choose


def holder(name: str, owner: str, since_s: float, retriable: bool = True) -> Holder:
    return Holder(name, owner.encode(), retriable, since_s)


def test_nobody_runs() -> None:
    assert choose([]) is None


def test_the_newest_of_a_group_goes_and_runs_again() -> None:
    assert choose([holder("a", "x", 1), holder("b", "x", 3), holder("c", "x", 2)]) == Victim("b", True)


def test_the_last_of_a_group_is_not_repeated() -> None:
    assert choose([holder("a", "x", 1)]) == Victim("a", False)


def test_what_can_be_repeated_goes_first() -> None:
    holders = [holder("once", "x", 9, retriable=False), holder("again", "y", 1)]
    assert choose(holders) == Victim("again", False)


def test_what_cannot_be_repeated_goes_when_nothing_else_is_left() -> None:
    holders = [holder("a", "x", 1, retriable=False), holder("b", "x", 2, retriable=False)]
    assert choose(holders) == Victim("b", False)


def test_the_largest_group_gives() -> None:
    holders = [holder("a", "x", 1), holder("b", "x", 2), holder("c", "y", 9)]
    assert choose(holders) == Victim("b", True)


def test_of_equal_groups_the_one_with_the_newest_worker_gives() -> None:
    assert choose([holder("a", "x", 1), holder("b", "y", 2)]) == Victim("b", False)


def test_killing_one_after_the_other_leaves_each_owner_its_oldest_until_the_end() -> None:
    chance = random.Random(7)
    holders = [holder(f"{owner}{n}", owner, chance.random()) for owner in "xyz" for n in range(4)]
    oldest = {o: min((h for h in holders if h.owner == o.encode()), key=lambda h: h.since_s) for o in "xyz"}
    while len(holders) > 3:
        victim = choose(holders)
        assert victim is not None
        assert victim.retry
        holders = [h for h in holders if h.worker != victim.worker]
    assert {h.worker for h in holders} == {h.worker for h in oldest.values()}
