"""What the past teaches about the next launch: offers that were refused, types whose machines fail their setup or whose
nodes die young, and what the nodes of a type bring. Pure: time is given."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from autoscaler.config import AutoscalerConfig
from autoscaler.flapping import EarlyDeaths
from autoscaler.health import SetupHealth
from autoscaler.instances import Instance
from autoscaler.memory import Learnt, Memory, remember
from autoscaler.observe import DiedYoung, Lasted, Lesson, OfferRefused, OfferServed
from autoscaler.offerings import Market, Offerings, Penalty, market_of
from autoscaler.provider import SPOT, Capacity, Offer
from autoscaler.snapshot import Profile, observed, profile_of
from autoscaler.status import Resting
from runtime._wire.messages.base import NodeInfo

FAILING = "most of the last machines failed their setup"


class Experience:
    """Changed by `take` and `learn` only. What was learnt under another configuration of a type counts no more."""

    def __init__(self, memory: Memory, config: AutoscalerConfig, rng: random.Random | None = None) -> None:
        """Args:
        memory: what an earlier process had learnt.
        rng: spreads the times at which refused offers are tried again; None: not at all.
        """
        self._rng = rng
        self._hashes = config.config_hashes
        self._offerings = Offerings(memory.penalties)
        self._health = SetupHealth(memory.setups).under(self._hashes)
        self._deaths = EarlyDeaths(memory.flapping).under(self._hashes)
        self._learnt = {entry.node_type: entry for entry in memory.learnt}

    def configure(self, config: AutoscalerConfig) -> None:
        """Forgets what types did under another configuration."""
        self._hashes = config.config_hashes
        self._health = self._health.under(self._hashes)
        self._deaths = self._deaths.under(self._hashes)

    def remember(self, instances: Iterable[Instance]) -> Memory:
        """What to save, together with the instances."""
        return remember(instances, self._offerings, self._health, self._learnt.values(), self._deaths)

    # ------------------------------------------------------------ lessons

    def take(self, lesson: Lesson, now: float) -> None:
        """Learns from one event."""
        if isinstance(lesson, OfferRefused):
            self._offerings.refused(lesson.node_type, lesson.offer, lesson.error, now, self._rng)
        elif isinstance(lesson, OfferServed):
            self._offerings.succeeded(lesson.node_type, lesson.offer)
        elif isinstance(lesson, DiedYoung):
            self._died_young(lesson, now)
        elif isinstance(lesson, Lasted):
            one = lesson.instance
            self._deaths.lasted(one.node_type, one.joined_s)
            self._offerings.lasted(one.node_type, one.offer, one.joined_s)
        else:
            self._health.record(lesson.node_type, lesson.ok, now, self._hash_of(lesson.node_type))

    def _died_young(self, event: DiedYoung, now: float) -> None:
        """A spot machine was most likely taken back: the offer is to blame. Any other was not sound: its type
        is."""
        lost = event.instance
        if lost.offer.market == SPOT:
            when = (
                f"{event.lived_s:.0f} s after its node had joined" if event.lived_s else "while it was set up"
            )
            error = Capacity(f"a machine was lost {when}")
            self._offerings.refused(lost.node_type, lost.offer, error, now, self._rng, lost=True)
        elif lost.config_hash in ("", self._hash_of(lost.node_type)):
            self._deaths.died(lost.node_type, lost.allocated_s, now, self._hash_of(lost.node_type))

    def learn(self, instances: Iterable[Instance], nodes: Sequence[NodeInfo]) -> None:
        """Keeps what nodes of today's configuration bring, for the time when there are none."""
        hashes = {i.id: i.config_hash for i in instances if not i.is_terminal}
        by_type: dict[str, list[NodeInfo]] = {}
        for node in nodes:
            if node.state == "ALIVE" and not node.is_head and node.instance_id in hashes:
                wanted = self._hash_of(node.node_type)
                if not wanted or hashes[node.instance_id] in ("", wanted):
                    by_type.setdefault(node.node_type, []).append(node)
        for name, found in by_type.items():
            seen = observed(found)
            if seen is not None:
                self._learnt[name] = Learnt(name, self._hash_of(name), seen)

    def _hash_of(self, node_type: str) -> str:
        return self._hashes.get(node_type, "")

    # ------------------------------------------------------------ what follows from it

    def markets(
        self,
        config: AutoscalerConfig,
        offers: Mapping[str, Sequence[Offer]],
        closed: Mapping[str, str],
        now: float,
    ) -> dict[str, Market]:
        """Per node type, the offers that may be taken now."""
        return {
            kind.name: market_of(kind, offers, self._offerings, now, closed.get(kind.name, ""))
            for kind in config.node_types
        }

    def profiles(self, config: AutoscalerConfig, offers: Mapping[str, Sequence[Offer]]) -> dict[str, Profile]:
        """Per node type, what a node of it will bring."""
        return {
            kind.name: profile_of(kind, offers.get(kind.name, ()), self._seen(kind.name))
            for kind in config.node_types
        }

    def _seen(self, node_type: str) -> Mapping[str, int] | None:
        known = self._learnt.get(node_type)
        if known is None or known.config_hash != self._hash_of(node_type):
            return None
        return known.resources

    def held(self, now: float) -> dict[str, str]:
        """The node types of which nothing is launched now, and why."""
        return {name: why for name, (_, why) in self._types_at_rest(now).items()}

    def allowance(self, now: float, in_flight: int) -> int | None:
        """The most machines to launch now, with so many on their way; None: no limit."""
        return self._health.allowance(now, in_flight)

    def objection(self, instance: Instance, now: float) -> str:
        """Why the instance would not be launched any more, after it was queued; "": it would."""
        if self._health.open_until_s > now:
            return FAILING
        held = self._types_at_rest(now).get(instance.node_type)
        if held is not None:
            return held[1]
        if self._offerings.penalty_of(instance.node_type, instance.offer, now) is not None:
            return "its offer was refused meanwhile"
        return ""

    def resting(self, now: float) -> list[Resting]:
        """What is not launched for a while after it failed. Single offers are `penalties`."""
        resting = [Resting(name, why, until_s) for name, (until_s, why) in self._types_at_rest(now).items()]
        if self._health.open_until_s > now:
            resting.append(
                Resting("all launches", f"{FAILING}; then one is tried", self._health.open_until_s)
            )
        return resting

    def penalties(self, now: float) -> list[Penalty]:
        """The offers that are left alone now, soonest to end first."""
        return self._offerings.active(now)

    def _types_at_rest(self, now: float) -> dict[str, tuple[float, str]]:
        resting = dict(self._health.resting(now))
        for name, (until_s, why) in self._deaths.resting(now).items():
            if name not in resting or resting[name][0] < until_s:
                resting[name] = until_s, why
        return resting
