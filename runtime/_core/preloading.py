"""Which zygotes with preloaded modules a node has. Pure.

Each takes memory, so their number is limited; one without workers makes room for another. One that must not be forked
is refused until nobody needs its environment. Where there is none, workers import the modules themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Generic, NamedTuple, TypeVar

Wanted = TypeVar("Wanted")
"""What a zygote is told apart by: its interpreter and all that its imports see."""


class ZygoteUse(NamedTuple):
    """A zygote with preloaded modules. `is_used`: it has workers, or still imports for some."""

    is_used: bool
    forked_at: float


class Preloading(Generic[Wanted]):
    """Args:
    limit: how many such zygotes there are at most; 0: none.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._refused: set[Wanted] = set()

    def admits(self, wanted: Wanted, present: Mapping[Wanted, ZygoteUse]) -> bool:
        """Whether workers come from this zygote, which is present or may be started."""
        if wanted in self._refused:
            return False
        return (
            wanted in present
            or len(present) < self._limit
            or (self._limit > 0 and not all(use.is_used for use in present.values()))
        )

    def makes_room(self, present: Mapping[Wanted, ZygoteUse]) -> Wanted | None:
        """The zygote to end before another starts: the longest unused one. None: there is room."""
        unused = [wanted for wanted, use in present.items() if not use.is_used]
        if len(present) < self._limit or not unused:
            return None
        return min(unused, key=lambda wanted: present[wanted].forked_at)

    def refuse(self, wanted: Wanted) -> None:
        """It must not be forked from, or does not stay up."""
        self._refused.add(wanted)

    def keep(self, current: Collection[Wanted]) -> None:
        """Forgets refusals of what nobody needs now."""
        self._refused.intersection_update(current)
