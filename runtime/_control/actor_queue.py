"""The actors that wait for a node, in lines of equal ones: what costs grows with the number of different requests, not
with the number of actors.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from runtime._control.actor_table import Actor, ShapeKey


class Line:
    """Actors that placement treats alike, first come first.

    Attributes:
        infeasible: no node of today could ever hold one, as far as the last attempt could see.
        counts: how many there are of each job and class, and whether they are spare ones.
    """

    def __init__(self) -> None:
        self.actors: OrderedDict[bytes, tuple[int, Actor]] = OrderedDict()
        self.infeasible = False
        self.counts: Counter[tuple[bytes, str, bool]] = Counter()

    @property
    def first(self) -> Actor:
        return next(iter(self.actors.values()))[1]

    @property
    def turn(self) -> int:
        """When the first one came; smaller is earlier."""
        return next(iter(self.actors.values()))[0]

    def __len__(self) -> int:
        return len(self.actors)


class ActorQueue:
    """All lines. `changed` is set by whatever comes or goes, and reset by its reader."""

    def __init__(self) -> None:
        self._lines: dict[ShapeKey, Line] = {}
        self._arrivals = 0
        self.changed = False

    def __bool__(self) -> bool:
        return bool(self._lines)

    def lines(self) -> list[Line]:
        """None of them is empty."""
        return list(self._lines.values())

    def add(self, actor: Actor) -> None:
        """To the end of its line, unless it stands there already."""
        line = self._lines.setdefault(actor.shape, Line())
        if actor.actor_id not in line.actors:
            self._arrivals += 1
            line.actors[actor.actor_id] = self._arrivals, actor
            line.counts[_kind(actor)] += 1
            self.changed = True

    def discard(self, actor: Actor) -> None:
        """It waits no longer, if it did."""
        line = self._lines.get(actor.shape)
        if line is None or line.actors.pop(actor.actor_id, None) is None:
            return
        self.changed = True
        if not line:
            del self._lines[actor.shape]
            return
        key = _kind(actor)
        line.counts[key] -= 1
        if not line.counts[key]:
            del line.counts[key]

    def in_turn(self) -> Iterator[Line]:
        """The line whose first actor came earliest, again and again, as long as each time that actor leaves; a line
        whose first actor stays is not given again.
        """
        order = {line.turn: shape for shape, line in self._lines.items()}
        turns = list(order)
        heapify(turns)
        while turns:
            turn = heappop(turns)
            shape = order.pop(turn)
            line = self._lines.get(shape)
            if line is None:
                continue
            yield line
            if shape in self._lines and line.turn != turn:
                order[line.turn] = shape
                heappush(turns, line.turn)


def _kind(actor: Actor) -> tuple[bytes, str, bool]:
    return actor.spec.job_id, actor.spec.class_name, actor.spec.is_spare
