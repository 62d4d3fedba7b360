"""Which workers' processes are there, as far as is known, and which machines are about to go. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from runtime._controllers.controller import Key


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

    def restarts(self, workers: Iterable[Key]) -> list[int]:
        """How often each has been restarted."""
        return [self._restarts.get(worker, 0) for worker in workers]

    def missing(self, workers: Iterable[Key]) -> list[Key]:
        """Those whose process has ended, and which are not known to have another one."""
        return [worker for worker in workers if self._restarts.get(worker, 0) < self._needed.get(worker, 0)]

    def forget(self) -> None:
        """All are replaced by other workers."""
        self._restarts.clear()
        self._needed.clear()


class Machines:
    """The nodes that are taken away, with notice."""

    def __init__(self) -> None:
        self._leaving: set[str] = set()

    def take(self, node: str, state: str) -> bool:
        """News of a node: ALIVE, DRAINING or DEAD. Whether it begins to leave. One that has left is still known, since
        what was on it fails afterwards."""
        if state == "ALIVE":
            self._leaving.discard(node)
        if state != "DRAINING" or node in self._leaving:
            return False
        self._leaving.add(node)
        return True

    def leaving(self, nodes: Sequence[str]) -> Mapping[str, list[int]]:
        """The ranks on nodes that leave, by node. `nodes`: by rank."""
        found: dict[str, list[int]] = {}
        for rank, node in enumerate(nodes):
            if node in self._leaving:
                found.setdefault(node, []).append(rank)
        return found
