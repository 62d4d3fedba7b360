"""Carries out a decider's effects in simulated time: on the simulated platform, with its troubles, and on the
cluster's nodes. Counts what was done and what it cost."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from autoscaler.config import AutoscalerConfig
from autoscaler.effects import (
    Create,
    Created,
    Drain,
    Drained,
    Effect,
    Listing,
    Outcome,
    Resume,
    Resumed,
    SetUp,
    SetUpEnded,
    Terminate,
    Terminated,
)
from autoscaler.provider import Machine, MachineState, MachineTags, Offer, ProviderError, SetupError
from autoscaler.rehearsal.clock import Clock
from autoscaler.rehearsal.cluster import Cluster, Node
from autoscaler.rehearsal.meter import Meter
from autoscaler.rehearsal.trace import Fault, Trace
from autoscaler.rehearsal.troubles import Troubles
from autoscaler.simulation import Faults, SimulatedProvider
from runtime._core.nodes import HEARTBEAT_TIMEOUT_S, RECONNECT_GRACE_S
from runtime._core.resources import to_units
from runtime._wire.messages.base import NodeInfo


@dataclass(frozen=True, slots=True)
class Timing:
    """How long the platform takes.

    Attributes:
        boot_s: from a machine's creation until it runs; `boot_of` says otherwise for some node types.
        setup_s: from then until its node joins.
        stop_s: from the end's request until the machine is gone, and is paid for no more.
        call_s: a call's answer takes so long.
    """

    boot_s: float = 40.0
    setup_s: float = 40.0
    stop_s: float = 20.0
    call_s: float = 1.0
    boot_of: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Tally:
    """What happened to workers' machines, counted.

    Attributes:
        launches: machines that were made.
        removals: machines that were ended.
        lost: machines that vanished.
        refused: machines that the platform did not give.
    """

    launches: int = 0
    removals: int = 0
    lost: int = 0
    refused: int = 0
    setups_failed: int = 0
    nodes_died: int = 0
    decisions: int = 0


class Platform:
    """Machines, and the daemons on them.

    Args:
        changed: called when something is different that a decider should look at; with True when nodes came or went.

    Attributes:
        machines: what there is, the head's included.
        outcomes: of effects, since somebody took them.
        under_way: effects whose outcome is still to come.
    """

    def __init__(
        self,
        config: AutoscalerConfig,
        trace: Trace,
        timing: Timing,
        clock: Clock,
        cluster: Cluster,
        changed: Callable[[bool], None],
    ) -> None:
        self.offers = {kind.name: _offers_of(trace, kind.name) for kind in config.node_types}
        self.provider = SimulatedProvider(
            config.cluster_id,
            offers=self.offers,
            faults=Faults(stop_s=timing.stop_s),
            clock=lambda: clock.now,
            sleep=lambda _: None,
            rng=random.Random(trace.seed + 1),
        )
        self.troubles = Troubles(self.provider, self.offers, random.Random(trace.seed + 3))
        self.meter = Meter(self.offers)
        self.tally = Tally()
        self.machines: tuple[Machine, ...] = ()
        self.outcomes: list[Outcome] = []
        self.under_way = 0
        self._life = 0
        self._config = config
        self._timing = timing
        self._clock = clock
        self._cluster = cluster
        self._changed = changed
        self._rng = random.Random(trace.seed + 4)
        self._node_numbers = itertools.count(1)
        self._start_head()

    def _start_head(self) -> None:
        tags = {
            MachineTags.CLUSTER_ID: self._config.cluster_id,
            MachineTags.ROLE: MachineTags.HEAD,
            MachineTags.INSTANCE_ID: "head",
            MachineTags.NODE_TYPE: self._config.head_type,
        }
        machine = self.provider.add_machine(self._config.head_type, tags)
        self._join(self._config.head_type, machine.id, "head", is_head=True)
        self._take_stock()

    def listing(self) -> Listing:
        """The platform's listing of now.

        Raises:
            ProviderError: the call failed.
        """
        self.troubles.throttle()
        return Listing(self._clock.now, tuple(self.provider.list()))

    # ------------------------------------------------------------ effects

    def carry_out(self, effect: Effect) -> None:
        """Does it in its time; what came of it is in `outcomes` then."""
        call_s = self._timing.call_s
        if isinstance(effect, Create):
            self._answer(call_s, partial(self._create, effect))
        elif isinstance(effect, Terminate):
            self._answer(call_s, partial(self._terminate, effect))
        elif isinstance(effect, SetUp):
            self._answer(self._timing.setup_s, partial(self._set_up, effect))
        elif isinstance(effect, Drain):
            self._answer(0.0, partial(self._drain, effect))
        else:
            self._answer(0.0, partial(self._resume, effect))

    def _answer(self, delay_s: float, work: Callable[[], Outcome]) -> None:
        life = self._life

        def arrive() -> None:
            outcome = work()
            if life == self._life:
                self.under_way -= 1
                self.outcomes.append(outcome)
            self._changed(False)

        self.under_way += 1
        self._clock.after(delay_s, arrive)

    def forget_asker(self) -> None:
        """Whoever asked for effects is gone: they happen nevertheless, and nobody hears of their outcome."""
        self._life += 1
        self.under_way = 0
        self.outcomes = []

    def _create(self, effect: Create) -> Created:
        request = effect.request
        boot_s = self._timing.boot_of.get(request.node_type.name, self._timing.boot_s)
        try:
            result = self.troubles.create(request, boot_s)
        except ProviderError as error:
            return Created(request.token, error=error)
        finally:  # when the answer is lost, machines are there nevertheless
            for _ in self._take_stock():
                # The next listing shows that it runs, as late as listings are.
                delay_s = self.provider.faults.boot_s + self._rng.uniform(0.0, 1.0)
                self._clock.after(delay_s, partial(self._changed, False))
        self.tally.refused += len(result.errors)
        return Created(request.token, result)

    def _terminate(self, effect: Terminate) -> Terminated:
        ids = effect.machine_ids
        try:
            self.troubles.throttle()
            answers = self.provider.terminate(ids)
        except ProviderError as error:
            return Terminated(dict.fromkeys(ids, error))
        for machine_id in ids:
            node = self._cluster.on_machine(machine_id)
            if node is not None:
                self._cluster.bury(node, self._clock.now, "its machine was ended")
        self._take_stock()
        self._clock.after(self._timing.stop_s, self._gone)
        return Terminated(answers)

    def _gone(self) -> None:
        self._take_stock()
        self._changed(False)

    def _set_up(self, effect: SetUp) -> SetUpEnded:
        name, machine = effect.instance_id, effect.machine
        if not self.provider.exists(machine.id):
            return SetUpEnded(name, SetupError("reach the machine", "it does not answer"))
        if self.troubles.setup_fails(machine):
            self.tally.setups_failed += 1
            return SetUpEnded(name, SetupError("setup commands", "exit status 1, as the trace says"))
        if self._cluster.on_machine(machine.id) is None:
            self._join(effect.node_type.name, machine.id, name)
        return SetUpEnded(name)

    def _drain(self, effect: Drain) -> Drained:
        node = self._cluster.nodes.get(effect.node_id)
        if node is None or node.died_s is not None:
            return Drained(effect.instance_id)
        if effect.only_if_idle and node.is_busy:
            return Drained(effect.instance_id, "the node is busy")
        self._cluster.drain(node)
        return Drained(effect.instance_id)

    def _resume(self, effect: Resume) -> Resumed:
        node = self._cluster.nodes.get(effect.node_id)
        if node is None or node.is_silent:
            return Resumed(effect.instance_id, "the node is gone")
        if not node.view.schedulable:
            self._cluster.resume(node)
        return Resumed(effect.instance_id)

    def _join(self, node_type: str, machine_id: str, instance_id: str, is_head: bool = False) -> None:
        kind = self._config.node_type(node_type)
        if kind is None:
            return
        total = to_units(kind.resources)
        node_id = f"{next(self._node_numbers):028d}".encode()
        info = NodeInfo(
            node_id, "ALIVE", "", "", "", "", is_head, "", total, total, dict(kind.labels),
            instance_id=instance_id, node_type=node_type,
        )  # fmt: skip
        self._cluster.join(info, machine_id, self._clock.now)
        self._changed(True)

    # ------------------------------------------------------------ losses

    def vanish(self, fault: Fault) -> None:
        """Machines are gone this instant; the control store misses their heartbeats some time later."""
        victims = self.troubles.victims(fault, self._unstopped())
        for machine in victims:
            self.provider.vanish(machine.id)
            node = self._cluster.on_machine(machine.id)
            if node is not None:
                self._lose(node, HEARTBEAT_TIMEOUT_S, "no report within the heartbeat timeout")
        self.tally.lost += len(victims)
        self._take_stock(vanished=len(victims))

    def kill_nodes(self, fault: Fault) -> None:
        """The daemons of nodes die; their machines stay."""
        able = [m for m in self._unstopped() if self._cluster.on_machine(m.id) is not None]
        for machine in self.troubles.victims(fault, able):
            node = self._cluster.on_machine(machine.id)
            assert node is not None
            self._lose(node, RECONNECT_GRACE_S, "its agent did not come back")

    def _unstopped(self) -> Iterable[Machine]:
        return [machine for machine in self.provider.machines() if machine.state is not MachineState.STOPPING]

    def _lose(self, node: Node, noticed_s: float, reason: str) -> None:
        self._cluster.lose(node)
        self.tally.nodes_died += 1
        self._clock.after(noticed_s, partial(self._bury, node, reason))

    def _bury(self, node: Node, reason: str) -> None:
        if node.died_s is None:
            self._cluster.bury(node, self._clock.now, reason)
            self._changed(True)

    def _take_stock(self, vanished: int = 0) -> list[Machine]:
        """Looks at what exists, and is paid for; returns what is new."""
        self.machines = self.provider.machines()
        new, gone = self.meter.watch((m for m in self.machines if not m.is_head), self._clock.now)
        self.tally.launches += len(new)
        self.tally.removals += gone - vanished
        return new


def _offers_of(trace: Trace, node_type: str) -> tuple[Offer, ...]:
    known = trace.offers.get(node_type)
    return tuple(Offer(one.zone, one.market, one.price) for one in known) if known else (Offer(),)
