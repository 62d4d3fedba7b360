"""Node types whose nodes join and die again within minutes: replaced at once the first time, ever later after
that, for each try costs a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.backoff import doubled

YOUNG_S = 600.0
"""A node that dies sooner after it joined was not sound; one that lives longer is."""
BASE_S = 15.0
MOST_S = 600.0


@dataclass(frozen=True, slots=True)
class Flapping:
    """What is known of one type.

    Attributes:
        deaths: waves of early deaths in a row.
        last_s: when the last one was.
        config_hash: how the type was configured then.
    """

    node_type: str
    deaths: int
    last_s: float
    config_hash: str = ""

    @property
    def until_s(self) -> float:
        """No node of the type is launched before."""
        return self.last_s + (doubled(BASE_S, self.deaths - 1, MOST_S) if self.deaths > 1 else 0.0)


class EarlyDeaths:
    """The types that flap. Pure: time is given."""

    def __init__(self, known: Sequence[Flapping] = ()) -> None:
        self._known = {entry.node_type: entry for entry in known}

    def died(self, node_type: str, launched_s: float, now: float, config_hash: str = "") -> None:
        """A node died young. Those that were launched before the last one died are of the same wave: they say
        nothing new."""
        known = self._known.get(node_type)
        if known is None:
            self._known[node_type] = Flapping(node_type, 1, now, config_hash)
        elif launched_s > known.last_s:
            self._known[node_type] = replace(known, deaths=known.deaths + 1, last_s=now)

    def lasted(self, node_type: str, joined_s: float) -> None:
        """A node has lived long enough: if it is younger than the last death, the type is sound."""
        known = self._known.get(node_type)
        if known is not None and joined_s > known.last_s:
            del self._known[node_type]

    def resting(self, now: float) -> Mapping[str, tuple[float, str]]:
        """Types that are left alone -> until when, and why."""
        return {
            entry.node_type: (
                entry.until_s,
                f"its nodes died {entry.deaths} times in a row within minutes of joining; it rests for a "
                "while",
            )
            for entry in self._known.values()
            if now < entry.until_s
        }

    def under(self, config_hashes: Mapping[str, str]) -> EarlyDeaths:
        """Without what types did under another configuration."""
        kept = [
            entry
            for entry in self._known.values()
            if entry.config_hash == config_hashes.get(entry.node_type, "")
        ]
        return self if len(kept) == len(self._known) else EarlyDeaths(kept)

    def everything(self) -> list[Flapping]:
        """For keeping."""
        return list(self._known.values())
