from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.offerings import MOST_S, Offerings, allowed, market_of
from autoscaler.provider import (
    SPOT,
    Auth,
    Capacity,
    Config,
    Offer,
    ProviderError,
    Quota,
    Transient,
)
from tests.autoscaler.build import NOW, SMALL

A, B = Offer("a", price=1.0), Offer("b", price=2.0)


def test_a_refusal_rests_one_offer_only() -> None:
    offerings = Offerings()
    offerings.refused("small", A, Capacity("none"), NOW)
    assert offerings.penalty_of("small", A, NOW) is not None
    assert offerings.penalty_of("small", B, NOW) is None
    assert offerings.penalty_of("big", A, NOW) is None


@pytest.mark.parametrize("error", [Auth("expired"), Config("no image")])
def test_what_is_wrong_everywhere_rests_the_whole_type(error: ProviderError) -> None:
    offerings = Offerings()
    offerings.refused("small", A, error, NOW)
    assert offerings.penalty_of("small", B, NOW) is not None
    assert offerings.penalty_of("big", A, NOW) is None


def test_rests_grow_and_are_bounded() -> None:
    offerings = Offerings()
    now, rests = NOW, []
    for _ in range(12):
        penalty = offerings.refused("small", A, Quota("enough"), now)
        rests.append(penalty.until_s - now)
        now = penalty.until_s
    assert rests[0] < rests[1] < rests[2]
    assert rests[-1] == MOST_S


def test_one_burst_counts_once() -> None:
    offerings = Offerings()
    first = offerings.refused("small", A, Capacity("none"), NOW)
    second = offerings.refused("small", A, Capacity("none"), NOW + 1)
    assert first.failures == second.failures == 1


def test_success_forgives() -> None:
    offerings = Offerings()
    offerings.refused("small", A, Capacity("none"), NOW)
    offerings.succeeded("small", A)
    assert offerings.active(NOW) == []
    assert offerings.everything() == []


def test_it_ends_by_itself() -> None:
    offerings = Offerings()
    penalty = offerings.refused("small", A, Quota("5 of 5"), NOW)
    assert offerings.penalty_of("small", A, penalty.until_s) is None
    assert offerings.active(penalty.until_s) == []


def test_transient_errors_say_themselves_how_long() -> None:
    assert Offerings().refused("small", A, Transient("slow down", 42.0), NOW).until_s == NOW + 42.0


def test_it_is_kept_over_a_restart() -> None:
    offerings = Offerings()
    offerings.refused("small", A, Capacity("none"), NOW)
    again = Offerings(offerings.everything())
    assert again.penalty_of("small", A, NOW) == offerings.penalty_of("small", A, NOW)


@pytest.mark.parametrize(
    ("kind", "offers", "expected"),
    [
        (SMALL, [], [Offer()]),
        (SMALL, [B, A], [A, B]),
        (replace(SMALL, zones=("b", "a")), [A, B], [B, A]),
        (replace(SMALL, zones=("c",)), [A, B], []),
        (replace(SMALL, max_price=1.5), [A, B], [A]),
        (SMALL, [Offer("a", SPOT, 0.1), A], [A]),
        (replace(SMALL, spot=True), [A, Offer("b", SPOT, 0.5)], [Offer("b", SPOT, 0.5), A]),
        (replace(SMALL, zones=("z",)), [Offer("", price=1.0)], [Offer("", price=1.0)]),
    ],
)
def test_what_the_operator_allows(kind: object, offers: list[Offer], expected: list[Offer]) -> None:
    assert allowed(kind, offers) == expected  # type: ignore[arg-type]


def test_the_next_offer_takes_over() -> None:
    offerings = Offerings()
    kind = replace(SMALL, spot=True)
    spot = Offer("a", SPOT, 0.2)
    offers = {"small": [A, spot]}
    assert market_of(kind, offers, offerings, NOW).offers == (spot, A)
    offerings.refused("small", spot, Capacity("none"), NOW)
    assert market_of(kind, offers, offerings, NOW).offers == (A,)


def test_a_closed_market_says_why_and_until_when() -> None:
    offerings = Offerings()
    later = offerings.refused("small", A, Quota("5 of 5"), NOW)
    sooner = offerings.refused("small", B, Capacity("none in b"), NOW)
    market = market_of(SMALL, {"small": [A, B]}, offerings, NOW)
    assert not market.is_open
    assert market.blocked == "none in b"
    assert market.blocked_until_s == sooner.until_s < later.until_s


def test_without_any_allowed_offer_it_says_so() -> None:
    market = market_of(replace(SMALL, max_price=0.1), {"small": [A]}, Offerings(), NOW)
    assert not market.is_open
    assert "zones and prices" in market.blocked
