"""What must hold of all the object tables together, after each event and when everything has come to rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime._ownership.records import INLINE_ERROR, Entry
from tests.sim.processes.process import Process

if TYPE_CHECKING:
    from tests.sim.processes.cluster import Cluster

FULL_CHECK_EVERY = 20


class Invariants:
    """Checks one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world

    def after_event(self) -> None:
        """Checks the processes that did something, and now and then all."""
        everybody = self._world.events % FULL_CHECK_EVERY == 0
        alive = {p.core.address.worker_id: p for p in self._cluster.processes if p.alive}
        for process in alive.values():
            if process.touched or everybody:
                process.touched = False
                for entry in process.entries.values():
                    self._check(process, entry, alive)

    def _check(self, process: Process, entry: Entry, alive: dict[bytes, Process]) -> None:
        name = f"{entry.object_id.hex()} at {process.name}"
        if entry.holds < 0:
            self._world.fail(f"{name} has {entry.holds} holds")
        if self._cluster.is_doomed(process):
            return
        value = entry.value
        if not self._cluster.lossy and value is not None and value.kind == INLINE_ERROR:
            for lost in (b"ObjectLostError", b"ObjectFreedError", b"OwnerDiedError"):
                expected = lost == b"OwnerDiedError" and self._cluster.ended
                if lost in value.data and b"RayTaskError" not in value.data and not expected:
                    self._world.fail(f"{name} is {lost.decode()}")
        if entry.owner is None:
            return
        owner = alive.get(entry.owner.worker_id)
        if owner is None:
            return
        theirs = owner.entries.get(entry.object_id)
        if theirs is None or theirs.owner is not None:
            certain = entry.registered and entry.object_id not in process.failed_borrows
            if certain or not self._cluster.lossy:
                self._world.fail(f"{name} is freed by {owner.name} though {entry.holds} hold it")
            return
        known = process.core.address.worker_id in (theirs.borrowers or ())
        if entry.registered and entry.object_id not in process.failed_borrows and not known:
            self._world.fail(f"{name} is not known as borrowed to {owner.name}")

    def at_rest(self) -> None:
        """Nobody holds anything any more: nothing may be left."""
        left = []
        for process in self._cluster.processes:
            if not process.alive:
                continue
            core = process.core
            for entry in process.entries.values():
                kind = "owned" if entry.owner is None else f"of {entry.owner.worker_id.rstrip(b'.').decode()}"
                left.append(
                    f"{process.name}: {entry.object_id.hex()} ({kind}), {entry.holds} holds, "
                    f"borrowers {entry.borrowers}, value {str(entry.value)[:60]}"
                )
            if core.outcomes.pending:
                left.append(f"{process.name}: {len(core.outcomes.pending)} tasks without an answer")
            if core.executor is not None and core.executor.results._holds:
                left.append(f"{process.name}: keeps the results of {len(core.executor.results._holds)} tasks")
            if core.objects.table._by_borrower:
                left.append(f"{process.name}: borrowers of nothing {core.objects.table._by_borrower}")
            if process.pins:
                left.append(f"{process.name}: {process.pins} pins")
            if core.lineage._kept or core.lineage._bytes:
                left.append(
                    f"{process.name}: {len(core.lineage._kept)} tasks, {core.lineage._bytes} bytes of lineage"
                )
            if core.borrowing._from:
                left.append(f"{process.name}: borrows from {core.borrowing._from}")
            if core.tasks.leases:
                left.append(f"{process.name}: {len(core.tasks.leases)} leases")
        if not self._cluster.lossy:
            for node in self._cluster.nodes:
                left += [f"{node.node_id!r} stores {object_id.hex()}" for object_id in node.primary]
        if left:
            self._world.fail("left at rest:\n    " + "\n    ".join(left))
