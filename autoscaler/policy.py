"""Which node type serves waiting work best, and what to tell when none does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.budgets import Limits
from autoscaler.demand import Shape
from autoscaler.offerings import Market
from autoscaler.packing import copies_in
from autoscaler.provider import NodeType, Offer
from autoscaler.snapshot import Profile, Snapshot, only
from runtime._core.resources import UNIT


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node type that may be launched now, with the offer it would be launched from and the labels that its
    nodes would then have, as far as they are asked about."""

    profile: Profile
    offer: Offer
    labels: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.profile.node_type

    @property
    def has_gpus(self) -> bool:
        return bool(self.profile.resources.get("GPU"))

    def fits(self, shape: Shape) -> bool:
        """Whether its nodes could hold one."""
        return shape.fits(self.profile.resources, self.labels)


class Menu:
    """What may be launched at all in one plan: the types that are open and not held back.

    Offers of a type that differ in labels which the demand asks about (zone, market) are choices of their own.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._choices: list[tuple[Candidate, ...]] = []
        for kind in snapshot.config.node_types:
            market = snapshot.markets.get(kind.name)
            profile = snapshot.profiles.get(kind.name)
            if market is None or profile is None or kind.name in snapshot.held:
                continue
            alike: dict[tuple[tuple[str, str], ...], list[Candidate]] = {}
            for offer in market.offers:
                labels = only(profile.labels_from(offer.zone, offer.market), snapshot.demand.label_keys)
                alike.setdefault(tuple(sorted(labels.items())), []).append(Candidate(profile, offer, labels))
            self._choices += [tuple(found) for found in alike.values()]

    def open(self, limits: Limits) -> list[Candidate]:
        """The choices for which there is room, each with the first offer that the price budget allows."""
        out = []
        for choice in self._choices:
            for candidate in choice:
                if limits.room(candidate.name, candidate.offer.price) > 0:
                    out.append(candidate)
                    break
        return out


# ---------------------------------------------------------------- why not


def could_hold(kind: NodeType, shape: Shape, snapshot: Snapshot) -> bool:
    """Whether nodes of a type could hold one, from any of its offers, taken or not."""
    profile = snapshot.profiles.get(kind.name)
    if profile is None or not copies_in(shape, profile.resources):
        return False
    return any(shape.accepts(labels) for labels in _possible_labels(kind, profile, snapshot))


def _possible_labels(kind: NodeType, profile: Profile, snapshot: Snapshot) -> list[dict[str, str]]:
    market = snapshot.markets.get(kind.name)
    offers = market.allowed if market is not None else ()
    found = [profile.labels_from(offer.zone, offer.market) for offer in offers]
    return found or [profile.labels_from("", "")]


def is_feasible(shape: Shape, snapshot: Snapshot) -> bool:
    """Whether some node of a type that may exist at all, or of today, could ever hold one."""
    return any(
        kind.max_workers > 0 and could_hold(kind, shape, snapshot) for kind in snapshot.config.node_types
    ) or any(
        node.state == "ALIVE" and copies_in(shape, node.total) and shape.accepts(node.labels)
        for node in snapshot.nodes
    )


def why_infeasible(shape: Shape, snapshot: Snapshot) -> str:
    """Says what the nearest node type lacks."""
    nearest: tuple[tuple[int, bool, float], str] | None = None
    for kind in snapshot.config.node_types:
        profile = snapshot.profiles.get(kind.name)
        if profile is None:
            continue
        gaps = [
            f"{name} {amount / UNIT:g} wanted, {profile.resources.get(name, 0) / UNIT:g} there"
            for name, amount in shape.resources
            if profile.resources.get(name, 0) < amount
        ]
        size = sum(
            1 - profile.resources.get(name, 0) / amount
            for name, amount in shape.resources
            if profile.resources.get(name, 0) < amount
        )
        if not any(shape.accepts(labels) for labels in _possible_labels(kind, profile, snapshot)):
            gaps.append("its labels do not match")
        if not gaps and kind.max_workers == 0:
            gaps.append("its max_workers is 0")
        key = (len(gaps), kind.max_workers == 0, size)
        if gaps and (nearest is None or key < nearest[0]):
            nearest = key, f"the nearest node type is {kind.name!r}: {'; '.join(gaps)}"
    return nearest[1] if nearest else "there are no node types"


def why_waiting(shapes: Sequence[Shape], snapshot: Snapshot, limits: Limits) -> str:
    """Says which limit keeps feasible work waiting: type by type, those that could hold one of the shapes."""
    reasons = [
        why
        for kind in snapshot.config.node_types
        if kind.max_workers > 0 and any(could_hold(kind, shape, snapshot) for shape in shapes)
        if (why := _why_no_more(kind, shapes, snapshot, limits))
    ]
    return "; ".join(dict.fromkeys(reasons)) or "the nodes that could hold it are busy"


def _why_no_more(kind: NodeType, shapes: Sequence[Shape], snapshot: Snapshot, limits: Limits) -> str:
    limit = limits.why(kind.name)
    if limit:
        return limit
    if kind.name in snapshot.held:
        return f"{kind.name!r}: {snapshot.held[kind.name]}"
    market: Market | None = snapshot.markets.get(kind.name)
    profile = snapshot.profiles[kind.name]
    if market is None:
        return ""

    def suits(offer: Offer) -> bool:
        labels = profile.labels_from(offer.zone, offer.market)
        return any(shape.accepts(labels) for shape in shapes)

    prices = [offer.price for offer in market.offers if suits(offer)]
    if not prices:
        resting = [reason for offer, reason, _ in market.resting if suits(offer)]
        return f"no machine of {kind.name!r} to be had: {resting[0] if resting else market.blocked}"
    limit = limits.why(kind.name, min(prices))
    if limit:
        return limit
    room = limits.room(kind.name, min(prices))
    if room < len(shapes):
        return (
            f"max_workers {kind.max_workers} of node type {kind.name!r}, that of the cluster and the price budget "
            f"leave room for {room} more"
        )
    return ""
