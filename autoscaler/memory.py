"""What the autoscaler keeps in the control store, so that a restarted head carries on: instances with their
intents, penalties, setup results, early deaths, what nodes turned out to be. Without it the tags of the
machines and the registered nodes suffice, with less history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from autoscaler.flapping import EarlyDeaths, Flapping
from autoscaler.health import SetupHealth, SetupResult
from autoscaler.instances import Instance
from autoscaler.offerings import Offerings, Penalty

NAMESPACE = "autoscaler"
KEY = b"state"
FORMAT = 2


@dataclass(frozen=True, slots=True)
class Learnt:
    """What nodes of a type brought that were made from one configuration. Amounts in 1/10 000 units."""

    node_type: str
    config_hash: str
    resources: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Memory:
    """One saved state."""

    format: int = FORMAT
    instances: tuple[Instance, ...] = ()
    penalties: tuple[Penalty, ...] = ()
    setups: tuple[SetupResult, ...] = ()
    learnt: tuple[Learnt, ...] = ()
    flapping: tuple[Flapping, ...] = ()

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, text: bytes) -> Memory:
        """Reads what `to_json` wrote.

        Raises:
            ValueError: it is none, or of another format.
        """
        memory = msgspec.json.decode(text, type=cls)
        if memory.format != FORMAT:
            raise ValueError(
                f"saved autoscaler state has format {memory.format}, this version reads {FORMAT}"
            )
        return memory


def remember(
    instances: Iterable[Instance],
    offerings: Offerings,
    health: SetupHealth,
    learnt: Iterable[Learnt],
    deaths: EarlyDeaths,
) -> Memory:
    """What to save."""
    return Memory(
        FORMAT,
        tuple(instances),
        tuple(offerings.everything()),
        tuple(health.everything()),
        tuple(learnt),
        tuple(deaths.everything()),
    )


def resumed(instances: Iterable[Instance]) -> dict[str, Instance]:
    """The saved instances for a new process: no effect is under way any more, so each is asked for again. All
    effects are safe to repeat."""
    return {
        instance.id: replace(instance, asked_s=0.0, not_before_s=0.0, unjoined_since_s=0.0)
        for instance in instances
    }
