from __future__ import annotations

import random

from autoscaler.backoff import SPREAD, THROTTLE_BASE_S, THROTTLE_MOST_S, Throttle, doubled, spread

NOW = 1000.0


def test_pauses_are_spread_and_never_shorter() -> None:
    rng = random.Random(1)
    pauses = [spread(10.0, rng) for _ in range(100)]
    assert min(pauses) >= 10.0
    assert max(pauses) <= 10.0 * (1 + SPREAD)
    assert len({round(pause, 3) for pause in pauses}) > 50
    assert spread(10.0, None) == 10.0


def test_pauses_double_up_to_a_bound() -> None:
    assert [doubled(2.0, times, 10.0) for times in range(5)] == [2.0, 2.0, 4.0, 8.0, 10.0]
    assert doubled(2.0, 10_000, 10.0) == 10.0


def test_what_the_platform_says_is_honoured() -> None:
    throttle = Throttle()
    assert not throttle.is_on(NOW)
    throttle.slow_down(30.0, "slow down", NOW, random.Random(1))
    assert throttle.until_s >= NOW + 30.0
    assert throttle.is_on(NOW + 29.9)
    assert throttle.why == "slow down"
    until_s = throttle.until_s
    throttle.slow_down(1.0, "slow down", NOW + 1.0, None)
    assert throttle.until_s == until_s, "a shorter word does not shorten the pause"


def test_who_is_throttled_again_waits_longer_until_a_call_goes_well() -> None:
    throttle = Throttle()
    now, pauses = NOW, []
    for _ in range(10):
        throttle.slow_down(0.0, "x", now, None)
        throttle.slow_down(0.0, "x", now, None)  # those refused together count once
        pauses.append(throttle.until_s - now)
        now = throttle.until_s
    assert pauses[:3] == [THROTTLE_BASE_S, 2 * THROTTLE_BASE_S, 4 * THROTTLE_BASE_S]
    assert pauses[-1] == THROTTLE_MOST_S
    throttle.went_well(throttle.until_s - 1.0)
    throttle.slow_down(0.0, "x", now, None)
    assert throttle.until_s == now + THROTTLE_MOST_S, "a call from before the pause proves nothing"
    throttle.went_well(throttle.until_s)
    now = throttle.until_s
    throttle.slow_down(0.0, "x", now, None)
    assert throttle.until_s == now + THROTTLE_BASE_S
