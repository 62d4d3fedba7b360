"""Which workers' processes are there, as far as is known, and which machines are about to go. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runtime._controllers.controller import Effect, Key, Restart, Wait

from .limits import REPLACED_S
from .records import Leaving


class Processes:
    """The processes of workers. That one has ended is told by its calls or by its actor, whichever comes first."""

    def __init__(self) -> None:
        self._restarts: dict[Key, int] = {}
        self._needed: dict[Key, int] = {}  # restarts after which a worker is there again

    def up(self, worker: Key, restarts: int) -> None:
        """A worker has a process, after so many restarts."""
        self._restarts[worker] = restarts

    def gone(self, worker: Key, restarts: int) -> None:
        """The process that a worker had after so many restarts has ended."""
        self._needed[worker] = restarts + 1

    def replace(self, workers: Sequence[Key], restarts: Sequence[int]) -> list[Effect]:
        """Ends the processes that workers had after so many restarts, unless they have ended."""
        effects: list[Effect] = []
        for worker, count in zip(workers, restarts, strict=True):
            if self._restarts.get(worker, 0) == count and self._needed.get(worker, 0) <= count:
                self.gone(worker, count)
                effects.append(Restart(worker))
        return effects

    def restarts(self, workers: Iterable[Key]) -> list[int]:
        """How often each has been restarted."""
        return [self._restarts.get(worker, 0) for worker in workers]

    def missing(self, workers: Iterable[Key]) -> list[Key]:
        """Those whose process has ended, and which are not known to have another one."""
        return [worker for worker in workers if self._restarts.get(worker, 0) < self._needed.get(worker, 0)]

    def waits(self, workers: Iterable[Key], since_s: float) -> list[Wait]:
        """What a run that is to start waits for here."""
        return [
            Wait(
                ("replaced", key), f"the end of the process of {key!r}, whose calls fail", since_s, REPLACED_S
            )
            for key in self.missing(workers)
        ]

    def forget(self) -> None:
        """All are replaced by other workers."""
        self._restarts.clear()
        self._needed.clear()


class Machines:
    """The nodes that are taken away, with notice."""

    def __init__(self) -> None:
        self._leaving: dict[str, int | None] = {}  # until when, see `Leaving`

    def take(self, node: str, state: str, deadline_ms: int | None = None) -> bool:
        """News of a node: ALIVE, DRAINING or DEAD. Whether it begins to leave, or it is known now until when it stays.
        One that has left is still known, since what was on it fails afterwards."""
        if state == "ALIVE":
            self._leaving.pop(node, None)
        if state != "DRAINING" or (node in self._leaving and self._leaving[node] == deadline_ms):
            return False
        self._leaving[node] = deadline_ms
        return True

    def leaving(self, nodes: Sequence[str]) -> dict[str, Leaving]:
        """The nodes that leave, with their ranks. `nodes`: by rank."""
        found: dict[str, Leaving] = {}
        for rank, node in enumerate(nodes):
            if node in self._leaving:
                found.setdefault(node, Leaving([], self._leaving[node])).ranks.append(rank)
        return found
