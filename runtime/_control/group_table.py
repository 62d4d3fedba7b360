"""The placement groups as records, and what of them is kept on disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from runtime._control.journal import Journal
from runtime._control.waiters import Waiters
from runtime._core.fsm import Machine
from runtime._core.placement_groups import TRANSITIONS, GroupEvent, GroupState
from runtime._wire.messages.groups import CreatePlacementGroup, PlacementGroupInfo

TABLE = "placement_groups"
MAX_REMOVED = 1000


class _Saved(msgspec.Struct, frozen=True, array_like=True):
    request: CreatePlacementGroup
    state: str
    version: int
    nodes: list[bytes]
    changed_s: float = 0.0
    attempts: int = 0
    creation_s: float = 0.0
    scheduling_s: float = 0.0


class Group:
    """One placement group. `nodes[i]` is where bundle i is committed, empty while it is not."""

    __slots__ = (
        "attempts",
        "busy",
        "changed_s",
        "creation_s",
        "infeasible",
        "machine",
        "made_s",
        "nodes",
        "reason",
        "request",
        "scheduling_s",
        "shape",
        "tried_s",
        "version",
        "waiters",
    )

    def __init__(self, request: CreatePlacementGroup, state: GroupState = GroupState.PENDING) -> None:
        self.request = request
        # Equal for groups that placement treats alike.
        self.shape = repr((request.strategy, request.bundles, request.label_selectors, request.domain))
        self.machine: Machine[GroupState, GroupEvent] = Machine(
            f"placement group {request.pg_id.hex()}", state, TRANSITIONS
        )
        self.nodes: list[bytes] = [b""] * len(request.bundles)
        self.version = 0
        self.reason = ""
        self.changed_s = 0.0  # unix time
        self.busy = False  # a reservation is on its way
        self.infeasible = False  # as far as the last attempt could see
        self.attempts = 0
        # By the loop's clock, so not kept on disk: when it was asked for, and last tried.
        self.made_s = self.tried_s = 0.0
        self.creation_s = self.scheduling_s = 0.0
        self.waiters = Waiters()

    @property
    def pg_id(self) -> bytes:
        return self.request.pg_id

    @property
    def state(self) -> GroupState:
        return self.machine.state

    @property
    def is_removed(self) -> bool:
        return self.machine.state is GroupState.REMOVED

    @property
    def is_waiting(self) -> bool:
        """Whether bundles of it have no node."""
        return self.machine.state in (GroupState.PENDING, GroupState.PREPARED, GroupState.RESCHEDULING)

    def info(self) -> PlacementGroupInfo:
        """The group as messages describe it."""
        request = self.request
        return PlacementGroupInfo(
            pg_id=request.pg_id,
            name=request.name,
            state=self.machine.state.value,
            strategy=request.strategy,
            bundles=request.bundles,
            nodes=list(self.nodes),
            version=self.version,
            job_id=request.job_id,
            detached=request.detached,
            reason=self.reason,
            scheduling=self._scheduling(),
            attempts=self.attempts,
            creation_s=self.creation_s,
            scheduling_s=self.scheduling_s,
        )

    def _scheduling(self) -> str:
        if self.state is GroupState.CREATED:
            return "FINISHED"
        if self.is_removed:
            return "REMOVED"
        if self.busy:
            return "SCHEDULING_STARTED"
        if not self.reason:
            return "QUEUED"
        return "INFEASIBLE" if self.infeasible else "NO_RESOURCES"


class GroupTable:
    """All groups, removed ones up to a bound."""

    def __init__(self, journal: Journal, wall_time: Callable[[], float]) -> None:
        self._journal = journal
        self._wall_time = wall_time
        self._groups: dict[bytes, Group] = {}
        self._names: dict[tuple[str, str], bytes] = {}
        self._removed: deque[bytes] = deque()

    def load(self) -> None:
        """Takes the groups of an earlier life. What was not committed then is reserved anew."""
        rows = [msgspec.msgpack.decode(row, type=_Saved) for _, row in self._journal.storage.scan(TABLE)]
        for saved in sorted(rows, key=lambda saved: saved.changed_s):
            state = GroupState(saved.state)
            if state is GroupState.PREPARED:
                state = GroupState.PENDING
            group = Group(saved.request, state)
            group.version = saved.version
            group.changed_s = saved.changed_s
            group.attempts = saved.attempts
            group.creation_s, group.scheduling_s = saved.creation_s, saved.scheduling_s
            if state is not GroupState.PENDING:
                group.nodes = list(saved.nodes)
            self._index(group)
            if group.is_removed:
                self._removed.append(group.pg_id)

    def add(self, group: Group) -> None:
        """Adds a new group and writes it down."""
        self._index(group)
        self._save(group)

    def get(self, pg_id: bytes) -> Group | None:
        return self._groups.get(pg_id)

    def named(self, namespace: str, name: str) -> Group | None:
        pg_id = self._names.get((namespace, name))
        return None if pg_id is None else self._groups[pg_id]

    def all(self) -> Iterable[Group]:
        return self._groups.values()

    def changed(self, group: Group) -> None:
        """Writes a group's new state down and wakes those who watch it."""
        group.version += 1
        if group.is_removed:
            key = (group.request.namespace, group.request.name)
            if self._names.get(key) == group.pg_id:
                del self._names[key]
            self._removed.append(group.pg_id)
            while len(self._removed) > MAX_REMOVED:
                oldest = self._removed.popleft()
                del self._groups[oldest]
                self._journal.delete(TABLE, oldest)
        self._save(group)
        group.waiters.wake()

    def _index(self, group: Group) -> None:
        self._groups[group.pg_id] = group
        if group.request.name and not group.is_removed:
            self._names[group.request.namespace, group.request.name] = group.pg_id

    def _save(self, group: Group) -> None:
        group.changed_s = self._wall_time()
        saved = _Saved(
            group.request,
            group.state.value,
            group.version,
            group.nodes,
            group.changed_s,
            group.attempts,
            group.creation_s,
            group.scheduling_s,
        )
        self._journal.put(TABLE, group.pg_id, msgspec.msgpack.encode(saved))
