from __future__ import annotations

from autoscaler.flapping import BASE_S, MOST_S, EarlyDeaths

NOW = 1000.0


def until(deaths: EarlyDeaths, now: float) -> float:
    return deaths.resting(now).get("a", (0.0, ""))[0]


def test_the_first_death_is_replaced_at_once() -> None:
    deaths = EarlyDeaths()
    deaths.died("a", NOW - 60, NOW)
    assert not deaths.resting(NOW)


def test_those_that_were_launched_together_die_together() -> None:
    deaths = EarlyDeaths()
    for number in range(20):
        deaths.died("a", NOW - 60, NOW + number)
    assert not deaths.resting(NOW + 20)


def test_each_further_wave_rests_twice_as_long() -> None:
    deaths = EarlyDeaths()
    now, rests = NOW, []
    for _ in range(12):
        deaths.died("a", now - 1.0, now)
        rests.append(until(deaths, now) - now if deaths.resting(now) else 0.0)
        now += 1000.0
    assert rests[:4] == [0.0, BASE_S, 2 * BASE_S, 4 * BASE_S]
    assert rests[-1] == MOST_S
    assert "12 times in a row" in deaths.resting(now - 1000.0)["a"][1]


def test_a_node_that_lasts_ends_it_if_it_is_younger_than_the_last_death() -> None:
    deaths = EarlyDeaths()
    deaths.died("a", NOW - 1, NOW)
    deaths.died("a", NOW + 1, NOW + 2)
    deaths.lasted("a", NOW - 500)
    assert deaths.resting(NOW + 3)
    deaths.lasted("a", NOW + 3)
    assert not deaths.everything()


def test_it_is_kept_and_a_new_configuration_starts_anew() -> None:
    deaths = EarlyDeaths()
    deaths.died("a", NOW - 1, NOW, "h1")
    deaths.died("a", NOW + 1, NOW + 2, "h1")
    again = EarlyDeaths(deaths.everything())
    assert again.resting(NOW + 3) == deaths.resting(NOW + 3)
    assert again.under({"a": "h1"}).resting(NOW + 3)
    assert not again.under({"a": "h2"}).resting(NOW + 3)
