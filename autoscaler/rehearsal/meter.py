"""What machines cost: each is paid from the moment it exists until it is gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.provider import Machine, Offer

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class _Paid:
    node_type: str
    price: float
    since_s: float


@dataclass(slots=True)
class Meter:
    """Watches the machines there are. Machines of node type X cost what the offer of their zone and market
    says.

    Attributes:
        seconds: per node type, of machines that are gone.
        cost: likewise.
    """

    offers: Mapping[str, Sequence[Offer]]
    seconds: dict[str, float] = field(default_factory=dict)
    cost: dict[str, float] = field(default_factory=dict)
    _open: dict[str, _Paid] = field(default_factory=dict)

    def watch(self, machines: Iterable[Machine], now: float) -> tuple[list[Machine], int]:
        """Takes in what exists now; returns what is new, and how many are gone."""
        there = {machine.id: machine for machine in machines}
        new = [machine for key, machine in there.items() if key not in self._open]
        for machine in new:
            self._open[machine.id] = _Paid(machine.node_type, self._price(machine), now)
        gone = [key for key in self._open if key not in there]
        for key in gone:
            paid = self._open.pop(key)
            self._add(self.seconds, paid.node_type, now - paid.since_s)
            self._add(self.cost, paid.node_type, (now - paid.since_s) * paid.price / HOUR_S)
        return new, len(gone)

    def seconds_by_type(self, now: float) -> dict[str, float]:
        """Machine-seconds paid until now."""
        out = dict(self.seconds)
        for paid in self._open.values():
            self._add(out, paid.node_type, now - paid.since_s)
        return out

    def cost_by_type(self, now: float) -> dict[str, float]:
        """Paid until now."""
        out = dict(self.cost)
        for paid in self._open.values():
            self._add(out, paid.node_type, (now - paid.since_s) * paid.price / HOUR_S)
        return out

    def _price(self, machine: Machine) -> float:
        for offer in self.offers.get(machine.node_type, ()):
            if (offer.zone, offer.market) == (machine.zone, machine.market):
                return offer.price
        return 0.0

    @staticmethod
    def _add(target: dict[str, float], key: str, amount: float) -> None:
        target[key] = target.get(key, 0.0) + amount
