"""A node's queue of lease demands: whose turn it is, and whether a lease is granted here, elsewhere, or
never. Pure.

Demands are level-triggered: an owner says how many more workers it wants for a class, and that number
replaces the last one. Turns go round the (owner, class) pairs that can be served, one lease each, so that
neither an owner nor a class with many waiting tasks starves the others.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Mapping

import msgspec

from .ledger import Allocation, Ledger
from .nodeview import accepts
from .placement import Choice, Fit, NodeView, Request, choose_node
from .resources import fits
from .worker_cap import SchedulingClass, WorkerCap

Owner = Hashable
"""Whatever key the caller uses for the demanding process (its connection)."""

NOTE_INTERVAL_S = 10.0
PATIENCE_S = 10.0
INFEASIBLE_PATIENCE_S = 2.0
ZERO_PACE_S = 0.5
"""An autoscaler needs a moment to bring the node that makes a demand feasible."""
_LOCAL_FIT = Choice(Fit.AVAILABLE)
_WAITING = Choice(Fit.WAITING)
_INFEASIBLE = Choice(Fit.INFEASIBLE)


class Waiting(msgspec.Struct, eq=False):
    """What one owner wants for one class. `in_flight`: granted, but the worker is not handed over yet."""

    owner: Owner
    class_key: bytes
    scheduling_class: SchedulingClass
    shape: bytes  # equal shapes are equal requests
    request: Request
    group_id: bytes
    job_id: bytes
    runtime_env: str
    locality: Mapping[bytes, int]
    name: str
    count: int
    in_flight: int = 0
    infeasible: bool = False
    noted_at: float = float("-inf")
    waiting_since: float = 0.0
    withdrawn: bool = False
    retriable: bool = True
    capped: bool = False  # held back by a `WorkerCap`, here or elsewhere, though there is room
    asked_for: bytes = b""  # the node that its owner was asked to make room on
    asks: bool = False  # the owner's answer is to come

    @property
    def wanted(self) -> int:
        return self.count - self.in_flight


class GrantHere(msgspec.Struct, frozen=True):
    """Give the owner a worker of this node with `allocation`; report with `LeaseQueue.grant_ended`."""

    waiting: Waiting
    allocation: Allocation


class AskNode(msgspec.Struct, frozen=True):
    """Ask another node for one lease; report with `LeaseQueue.grant_ended`."""

    waiting: Waiting
    node_id: bytes


class AskOwner(msgspec.Struct, frozen=True):
    """Ask the owner to give back what idles on this node, which holds the arguments and has no room; report with
    `LeaseQueue.owner_answered`."""

    waiting: Waiting
    node_id: bytes


class Refuse(msgspec.Struct, frozen=True):
    """The demand can never be met and is forgotten."""

    waiting: Waiting
    message: str


Effect = GrantHere | AskNode | AskOwner | Refuse


class NodeTable(msgspec.Struct):
    """The cluster as this node sees it: its own live accounts, the last word of the others, and who was busy
    lately, for all or for one class."""

    local: NodeView
    others: dict[bytes, NodeView] = msgspec.field(default_factory=dict)
    busy_until: dict[tuple[bytes, SchedulingClass | None], float] = msgspec.field(default_factory=dict)

    def views(self) -> list[NodeView]:
        return [self.local, *self.others.values()]

    def open_views(self, now: float, which: SchedulingClass) -> list[NodeView]:
        """Without the nodes that refused a moment ago."""
        if not self.busy_until:
            return self.views()
        self.busy_until = busy = {key: until for key, until in self.busy_until.items() if until > now}
        open_others = (
            view
            for node_id, view in self.others.items()
            if (node_id, None) not in busy and (node_id, which) not in busy
        )
        return [self.local, *open_others]

    def forget(self, node_id: bytes) -> None:
        """The node is gone."""
        self.others.pop(node_id, None)
        self.busy_until = {key: until for key, until in self.busy_until.items() if key[0] != node_id}

    def any_capped(self, which: SchedulingClass) -> bool:
        """Whether a node refused this class alone a moment ago."""
        return any(refused == which for _, refused in self.busy_until)

    def deduct(self, node_id: bytes, resources: Mapping[str, int]) -> None:
        """A lease was asked for there: count it until the node's next report."""
        view = self.others.get(node_id)
        if view is not None:
            for name, amount in resources.items():
                view.available[name] = view.available.get(name, 0) - amount

    def restore(self, node_id: bytes, resources: Mapping[str, int]) -> None:
        """A lease there is over. The node need not report it: if it was short, nothing changed between reports."""
        view = self.others.get(node_id)
        if view is not None:
            for name, amount in resources.items():
                free = view.available.get(name, 0) + amount
                view.available[name] = min(free, view.total.get(name, 0))

    def refused(
        self,
        node_id: bytes,
        resources: Mapping[str, int],
        until: float,
        which: SchedulingClass | None = None,
    ) -> None:
        """It had no room: what was deducted counts again, but nothing is asked of it before `until`, or nothing for
        this class."""
        self.restore(node_id, resources)
        self.busy_until[node_id, which] = until


class LeaseQueue:
    """All demands that reached this node's agent.

    Args:
        ledger: the node's accounts.
        nodes: the cluster view; `nodes.local` must share `ledger.total` and `ledger.available`.
        rng: breaks ties of placement.
        zero_cap: leases without any resources that may be out here at once; beyond it they come slowly, see
            `zero_room`.

    Attributes:
        look_again_s: when the last `schedule` held something back that may go at this time; None if it did not.
    """

    def __init__(self, ledger: Ledger, nodes: NodeTable, rng: random.Random, zero_cap: int) -> None:
        self._ledger = ledger
        self._nodes = nodes
        self._rng = rng
        self._zero_cap = zero_cap
        self._entries: dict[tuple[Owner, bytes], Waiting] = {}
        self._spread_after = b""
        self._zero_granted_at = float("-inf")
        self.cap = WorkerCap(ledger.total)
        self.zero_leases = 0
        self.look_again_s: float | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def demand(
        self,
        owner: Owner,
        class_key: bytes,
        count: int,
        *,
        scheduling_class: SchedulingClass,
        shape: bytes,
        request: Request,
        job_id: bytes,
        group_id: bytes = b"",
        runtime_env: str = "",
        locality: Mapping[bytes, int] | None = None,
        name: str = "",
        now: float = 0.0,
        retriable: bool = True,
    ) -> None:
        """The owner wants `count` more workers of this class; replaces what it wanted before."""
        key = (owner, class_key)
        entry = self._entries.get(key)
        if entry is None:
            if count > 0:
                self._entries[key] = Waiting(
                    owner,
                    class_key,
                    scheduling_class,
                    shape,
                    request,
                    group_id,
                    job_id,
                    runtime_env,
                    locality or {},
                    name,
                    count,
                    waiting_since=now,
                    retriable=retriable,
                )
            return
        entry.count = max(count, 0)
        entry.locality = locality or {}
        self._forget_if_done(entry)

    def drop_owner(self, owner: Owner) -> None:
        """The owner is gone: so are its demands. Grants in flight end as unwanted."""
        for key in [key for key in self._entries if key[0] == owner]:
            self._withdraw(self._entries[key])

    def fail(self, entry: Waiting) -> None:
        """The demand will never be met (its environment or its group is no more)."""
        self._withdraw(entry)

    def grant_ended(self, entry: Waiting, granted: bool) -> bool:
        """A `GrantHere` or `AskNode` came to its end. Returns whether the owner still wants the lease
        (granted only)."""
        entry.in_flight -= 1
        wanted = granted and entry.count > 0 and not entry.withdrawn
        if wanted:
            entry.count -= 1
            entry.infeasible = False
        self._forget_if_done(entry)
        return wanted

    def owner_answered(self, entry: Waiting) -> None:
        """An `AskOwner` came to its end: there is room now, or there is none to be had."""
        entry.asks = False

    def schedule(self, now: float) -> list[Effect]:
        """Grants what can be granted now, round after round, one lease per demand and round."""
        effects: list[Effect] = []
        stuck: set[bytes] = set()
        served = True
        while served:
            served = False
            self.look_again_s = None
            for key, entry in list(self._entries.items()):
                if entry.count <= entry.in_flight or entry.asks:
                    continue
                if entry.shape in stuck:
                    self.cap.pause(entry.scheduling_class, now)
                    continue
                entry.capped = False
                effect = self._place(entry, now)
                if effect is None:
                    if not entry.capped:  # others of its shape would not get a worker either
                        stuck.add(entry.shape)
                    continue
                effects.append(effect)
                if not entry.withdrawn:
                    # To the end of the line: dicts keep insertion order.
                    del self._entries[key]
                    self._entries[key] = entry
                served = True
        return effects

    def zero_room(self, now: float) -> bool:
        """Whether one more lease without resources may go out here. Beyond the cap that is one at a time, for those
        that are out may wait for the very task that waits here.
        """
        return self.zero_leases < self._zero_cap or now - self._zero_granted_at >= ZERO_PACE_S

    def take_zero(self, now: float) -> None:
        """A lease without resources goes out; `zero_leases` is lowered when it ends."""
        self.zero_leases += 1
        self._zero_granted_at = now

    def ended(self, which: SchedulingClass, is_zero: bool) -> None:
        """A lease is over, or never came about. `is_zero`: it counted among the `zero_leases`."""
        self.cap.release(which)
        self.zero_leases -= is_zero

    def waiting(self) -> Iterable[Waiting]:
        """The demands that wait for a node or a worker's turn."""
        return [entry for entry in self._entries.values() if entry.wanted > 0]

    def is_capped(self, entry: Waiting, now: float) -> bool:
        """Whether the demand would get no worker here if there were room."""
        return self.cap.left_s(entry.scheduling_class, entry.request.resources, now) > 0

    def due_notes(self, now: float) -> list[Waiting]:
        """Demands whose driver should be told why they wait: they wait for long, and the last note is 10 s old."""
        due = []
        for entry in self._entries.values():
            patience = INFEASIBLE_PATIENCE_S if entry.infeasible else PATIENCE_S
            told_lately = now - entry.noted_at < NOTE_INTERVAL_S
            if entry.wanted > 0 and not told_lately and now - entry.waiting_since >= patience:
                entry.noted_at = now
                due.append(entry)
        return due

    def _place(self, entry: Waiting, now: float) -> Effect | None:
        choice = self._choose(entry, now)
        entry.infeasible = choice.fit is Fit.INFEASIBLE
        if choice.fit is Fit.IMPOSSIBLE:
            if entry.group_id:
                return None
            self._withdraw(entry)
            return Refuse(entry, "the node it must run on is dead, unknown, or too small for it")
        if choice.fit is not Fit.AVAILABLE:
            entry.capped = self._nodes.any_capped(entry.scheduling_class)
            self.cap.pause(entry.scheduling_class, now)
            return None
        holder = self._fuller_holder(entry, choice)
        if holder:
            entry.asked_for, entry.asks = holder, True
            return AskOwner(entry, holder)
        local = self._nodes.local.node_id
        if choice is not _LOCAL_FIT and choice.node_id != local:
            return self._ask(entry, choice.node_id)
        left_s = self.cap.left_s(entry.scheduling_class, entry.request.resources, now)
        if left_s > 0:
            elsewhere = self._choose_elsewhere(entry, now)
            if elsewhere is not None:
                return self._ask(entry, elsewhere)
            entry.capped = True
            self.cap.hold(entry.scheduling_class, now)
            self._look_again(now + left_s)
            return None
        if not entry.request.resources and not self.zero_room(now):
            self._look_again(now + ZERO_PACE_S)
            return None
        allocation = self._ledger.allocate(entry.request.resources)
        if allocation is None:
            return None
        if not entry.request.resources:
            self.take_zero(now)
        self.cap.take(entry.scheduling_class)
        entry.in_flight += 1
        self._took_turn(entry, local)
        return GrantHere(entry, allocation)

    def _fuller_holder(self, entry: Waiting, choice: Choice) -> bytes:
        """The node that holds more of the arguments than the chosen one and has no room: often it is the demand's own
        owner who keeps an idle worker there. b"": none, or the owner was asked before."""
        held, request = entry.locality, entry.request
        if not held or request.kind != "DEFAULT" or entry.group_id:
            return b""
        holder = max(held, key=held.__getitem__)
        if holder == entry.asked_for or held.get(choice.node_id, 0) >= held[holder]:
            return b""
        local = self._nodes.local
        view = local if holder == local.node_id else self._nodes.others.get(holder)
        if view is None or not view.schedulable or not accepts(view, request.labels):
            return b""
        is_full = not fits(request.resources, view.available) and fits(request.resources, view.total)
        return holder if is_full else b""

    def _ask(self, entry: Waiting, node_id: bytes) -> AskNode:
        entry.in_flight += 1
        self._nodes.deduct(node_id, entry.request.resources)
        self._took_turn(entry, node_id)
        return AskNode(entry, node_id)

    def _look_again(self, when: float) -> None:
        self.look_again_s = when if self.look_again_s is None else min(when, self.look_again_s)

    def _took_turn(self, entry: Waiting, node_id: bytes) -> None:
        if entry.request.kind == "SPREAD":
            self._spread_after = node_id

    def _choose(self, entry: Waiting, now: float) -> Choice:
        request, local = entry.request, self._nodes.local
        if not self._nodes.others and local.schedulable and request.is_plain:
            if fits(request.resources, local.available):
                return _LOCAL_FIT
            return _WAITING if fits(request.resources, local.total) else _INFEASIBLE
        choice = self._choose_among(entry, self._nodes.open_views(now, entry.scheduling_class))
        if choice.fit in (Fit.INFEASIBLE, Fit.IMPOSSIBLE) and self._nodes.busy_until:
            return _WAITING
        return choice

    def _choose_elsewhere(self, entry: Waiting, now: float) -> bytes | None:
        if not self._nodes.others or entry.request.kind == "NODE_AFFINITY":
            return None
        choice = self._choose_among(entry, self._nodes.open_views(now, entry.scheduling_class)[1:])
        return choice.node_id if choice.fit is Fit.AVAILABLE else None

    def _choose_among(self, entry: Waiting, views: list[NodeView]) -> Choice:
        return choose_node(
            entry.request,
            views,
            local=self._nodes.local.node_id,
            locality=entry.locality,
            rng=self._rng,
            spread_after=self._spread_after,
        )

    def _withdraw(self, entry: Waiting) -> None:
        entry.withdrawn = True
        entry.count = 0
        self._entries.pop((entry.owner, entry.class_key), None)

    def _forget_if_done(self, entry: Waiting) -> None:
        if entry.count <= 0 and entry.in_flight <= 0:
            key = (entry.owner, entry.class_key)
            if self._entries.get(key) is entry:
                del self._entries[key]
