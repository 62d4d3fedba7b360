"""Copies of the latest checkpoint in the object stores of the workers' nodes. Pure.

The copy of a rank's files is an item of the stream of its records, so the controller owns it: it survives the end of
the worker's process. A worker on another node holds a second one, which survives the end of the node.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime._controllers.controller import Call, Effect, Forget, Key, ResultOf


class Copies:
    """Those of the latest committed checkpoint, and those of reports that are not committed yet."""

    def __init__(self) -> None:
        self._latest: dict[int, Key] = {}  # by rank
        self._pending: dict[int, dict[int, Key]] = {}  # by report and rank

    @property
    def results(self) -> tuple[ResultOf, ...]:
        """The copies of the latest checkpoint, as arguments."""
        return tuple(ResultOf(self._latest[rank]) for rank in sorted(self._latest))

    def add(self, number: int, rank: int, key: Key) -> None:
        """A rank's copy for its n-th report of the attempt is there. `key`: of the result."""
        self._pending.setdefault(number, {})[rank] = key

    def committed(self, number: int) -> list[Effect]:
        """The checkpoint of the n-th report of the attempt is the latest now. Copies of earlier ones go."""
        old = self._latest
        self._latest = self._pending.pop(number, {})
        earlier = [self._pending.pop(each) for each in sorted(self._pending) if each < number]
        return _forgotten([old, *earlier])

    def attempt_ended(self) -> list[Effect]:
        """Reports that are not committed never will be."""
        pending, self._pending = self._pending, {}
        return _forgotten([*pending.values()])

    def hold(self, attempt: int, number: int, workers: Sequence[Key], nodes: Sequence[str]) -> list[Effect]:
        """Has workers on other nodes hold second copies of the latest checkpoint, unless all are on one node.

        Args:
            attempt, number: of the report.
            workers, nodes: by rank.
        """
        effects: list[Effect] = []
        for rank, copy in sorted(self._latest.items()):
            following = [(rank + offset) % len(nodes) for offset in range(1, len(nodes))]
            holder = next((other for other in following if nodes[other] != nodes[rank]), None)
            if holder is not None:
                key = ("hold", attempt, holder, rank, number)
                # In a tuple it is a reference, so that later calls of the worker do not wait for its value.
                arguments = (attempt, number, rank, (ResultOf(copy),))
                effects.append(Call(key, workers[holder], "hold", arguments))
        return effects


def _forgotten(copies: Sequence[dict[int, Key]]) -> list[Effect]:
    return [Forget(key) for each in copies for key in each.values()]
