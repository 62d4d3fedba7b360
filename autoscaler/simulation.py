"""A platform in memory, for rehearsals and tests: real rules (tags, tokens, boot times), made-up machines,
and faults on demand: slow and partial creates, lost replies, stock-outs, quotas, throttling, machines that
are made twice, never boot or vanish, stale listings."""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from autoscaler.provider import (
    Capabilities,
    Capacity,
    CommandResult,
    LaunchRequest,
    LaunchResult,
    Machine,
    MachineState,
    MachineTags,
    NodeType,
    NotFound,
    Offer,
    Prepared,
    Problem,
    ProviderError,
    Quota,
    Shell,
    ShellError,
    ShellTimedOut,
    Streams,
    Throttled,
    Transient,
)


@dataclass(slots=True)
class Faults:
    """How the platform misbehaves. May be changed at any time.

    Attributes:
        call_s: how long every call takes.
        boot_s: from creation until the machine runs; of machines made from now on.
        stop_s: from `terminate` until it is gone.
        lag_s: listings show the picture of up to so long ago.
        stock: the most machines per (node type, zone, market); missing: no limit.
        quota: the most machines in all; None: no limit.
        list_s: how long a listing takes beyond `call_s`: it shows the picture of its beginning.
        partial: probability that one machine of a request is refused for lack of capacity.
        lost_reply: probability that `create` does its work and then fails as if the connection broke.
        transient: probability that any call fails before it does anything.
        twice: probability that a machine is made a second time for the same token.
        never_boots: probability that a new machine stays PENDING for ever.
        calls_per_s: more calls than this are throttled, in a window of ten seconds; None: no limit.
    """

    call_s: float = 0.0
    boot_s: float = 0.0
    stop_s: float = 0.0
    lag_s: float = 0.0
    list_s: float = 0.0
    stock: dict[tuple[str, str, str], int] = field(default_factory=dict)
    quota: int | None = None
    partial: float = 0.0
    lost_reply: float = 0.0
    transient: float = 0.0
    twice: float = 0.0
    never_boots: float = 0.0
    calls_per_s: float | None = None


WINDOW_S = 10.0
"""Over so long calls are counted for `Faults.calls_per_s`."""


@dataclass(slots=True)
class _Record:
    machine: Machine
    made_s: float
    boot_s: float  # inf: it never runs
    ends_s: float | None = None  # when it is gone; None: nobody ended it
    stopping_s: float | None = None

    def at(self, when: float) -> Machine | None:
        """The machine as it was at a time; None when it was not there."""
        if when < self.made_s or (self.ends_s is not None and when >= self.ends_s):
            return None
        state = MachineState.PENDING if when < self.made_s + self.boot_s else MachineState.RUNNING
        if self.stopping_s is not None and when >= self.stopping_s:
            state = MachineState.STOPPING
        if self.machine.state is not state:
            self.machine = replace(self.machine, state=state)
        return self.machine


class SimulatedProvider:
    """See `Provider` for the contract. `machine_ids` and `calls` tell tests what there really is and was
    asked."""

    def __init__(
        self,
        cluster_id: str,
        *,
        offers: Mapping[str, Sequence[Offer]] | None = None,
        faults: Faults | None = None,
        max_per_create: int = 100,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self.faults = faults or Faults()
        self.calls: list[str] = []
        self._cluster_id = cluster_id
        self._offers = dict(offers or {})
        self._max_per_create = max_per_create
        self._clock = clock
        self._sleep = sleep
        self._rng = rng or random.Random(0)
        self._lock = threading.Lock()
        self._records: dict[str, _Record] = {}
        self._done: dict[tuple[str, str], str] = {}  # (token, instance id) -> machine id
        self._numbers = 0
        self._recent: deque[float] = deque()

    # ------------------------------------------------------------ the protocol

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            spot=True,
            prices=any(offer.price for offers in self._offers.values() for offer in offers),
            listing_lag_s=self.faults.lag_s,
            max_per_create=self._max_per_create,
        )

    def check(self, node_types: Sequence[NodeType]) -> list[Problem]:
        return [
            Problem(f"nothing is on offer for node type {kind.name!r}", "Allow another zone or price.")
            for kind in node_types
            if not self.offers(kind)
        ]

    def prepare(self, node_types: Sequence[NodeType]) -> Prepared:
        return Prepared({"platform": "simulated"})

    def offers(self, node_type: NodeType) -> list[Offer]:
        offers = self._offers.get(node_type.name, (Offer(zone="sim", resources=node_type.resources),))
        return [
            offer
            for offer in offers
            if (not node_type.zones or offer.zone in node_type.zones)
            and (node_type.max_price is None or offer.price <= node_type.max_price)
        ]

    def create(self, request: LaunchRequest) -> LaunchResult:
        self._call("create")
        with self._lock:
            now = self._clock()
            machines: list[Machine] = []
            errors: list[ProviderError] = []
            for index in range(request.count):
                key = (request.token, request.instance_ids[index])
                if key in self._done:
                    known = self._records[self._done[key]].at(now)
                    if known is not None:
                        machines.append(known)
                    continue
                refusal = self._refusal(request, now)
                if refusal is not None:
                    errors.append(refusal)
                    continue
                machines.append(self._make(request, index, now))
                if self._rng.random() < self.faults.twice:
                    self._make(request, index, now)
            if self._rng.random() < self.faults.lost_reply:
                raise Transient("the connection broke before the answer came", 1.0)
        return LaunchResult(tuple(machines), tuple(errors))

    def list(self) -> list[Machine]:
        self._call("list")
        now = self._clock()
        if self.faults.list_s:
            self._sleep(self.faults.list_s)
        with self._lock:
            when = now - self._rng.uniform(0.0, self.faults.lag_s)
            found = [record.at(when) for record in self._records.values()]
            return [machine for machine in found if machine is not None and self._is_ours(machine)]

    def terminate(self, ids: Sequence[str]) -> dict[str, ProviderError | None]:
        self._call("terminate")
        with self._lock:
            now = self._clock()
            answers: dict[str, ProviderError | None] = {}
            for machine_id in ids:
                record = self._records.get(machine_id)
                if record is None or record.at(now) is None:
                    answers[machine_id] = NotFound(f"there is no machine {machine_id}")
                    continue
                if record.ends_s is None:
                    record.stopping_s = now
                    record.ends_s = now + self.faults.stop_s
                answers[machine_id] = None
            return answers

    def shell(self, machine: Machine) -> Shell:
        return SimulatedShell(self, machine.id)

    def cleanup(self) -> None:
        with self._lock:
            now = self._clock()
            self._records = {
                key: record for key, record in self._records.items() if record.at(now) is not None
            }

    # ------------------------------------------------------------ for those who rehearse

    def exists(self, machine_id: str) -> bool:
        """The truth about a machine, however stale the listings are."""
        with self._lock:
            record = self._records.get(machine_id)
            return record is not None and record.at(self._clock()) is not None

    def machines(self) -> tuple[Machine, ...]:
        """Every machine there is now, in truth."""
        with self._lock:
            now = self._clock()
            found = [record.at(now) for record in self._records.values()]
            return tuple(machine for machine in found if machine is not None)

    def vanish(self, machine_id: str) -> None:
        """The machine is gone this instant, and nobody says so."""
        with self._lock:
            record, now = self._records[machine_id], self._clock()
            record.ends_s = now if record.ends_s is None else min(record.ends_s, now)

    def add_machine(self, node_type: str, tags: Mapping[str, str]) -> Machine:
        """A machine that somebody else made, or that a lost head left behind."""
        with self._lock:
            machine = self._new(node_type, tags, Offer(zone="sim"), self._clock())
            return machine

    # ------------------------------------------------------------ inside

    def _call(self, name: str) -> None:
        if self.faults.call_s:
            self._sleep(self.faults.call_s)
        with self._lock:
            self.calls.append(name)
            self._count(self._clock())
            if self._rng.random() < self.faults.transient:
                raise Transient(f"the platform did not answer {name}", 1.0)

    def _count(self, now: float) -> None:
        """Refuses a call beyond the rate."""
        rate = self.faults.calls_per_s
        if rate is None:
            return
        while self._recent and self._recent[0] <= now - WINDOW_S:
            self._recent.popleft()
        if len(self._recent) >= rate * WINDOW_S:
            raise Throttled("too many calls", self._recent[0] + WINDOW_S - now)
        self._recent.append(now)

    def _is_ours(self, machine: Machine) -> bool:
        return machine.tags.get(MachineTags.CLUSTER_ID) == self._cluster_id

    def _refusal(self, request: LaunchRequest, now: float) -> ProviderError | None:
        offer, kind = request.offer, request.node_type.name
        stock = self.faults.stock.get((kind, offer.zone, offer.market))
        if stock is not None:
            there = sum(
                1
                for record in self._records.values()
                if record.at(now) is not None
                and (record.machine.node_type, record.machine.zone, record.machine.market)
                == (kind, offer.zone, offer.market)
            )
            if there >= stock:
                return Capacity(f"no {kind} in {offer.zone or 'any zone'} ({offer.market})")
        if self.faults.quota is not None:
            there = sum(1 for record in self._records.values() if record.at(now) is not None)
            if there >= self.faults.quota:
                return Quota(f"the account may have {self.faults.quota} machines")
        if self._rng.random() < self.faults.partial:
            return Capacity(f"no more {kind} in {offer.zone or 'any zone'} ({offer.market}) just now")
        return None

    def _make(self, request: LaunchRequest, index: int, now: float) -> Machine:
        machine = self._new(request.node_type.name, request.tags_of(index), request.offer, now)
        self._done.setdefault((request.token, request.instance_ids[index]), machine.id)
        return machine

    def _new(self, node_type: str, tags: Mapping[str, str], offer: Offer, now: float) -> Machine:
        self._numbers += 1
        machine = Machine(
            id=f"sim-{self._numbers}",
            state=MachineState.PENDING if self.faults.boot_s > 0 else MachineState.RUNNING,
            node_type=node_type,
            tags=dict(tags),
            address=f"10.{self._numbers >> 16 & 255}.{self._numbers >> 8 & 255}.{self._numbers & 255}",
            zone=offer.zone,
            market=offer.market,
            launched_s=now,
        )
        never = self.faults.never_boots > 0.0 and self._rng.random() < self.faults.never_boots
        self._records[machine.id] = _Record(machine, now, math.inf if never else self.faults.boot_s)
        return machine


class SimulatedShell:
    """A machine that accepts every command."""

    def __init__(self, provider: SimulatedProvider, machine_id: str) -> None:
        self._provider = provider
        self._machine_id = machine_id

    def run(
        self,
        command: str,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        on_output: Callable[[str], None] | None = None,
        stdin: Iterable[bytes] | None = None,
    ) -> CommandResult:
        self._must_exist()
        for _ in stdin or ():
            pass
        output = f"simulated: {command}"
        if on_output is not None:
            on_output(output)
        return CommandResult(0, output + "\n")

    def pipe(
        self,
        command: str,
        streams: Streams,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> int:
        result = self.run(command)
        os.write(streams.stdout, result.output.encode())
        return result.exit_status

    def interactive(self, command: str | None = None, *, env: Mapping[str, str] | None = None) -> int:
        self._must_exist()
        return 0

    @contextmanager
    def forward(
        self, port: int, on_tunnel: Callable[[ShellError | None], None] | None = None
    ) -> Iterator[int]:
        self._must_exist()
        yield port

    def close(self) -> None:
        pass  # nothing is kept open

    def _must_exist(self) -> None:
        if not self._provider.exists(self._machine_id):
            raise ShellTimedOut(f"machine {self._machine_id} does not answer")
