"""The trace's faults while they last: what the platform refuses, delays, forgets, and which machines it takes
away."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from autoscaler.provider import SPOT, LaunchRequest, LaunchResult, Machine, Offer, Quota, Throttled
from autoscaler.rehearsal.trace import Fault, FaultKind
from autoscaler.simulation import Faults, SimulatedProvider

THROTTLED_S = 5.0


class Troubles:
    """The faults that are active now, in front of a simulated provider."""

    def __init__(
        self, provider: SimulatedProvider, offers: Mapping[str, Sequence[Offer]], rng: random.Random
    ) -> None:
        self._provider = provider
        self._offers = offers
        self._rng = rng
        self._active: list[Fault] = []

    def begin(self, fault: Fault) -> None:
        self._active.append(fault)
        self._pass_on()

    def end(self, fault: Fault) -> None:
        self._active.remove(fault)
        self._pass_on()

    def _pass_on(self) -> None:
        """What the simulated provider can do by itself is its affair."""
        faults: Faults = self._provider.faults
        faults.lag_s = max((fault.seconds or 0.0 for fault in self._of("stale_listing")), default=0.0)
        faults.lost_reply = self._likelihood("lost_reply")
        faults.never_boots = self._likelihood("never_boots")
        faults.twice = self._likelihood("made_twice")
        stock: dict[tuple[str, str, str], int] = {}
        for fault in self._of("stockout"):
            for node_type, offers in self._offers.items():
                for offer in offers:
                    if _hits(fault, node_type, offer.zone, offer.market):
                        key = node_type, offer.zone, offer.market
                        stock[key] = min(fault.count or 0, stock.get(key, fault.count or 0))
        faults.stock = stock

    def _likelihood(self, kind: FaultKind) -> float:
        return max((fault.probability for fault in self._of(kind)), default=0.0)

    def _of(self, kind: FaultKind) -> list[Fault]:
        return [fault for fault in self._active if fault.kind == kind]

    # ------------------------------------------------------------ calls

    def throttle(self) -> None:
        """To be called before every call of the provider.

        Raises:
            Throttled: this call is refused.
        """
        for fault in self._of("throttle"):
            if self._rng.random() < fault.probability:
                wait_s = THROTTLED_S if fault.seconds is None else fault.seconds
                raise Throttled("the platform asks for fewer calls", wait_s)

    def create(self, request: LaunchRequest, boot_s: float) -> LaunchResult:
        """The provider's `create`, as far as quotas allow; machines take `boot_s` to boot unless a fault says
        otherwise."""
        self.throttle()
        offer, name = request.offer, request.node_type.name
        slow = [f for f in self._of("slow_boot") if _hits(f, name, offer.zone, offer.market)]
        self._provider.faults.boot_s = max((f.seconds or 0.0 for f in slow), default=boot_s)
        room = request.count
        quota: Fault | None = None
        for fault in self._of("quota"):
            if _hits(fault, name, offer.zone, offer.market):
                here = sum(_is_hit(fault, machine) for machine in self._provider.machines())
                left = max(0, (fault.count or 0) - here)
                if left < room:
                    room, quota = left, fault
        if quota is None:
            return self._provider.create(request)
        refusal = Quota(f"the account may have {quota.count or 0} machines of this kind, and has them")
        if not room:
            return LaunchResult(errors=(refusal,))
        part = LaunchRequest(
            request.token, request.node_type, room, offer, request.tags, request.instance_ids[:room]
        )
        result = self._provider.create(part)
        return LaunchResult(result.machines, (*result.errors, *([refusal] * (request.count - room))))

    def setup_fails(self, machine: Machine) -> bool:
        """Whether this setup of the machine fails."""
        return any(
            _is_hit(fault, machine) and self._rng.random() < fault.probability
            for fault in self._of("setup_failure")
        )

    # ------------------------------------------------------------ losses

    def victims(self, fault: Fault, machines: Iterable[Machine]) -> list[Machine]:
        """Which machines a spot_loss or node_death strikes."""
        market = fault.market or (SPOT if fault.kind == "spot_loss" else "")
        able = [
            machine
            for machine in machines
            if not machine.is_head
            and (market in ("", machine.market))
            and _hits(fault, machine.node_type, machine.zone, machine.market)
        ]
        self._rng.shuffle(able)
        struck = [machine for machine in able if self._rng.random() < fault.probability]
        return struck if fault.count is None else struck[: fault.count]


def _hits(fault: Fault, node_type: str, zone: str, market: str) -> bool:
    return fault.node_type in ("", node_type) and fault.zone in ("", zone) and fault.market in ("", market)


def _is_hit(fault: Fault, machine: Machine) -> bool:
    return not machine.is_head and _hits(fault, machine.node_type, machine.zone, machine.market)
