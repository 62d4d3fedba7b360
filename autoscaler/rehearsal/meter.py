"""What machines cost: each is paid from the moment it exists until it is gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.provider import Machine, Offer

HOUR_S = 3600.0


@dataclass(slots=True)
class Meter:
    """Watches the machines there are, each at the price of the offer with its zone and market.

    Counts machines by type and price, so that a reading costs the same however many there are.
    """

    offers: Mapping[str, Sequence[Offer]]
    _open: dict[str, tuple[str, float]] = field(default_factory=dict)
    _counts: dict[tuple[str, float], int] = field(default_factory=dict)
    _seconds: dict[tuple[str, float], float] = field(default_factory=dict)
    _read_s: float = 0.0

    def watch(self, machines: Iterable[Machine], now: float) -> tuple[list[Machine], int]:
        """Takes in what exists now; returns what is new, and how many are gone."""
        self._seconds, self._read_s = self._until(now), now
        there = {machine.id: machine for machine in machines}
        new = [machine for key, machine in there.items() if key not in self._open]
        for machine in new:
            kind = machine.node_type, self._price(machine)
            self._open[machine.id] = kind
            self._counts[kind] = self._counts.get(kind, 0) + 1
        gone = [key for key in self._open if key not in there]
        for key in gone:
            self._counts[self._open.pop(key)] -= 1
        return new, len(gone)

    def seconds_by_type(self, now: float) -> dict[str, float]:
        """Machine-seconds paid until now."""
        out: dict[str, float] = {}
        for (name, _), seconds in self._until(now).items():
            out[name] = out.get(name, 0.0) + seconds
        return out

    def cost_by_type(self, now: float) -> dict[str, float]:
        """Paid until now."""
        out: dict[str, float] = {}
        for (name, price), seconds in self._until(now).items():
            out[name] = out.get(name, 0.0) + seconds * price / HOUR_S
        return out

    def _until(self, now: float) -> dict[tuple[str, float], float]:
        """Machine-seconds by type and price."""
        since_s = now - self._read_s
        return {kind: self._seconds.get(kind, 0.0) + count * since_s for kind, count in self._counts.items()}

    def _price(self, machine: Machine) -> float:
        for offer in self.offers.get(machine.node_type, ()):
            if (offer.zone, offer.market) == (machine.zone, machine.market):
                return offer.price
        return 0.0
