"""Which offers may be taken now: a refused one rests for a while, longer each time, and the next one is
tried."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.backoff import doubled, spread
from autoscaler.provider import (
    ON_DEMAND,
    SPOT,
    Auth,
    Capacity,
    Config,
    NodeType,
    Offer,
    ProviderError,
    Quota,
    Transient,
)

BASE_S = 15.0
MOST_S = 600.0
CAPACITY_MOST_S = 30.0
"""Stock comes back at any moment, and goes to who asks then: an offer without capacity is asked often."""


@dataclass(frozen=True, slots=True)
class Penalty:
    """Why and until when one way to get machines is left alone.

    Attributes:
        failures: refusals in a row; those during one rest count once.
        lost: machines came and were taken back within minutes: that one comes proves nothing.
    """

    node_type: str
    zone: str
    market: str
    reason: str
    until_s: float
    failures: int
    lost: bool = False


Key = tuple[str, str, str]


def first_rest_s(error: ProviderError) -> float:
    """How long the first refusal of a kind keeps an offer back."""
    if isinstance(error, Transient):
        return max(1.0, error.retry_after_s)
    if isinstance(error, Quota):
        return 4 * BASE_S
    if isinstance(error, Auth | Config):
        return 2 * BASE_S
    return BASE_S


def longest_rest_s(error: ProviderError, lost: bool) -> float:
    """How long refusals of a kind keep an offer back at most."""
    return CAPACITY_MOST_S if isinstance(error, Capacity) and not lost else MOST_S


def covers_all_offers(error: ProviderError) -> bool:
    """Whether the error says something about the node type whatever the zone: wrong settings, wrong
    credentials."""
    return isinstance(error, Auth | Config) and not isinstance(error, Capacity)


class Offerings:
    """The penalties of every (type, zone, market). Pure: time is given."""

    def __init__(self, penalties: Sequence[Penalty] = ()) -> None:
        self._penalties: dict[Key, Penalty] = {(p.node_type, p.zone, p.market): p for p in penalties}

    def refused(
        self,
        node_type: str,
        offer: Offer,
        error: ProviderError,
        now: float,
        rng: random.Random | None = None,
        lost: bool = False,
    ) -> Penalty:
        """Notes a refusal: the offer rests, twice as long as the last time. `lost`: what it gave was taken
        back soon."""
        everywhere = covers_all_offers(error)
        key: Key = (node_type, "*", "*") if everywhere else (node_type, offer.zone, offer.market)
        known = self._penalties.get(key)
        failures = 1 if known is None else known.failures + 1
        if known is not None and now < known.until_s:
            failures = known.failures  # one burst of refusals counts once
        lost = lost or (known is not None and known.lost)
        rest_s = spread(doubled(first_rest_s(error), failures, longest_rest_s(error, lost)), rng)
        until_s = max(now + rest_s, known.until_s if known is not None else 0.0)
        penalty = Penalty(*key, reason=str(error), until_s=until_s, failures=failures, lost=lost)
        self._penalties[key] = penalty
        return penalty

    def succeeded(self, node_type: str, offer: Offer) -> None:
        """A machine came: the past is forgiven, but for machines that were taken back."""
        self._penalties.pop((node_type, "*", "*"), None)
        known = self._penalties.get((node_type, offer.zone, offer.market))
        if known is not None and not known.lost:
            self._forget(known)

    def lasted(self, node_type: str, offer: Offer, joined_s: float) -> None:
        """A machine was left to us for long: if it came after the last rest, all is forgiven."""
        known = self._penalties.get((node_type, offer.zone, offer.market))
        if known is not None and joined_s > known.until_s:
            self._forget(known)

    def _forget(self, penalty: Penalty) -> None:
        del self._penalties[(penalty.node_type, penalty.zone, penalty.market)]

    def penalty_of(self, node_type: str, offer: Offer, now: float) -> Penalty | None:
        """What keeps the offer back now."""
        for key in ((node_type, "*", "*"), (node_type, offer.zone, offer.market)):
            penalty = self._penalties.get(key)
            if penalty is not None and now < penalty.until_s:
                return penalty
        return None

    def active(self, now: float) -> list[Penalty]:
        """The penalties that hold now, soonest to end first."""
        return sorted(
            (p for p in self._penalties.values() if now < p.until_s), key=lambda p: (p.until_s, p.node_type)
        )

    def everything(self) -> list[Penalty]:
        """For keeping: expired ones too, for they say how long the next one lasts."""
        return list(self._penalties.values())


def allowed(node_type: NodeType, offers: Sequence[Offer]) -> list[Offer]:
    """The offers that the operator accepts, best first: spot before on-demand when wanted, zones in the order
    given, then by price. A platform without any list of offers has one, without zone and price."""
    zones = {zone: position for position, zone in enumerate(node_type.zones)}
    fine = [
        offer
        for offer in (offers or (Offer(),))
        if (not zones or not offer.zone or offer.zone in zones)
        and (node_type.max_price is None or offer.price <= node_type.max_price)
        and (offer.market == ON_DEMAND or (node_type.spot and offer.market == SPOT))
    ]
    return sorted(
        fine,
        key=lambda offer: (
            offer.market != SPOT,
            zones.get(offer.zone, len(zones)),
            offer.price,
            offer.zone,
        ),
    )


@dataclass(frozen=True, slots=True)
class Market:
    """What can be launched of one type now: the open offers best first, or why there is none.

    Attributes:
        resting: offers that are left alone for a while -> why, and until when.
    """

    node_type: NodeType
    offers: tuple[Offer, ...]
    blocked: str = ""
    blocked_until_s: float = 0.0
    resting: tuple[tuple[Offer, str, float], ...] = ()

    @property
    def is_open(self) -> bool:
        return bool(self.offers)

    @property
    def allowed(self) -> list[Offer]:
        """All that may be taken now or later."""
        return [*self.offers, *(offer for offer, _, _ in self.resting)]


def market_of(
    node_type: NodeType,
    offers: Mapping[str, Sequence[Offer]],
    penalties: Offerings,
    now: float,
    closed: str = "",
) -> Market:
    """Looks at a type's offers through the operator's limits and the penalties. `closed`: nothing may be
    launched of it, and why."""
    if closed:
        return Market(node_type, (), closed)
    fine = allowed(node_type, offers.get(node_type.name, ()))
    if not fine:
        return Market(node_type, (), "no offer in the allowed zones and prices")
    held = [(offer, penalties.penalty_of(node_type.name, offer, now)) for offer in fine]
    usable = tuple(offer for offer, penalty in held if penalty is None)
    resting = tuple(
        (offer, penalty.reason, penalty.until_s) for offer, penalty in held if penalty is not None
    )
    if usable:
        return Market(node_type, usable, resting=resting)
    _, reason, until_s = min(resting, key=lambda entry: entry[2])
    return Market(node_type, (), reason, until_s, resting)
