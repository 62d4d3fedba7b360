"""One thread leads a pump at a time, and no thread that follows sleeps although nobody leads."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from typing import Any

import pytest

from runtime._core.fsm import InvalidTransition, reachable_states, terminal_states
from runtime._transport import leadership
from runtime._transport.leadership import (
    FOLLOWER_TRANSITIONS,
    LEADER_TRANSITIONS,
    Follower,
    FollowerState,
    Leader,
    Leadership,
)
from tests.polling import eventually

LIMIT_S = 60.0


def nothing() -> None:
    """Nobody is to be told."""


def never() -> bool:
    return False


@pytest.fixture
def lead() -> Leadership:
    return Leadership(nothing)


class Sleeps:
    """In place of `threading.Event`: notes who would sleep."""

    asleep: list[Sleeps] = []

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        self.is_set = True

    def wait(self, _timeout_s: float) -> None:
        if not self.is_set:
            Sleeps.asleep.append(self)


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> list[Sleeps]:
    monkeypatch.setattr(leadership.threading, "Event", Sleeps)
    Sleeps.asleep = []
    return Sleeps.asleep


# ------------------------------------------------------------ the tables


def test_every_state_can_be_reached_and_left() -> None:
    assert reachable_states(Leader.NOBODY, LEADER_TRANSITIONS) == set(Leader)
    assert terminal_states(Leader, LEADER_TRANSITIONS) == {Leader.CLOSED}
    assert reachable_states(FollowerState.JOINING, FOLLOWER_TRANSITIONS) == set(FollowerState)
    assert terminal_states(FollowerState, FOLLOWER_TRANSITIONS) == {FollowerState.AWAKE}


def test_every_edge_leads_where_its_key_says() -> None:
    for table in (LEADER_TRANSITIONS, FOLLOWER_TRANSITIONS):
        for (_, target), edge in table.items():
            assert edge.target is target
            assert edge.reason


def test_a_follower_that_is_awake_does_not_fall_asleep_again() -> None:
    follower = Follower()
    follower.move(FollowerState.AWAKE)
    with pytest.raises(InvalidTransition, match="AWAKE"):
        follower.move(FollowerState.ASLEEP)


# ------------------------------------------------------------ leading


@pytest.mark.parametrize("second", [Leader.CALLER, Leader.BACKGROUND, Leader.VISITOR])
@pytest.mark.parametrize("first", [Leader.CALLER, Leader.BACKGROUND, Leader.VISITOR])
def test_one_leads_at_a_time(lead: Leadership, first: Leader, second: Leader) -> None:
    assert lead.take(first)
    assert lead.is_led
    assert not lead.take(second)
    assert lead.leader is first
    lead.leave()
    assert not lead.is_led
    assert lead.take(second)
    assert lead.leader is second


def test_only_a_leader_leaves(lead: Leadership) -> None:
    with pytest.raises(InvalidTransition, match="NOBODY"):
        lead.leave()


def test_nobody_is_no_leader(lead: Leadership) -> None:
    with pytest.raises(InvalidTransition):
        lead.take(Leader.NOBODY)
    assert not lead.is_led


def test_nobody_leads_after_the_end(lead: Leadership) -> None:
    lead.close(LIMIT_S)
    assert lead.leader is Leader.CLOSED
    assert not lead.take(Leader.CALLER)
    lead.close(0.0)


def test_the_end_waits_for_the_leader(lead: Leadership) -> None:
    lead.take(Leader.CALLER)
    closing = threading.Thread(target=lead.close, args=(LIMIT_S,))
    closing.start()
    assert lead.leader is Leader.CALLER
    lead.leave()
    closing.join(LIMIT_S)
    assert lead.leader is Leader.CLOSED


def test_a_leader_that_ends_the_pump_itself_does_not_wait(lead: Leadership) -> None:
    lead.take(Leader.CALLER)
    lead.close(10 * LIMIT_S)
    assert lead.leader is Leader.CALLER
    lead.leave()


def test_it_is_told_when_a_leader_has_left() -> None:
    told: list[bool] = []
    lead = Leadership(lambda: told.append(lead.is_led))
    lead.take(Leader.CALLER)
    lead.leave()
    assert told == [False]


# ------------------------------------------------------------ following


def test_a_follower_sleeps_while_another_thread_leads(lead: Leadership, asleep: list[Sleeps]) -> None:
    lead.take(Leader.CALLER)
    seen: list[Any] = []
    lead.follow(lambda: seen.extend(lead.followers), never, 1.0)
    assert asleep == [follower.event for follower in seen]
    assert len(seen) == 1
    assert seen[0].state is FollowerState.AWAKE
    assert not lead.followers


def test_a_follower_does_not_sleep_when_the_leader_left_before_it_joined(
    lead: Leadership, asleep: list[Sleeps]
) -> None:
    lead.follow(nothing, never, 1.0)
    assert not asleep


def test_a_follower_does_not_sleep_when_the_leader_leaves_while_it_joins(
    lead: Leadership, asleep: list[Sleeps]
) -> None:
    lead.take(Leader.CALLER)

    def leave_and_lead_again() -> None:
        lead.leave()
        lead.take(Leader.BACKGROUND)

    lead.follow(leave_and_lead_again, never, 1.0)
    assert not asleep


def test_a_follower_does_not_sleep_when_there_is_nothing_to_wait_for(
    lead: Leadership, asleep: list[Sleeps]
) -> None:
    lead.take(Leader.CALLER)
    lead.follow(nothing, lambda: True, 1.0)
    assert not asleep


def test_a_follower_that_is_interrupted_follows_no_more(lead: Leadership) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lead.follow(interrupt, never, 1.0)
    assert not lead.followers


def test_a_leader_that_leaves_wakes_all_followers(lead: Leadership) -> None:
    lead.take(Leader.CALLER)
    threads = [threading.Thread(target=lead.follow, args=(nothing, never, LIMIT_S)) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: len(lead.followers) == 3)
    lead.leave()
    for thread in threads:
        thread.join(LIMIT_S)
    assert not any(thread.is_alive() for thread in threads)


def test_no_follower_sleeps_for_ever(lead: Leadership) -> None:
    """Threads that wait, as in `Pump.wait`: one that missed the end of a leader would sleep until the time is over."""
    led: list[int] = []

    def wait(number: int) -> None:
        turns = 0
        while turns < 200:
            if lead.take(Leader.CALLER):
                led.append(number)
                turns += 1
                lead.leave()
            else:
                lead.follow(nothing, never, 10 * LIMIT_S)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=wait, args=(number,), daemon=True) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
    finally:
        sys.setswitchinterval(interval)
    assert not any(thread.is_alive() for thread in threads)
    assert Counter(led) == dict.fromkeys(range(4), 200)
