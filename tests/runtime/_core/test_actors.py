from __future__ import annotations

import pytest

from runtime._core.actors import (
    LONGEST_DELAY_S,
    UNLIMITED,
    ActorEvent,
    after_loss,
    has_restart_left,
    restart_delay_s,
)


@pytest.mark.parametrize(
    ("restarts", "max_restarts", "left"),
    [(0, 0, False), (0, 1, True), (1, 1, False), (2, 3, True), (3, 3, False), (10**6, UNLIMITED, True)],
)
def test_restart_budget(restarts: int, max_restarts: int, left: bool) -> None:
    assert has_restart_left(restarts, max_restarts) is left


@pytest.mark.parametrize(
    ("restarts", "max_restarts", "intended", "event"),
    [
        (0, 0, False, ActorEvent.LOST_FOR_GOOD),
        (0, 0, True, ActorEvent.EXITED),
        (0, 5, True, ActorEvent.EXITED),
        (0, 5, False, ActorEvent.LOST),
        (5, 5, False, ActorEvent.LOST_FOR_GOOD),
        (99, UNLIMITED, False, ActorEvent.LOST),
        (99, UNLIMITED, True, ActorEvent.EXITED),
    ],
)
def test_what_the_end_of_a_process_means(
    restarts: int, max_restarts: int, intended: bool, event: ActorEvent
) -> None:
    assert after_loss(restarts, max_restarts, intended) is event


def test_the_first_restart_is_at_once() -> None:
    assert restart_delay_s(0) == 0
    assert restart_delay_s(1) == 0


def test_delays_grow_to_a_bound() -> None:
    delays = [restart_delay_s(lives) for lives in range(2, 40)]
    assert delays == sorted(delays)
    assert delays[0] > 0
    assert delays[-1] == LONGEST_DELAY_S
    assert restart_delay_s(10**9) == LONGEST_DELAY_S
