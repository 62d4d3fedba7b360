from __future__ import annotations

from autoscaler.health import OPEN_MOST_S, REST_MOST_S, TRIP_AT, SetupHealth
from tests.autoscaler.build import NOW


def test_nothing_known_nothing_held() -> None:
    health = SetupHealth()
    assert health.resting(NOW) == {}
    assert health.allowance(NOW, 7) is None
    assert health.open_until_s == 0.0


def test_a_failing_type_rests_longer_each_time() -> None:
    health, now, rests = SetupHealth(), NOW, []
    for _ in range(12):
        health.record("small", False, now)
        until_s, why = health.resting(now)["small"]
        rests.append(until_s - now)
        assert "setup failed" in why
        now = until_s
    assert rests[0] < rests[1] < rests[2]
    assert rests[-1] == REST_MOST_S
    assert "big" not in health.resting(NOW)


def test_success_ends_the_rest() -> None:
    health = SetupHealth()
    health.record("small", False, NOW)
    health.record("small", True, NOW)
    assert health.resting(NOW) == {}


def test_most_failing_stops_all_launches_then_allows_one() -> None:
    health = SetupHealth()
    for _ in range(TRIP_AT - 1):
        health.record("small", False, NOW)
    assert health.allowance(NOW, 0) is None
    health.record("big", False, NOW)
    assert health.allowance(NOW, 0) == 0
    later = health.open_until_s
    assert later > NOW
    assert health.allowance(later, 0) == 1
    assert health.allowance(later, 1) == 0


def test_a_minority_of_failures_is_tolerated() -> None:
    health = SetupHealth()
    for _ in range(TRIP_AT):
        health.record("small", True, NOW)
        health.record("small", False, NOW)
    assert health.allowance(NOW, 0) is None


def test_a_trial_that_works_closes_it() -> None:
    health = SetupHealth()
    for _ in range(10):
        health.record("small", False, NOW)
    health.record("small", True, NOW + 1)
    assert health.allowance(NOW + 1, 50) is None


def test_it_stays_open_longer_each_time_within_bounds() -> None:
    health, now, spans = SetupHealth(), NOW, []
    for _ in range(20):
        health.record("small", False, now)
        if health.open_until_s:
            spans.append(health.open_until_s - now)
            now = health.open_until_s
    assert spans[0] < spans[1]
    assert spans[-1] == OPEN_MOST_S


def test_it_is_kept_over_a_restart() -> None:
    health = SetupHealth()
    for _ in range(5):
        health.record("small", False, NOW)
    again = SetupHealth(health.everything())
    assert again.allowance(NOW, 0) == 0
    assert again.resting(NOW) == health.resting(NOW)


def test_a_corrected_type_need_not_wait() -> None:
    health = SetupHealth()
    for _ in range(5):
        health.record("small", False, NOW, "old")
    health.record("big", False, NOW, "same")
    assert health.under({"small": "old", "big": "same"}) is health
    corrected = health.under({"small": "new", "big": "same"})
    assert corrected.allowance(NOW, 0) is None
    assert list(corrected.resting(NOW)) == ["big"]
