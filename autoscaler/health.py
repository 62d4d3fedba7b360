"""What to believe of setups after some failed: each failing type rests, and when most fail nothing is
launched."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

REST_BASE_S = 2.0
REST_MOST_S = 300.0
WINDOW = 10
"""Results the circuit breaker looks back on."""
TRIP_AT = 4
"""Failures among them, being the majority, that open it."""
OPEN_BASE_S = 30.0
OPEN_MOST_S = 600.0


@dataclass(frozen=True, slots=True)
class SetupResult:
    """How one machine's setup ended. `config_hash`: how its type was configured then."""

    node_type: str
    ok: bool
    at_s: float
    config_hash: str = ""


class SetupHealth:
    """The last results, per type and in all. Pure: time is given."""

    def __init__(self, results: Sequence[SetupResult] = ()) -> None:
        self._recent: deque[SetupResult] = deque(maxlen=WINDOW)
        self._streaks: dict[str, tuple[int, float]] = {}
        self._trips = 0
        for result in results:
            self.record(result.node_type, result.ok, result.at_s, result.config_hash)

    def record(self, node_type: str, ok: bool, now: float, config_hash: str = "") -> None:
        """Notes one result."""
        was_open = self.is_tripped
        self._recent.append(SetupResult(node_type, ok, now, config_hash))
        if ok:
            self._streaks.pop(node_type, None)
            if was_open:
                # The trial machine worked: forget what was before it.
                self._recent.clear()
                self._recent.append(SetupResult(node_type, ok, now, config_hash))
            self._trips = 0
            return
        streak, _ = self._streaks.get(node_type, (0, 0.0))
        self._streaks[node_type] = streak + 1, now
        if self.is_tripped:
            self._trips += 1

    @property
    def is_tripped(self) -> bool:
        """Whether most of the last machines failed."""
        failures = sum(1 for result in self._recent if not result.ok)
        return failures >= TRIP_AT and failures * 2 > len(self._recent)

    @property
    def open_until_s(self) -> float:
        """Until when nothing at all is launched; 0 when the breaker is closed."""
        if not self.is_tripped:
            return 0.0
        rest_s = min(OPEN_MOST_S, OPEN_BASE_S * 2.0 ** max(0, min(self._trips, 16) - 1))
        return self._recent[-1].at_s + rest_s

    def allowance(self, now: float, in_flight: int) -> int | None:
        """The most machines to launch now: None without limit, 0 while the breaker is open, then one on
        trial."""
        if not self.is_tripped:
            return None
        return 0 if now < self.open_until_s else max(0, 1 - in_flight)

    def resting(self, now: float) -> Mapping[str, tuple[float, str]]:
        """Types whose last setups failed -> until when they rest, and why."""
        out: dict[str, tuple[float, str]] = {}
        for node_type, (streak, last_s) in self._streaks.items():
            until_s = last_s + min(REST_MOST_S, REST_BASE_S * 2.0 ** min(streak - 1, 16))
            if now < until_s:
                times = "once" if streak == 1 else f"{streak} times in a row"
                out[node_type] = until_s, f"setup failed {times}; it rests for a while"
        return out

    def under(self, config_hashes: Mapping[str, str]) -> SetupHealth:
        """Without what types did under another configuration: whoever corrected it need not wait."""
        kept = [
            result for result in self._recent if result.config_hash == config_hashes.get(result.node_type, "")
        ]
        return self if len(kept) == len(self._recent) else SetupHealth(kept)

    def everything(self) -> list[SetupResult]:
        """For keeping."""
        return list(self._recent)
