"""What must hold of all the ownership cores together, after each event and when everything has come to rest."""

from __future__ import annotations

import gc

from runtime._ownership.records import INLINE_ERROR, Entry
from tests.sim.ownership.cluster import Cluster
from tests.sim.ownership.process import Process

FULL_CHECK_EVERY = 20
LOSSES = (b"Lost", b"Freed", b"OwnerDied", b"NotRebuilt")


class Invariants:
    """Checks one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world

    def after_event(self) -> None:
        """Checks the processes that did something, and now and then all."""
        everybody = self._world.events % FULL_CHECK_EVERY == 0
        alive = {p.address.worker_id: p for p in self._cluster.processes if p.alive}
        for process in alive.values():
            if process.touched or everybody:
                process.touched = False
                for entry in process.entries.values():
                    self._check(process, entry, alive)

    def _check(self, process: Process, entry: Entry, alive: dict[bytes, Process]) -> None:
        name = f"{entry.object_id.hex()} at {process}"
        if entry.holds < 0:
            self._world.fail(f"{name} has {entry.holds} holds")
        if not entry.holds and not entry.borrowers:
            self._world.fail(f"{name} is kept although nothing holds it")
        if self._cluster.is_doomed(process):
            return
        value = entry.value
        lost = value is not None and value.kind == INLINE_ERROR and value.data in LOSSES
        if lost and not self._cluster.lossy and not self._cluster.ended:
            self._world.fail(f"{name} is {value.data.decode()}")  # type: ignore[union-attr]
        owner = alive.get(entry.owner.worker_id) if entry.owner is not None else None
        if owner is None or not entry.registered or entry.object_id in process.failed_borrows:
            return
        theirs = owner.entries.get(entry.object_id)
        known = theirs is not None and process.address.worker_id in (theirs.borrowers or ())
        if not known and not lost and process.address.worker_id not in owner.heard_dead:
            self._world.fail(f"{name} was freed by {owner}, which does not know of the borrower")

    def at_rest(self) -> None:
        """Nobody holds anything any more: nothing may be left."""
        if any(process.alive and process.calls._actors for process in self._cluster.processes):
            gc.collect()  # tracebacks refer to their own frames
        left: list[str] = []
        for process in self._cluster.processes:
            if process.alive:
                left += [f"{process}: {what}" for what in self._left_in(process)]
        owners = {p.address.worker_id for p in self._cluster.processes if p.alive}
        # What a process stored for an owner that never heard of it, as it was killed before it said so, stays.
        for each in self._cluster.nodes if not self._cluster.killed and not self._cluster.lossy else ():
            for object_id in each.primary:
                owner = each.objects[object_id][1]
                if owner in owners:  # else its agent frees them
                    left.append(f"{each.node_id!r} stores {object_id.hex()} of {owner!r}")
        if self._cluster.leased():
            left.append(f"{self._cluster.leased()} leased workers")
        left += self._cluster.book.unheard()
        if left:
            self._world.fail("left at rest:\n    " + "\n    ".join(left))

    def _left_in(self, process: Process) -> list[str]:
        left = []
        for entry in process.entries.values():
            kind = "owned" if entry.owner is None else f"of {entry.owner.worker_id.rstrip(b'.').decode()}"
            left.append(f"{entry.object_id.hex()} ({kind}), {entry.holds} holds, borrowers {entry.borrowers}")
        parts = {
            "tasks without an answer": process.outcomes.pending,
            "borrowers of nothing": process.objects.table._by_borrower,
            "borrowed": process.borrowing._from,
            "not registered": process.borrowing.new,
            "owners that did not answer": process.borrowing.unanswered,
            "lineage": process.lineage._kept,
            "bytes of lineage": process.lineage._bytes,
            "leases": process.tasks.leases,
            "deaths without a reason": process.tasks._unexplained,
            "active classes": process.tasks._active,
            "actors": dict(process.calls._actors),
            "waiting programs": [f for f in process.fibers if process.is_driver],
        }
        if process.runner is not None:
            parts["results held for callers"] = process.runner.holds
            parts["calls"] = process.runner.begun or process.runner.waiting
        return left + [f"{what}: {found}" for what, found in parts.items() if found]
