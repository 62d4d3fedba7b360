"""The machines that a plan wants, and which of them may start now.

Growth has a pace, and while most machines fail their setup hardly any may start. What is put off is told to those
whose demand it was for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.demand import Shape
from autoscaler.packing import NodeClass
from autoscaler.policy import Candidate
from autoscaler.provider import Offer

MOST_NAMED = 3
"""Of the work that machines are launched for."""
FAILING = "most of the last machines failed their setup, so that hardly any may start now"


@dataclass(frozen=True, slots=True)
class Launch:
    """`count` machines of a type from one offer. `work`: the demand of that reason that they are for, counted."""

    node_type: str
    offer: Offer
    count: int
    reason: str
    work: tuple[tuple[str, int], ...] = ()

    @property
    def why(self) -> str:
        """The reason with the work, in a line."""
        if not self.work:
            return self.reason
        parts = [f"{count} x {text}" for text, count in self.work[:MOST_NAMED]]
        if len(self.work) > MOST_NAMED:
            parts.append(f"{len(self.work) - MOST_NAMED} more shapes")
        return f"{self.reason}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class Wish:
    """Some equal machines.

    Attributes:
        is_paced: they count against the pace of growth.
        holds: whose demand each is for, and how many copies of it.
        members: their names in the pool, if other demand may have been put on them.
    """

    candidate: Candidate
    count: int
    reason: str
    is_paced: bool = True
    holds: tuple[tuple[Hashable, int], ...] = ()
    members: Sequence[str] = ()


@dataclass(slots=True)
class Started:
    """What came of the wishes. `put_off`: whose demand must wait, why, and how many copies of it."""

    launches: tuple[Launch, ...] = ()
    put_off: dict[tuple[Hashable, str], int] = field(default_factory=dict)


def start(
    wishes: Iterable[Wish],
    pace: Mapping[str, int],
    speed: float,
    allowance: int | None,
    new_nodes: Iterable[NodeClass],
) -> Started:
    """Starts what may start, in the order of the wishes, and merges it by type, offer and reason.

    Args:
        pace: per type, how many paced machines more may start.
        speed: the configured one, for the explanation.
        allowance: the most machines of all types; None: no such limit.
        new_nodes: the classes of the machines that are wished for.
    """
    left = dict(pace)
    merged: dict[tuple[str, str, str, str], tuple[Offer, int]] = {}
    work: dict[tuple[str, str, str, str], dict[Shape, int]] = {}
    started = Started()
    late: dict[str, str] = {}
    for wish in wishes:
        name, offer, count, why = wish.candidate.name, wish.candidate.offer, wish.count, ""
        if wish.is_paced:
            if left.get(name, 0) < count:
                count = left.get(name, 0)
                why = (
                    f"no more machines of {name!r} may start just now, while others of them are on their way "
                    f"(upscaling_speed {speed:g})"
                )
            left[name] = left.get(name, 0) - count
        if allowance is not None:
            if allowance < count:
                count, why = allowance, FAILING
            allowance -= count
        if count > 0:
            key = (name, offer.zone, offer.market, wish.reason)
            merged[key] = offer, count + (merged[key][1] if key in merged else 0)
            for owner, copies in wish.holds:
                if isinstance(owner, Shape):
                    shapes = work.setdefault(key, {})
                    shapes[owner] = shapes.get(owner, 0) + copies * count
        if count < wish.count:
            for owner, copies in wish.holds:
                _put_off(started, owner, why, copies * (wish.count - count))
            late.update(dict.fromkeys(wish.members[count:], why))
    if late:
        for entry in new_nodes:
            for name in entry.members:
                if name in late:
                    for owner, copies in entry.holds:
                        _put_off(started, owner, late[name], copies)
    started.launches = tuple(
        Launch(key[0], offer, count, key[3], _named(work.get(key, {})))
        for key, (offer, count) in merged.items()
    )
    return started


def _named(work: Mapping[Shape, int]) -> tuple[tuple[str, int], ...]:
    return tuple((str(shape), count) for shape, count in work.items())


def _put_off(started: Started, owner: Hashable, why: str, copies: int) -> None:
    started.put_off[owner, why] = started.put_off.get((owner, why), 0) + copies
