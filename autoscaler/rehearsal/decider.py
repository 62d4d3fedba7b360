"""Who sizes the rehearsed cluster. The real one is the reconciler; anything else with these methods can take
its place in the same world, to be compared.

How another decider is plugged in: write a class with the methods of `Decider` and give it to `World` (or to
`rehearse`). Each call of `decide` gets what the autoscaler's loop would give: the control store's picture
(nodes, waiting demand), the platform's last listing (machines with their tags: node type, instance id), the
outcomes of earlier effects and the offers. It returns effects, and the world carries them out in simulated
time:

- `Create` makes machines; `LaunchRequest.tags` must hold `MachineTags.CLUSTER_ID`, or they are never listed.
- A machine that is listed as RUNNING becomes a node only after a `SetUp` for it (once per machine); the node
  carries the effect's `instance_id`.
- `Drain` keeps new work off a node (refused while it is busy, if `only_if_idle`), `Resume` lets it take
  work again, `Terminate` ends machines; what still runs there is lost and waits again.

Outcomes are given once. A decider that has nothing to do with time returns None from `next_s`. One that is
`Restartable` takes part in the faults that end the autoscaler's process; others do not notice them.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from autoscaler.config import AutoscalerConfig
from autoscaler.effects import Effect
from autoscaler.instances import InstanceState
from autoscaler.memory import Memory
from autoscaler.plan import Note
from autoscaler.provider import Capabilities
from autoscaler.reconciler import Reconciler, World


class Decider(Protocol):
    """See the module's docstring."""

    def decide(self, picture: World, capabilities: Capabilities, now: float) -> Sequence[Effect]:
        """What to do now, in order."""
        ...

    def next_s(self, now: float) -> float | None:
        """When time alone asks for the next decision; None: not before facts change. (While anything waits or
        is on its way, a decision is made every `tick_s` in any case.)"""
        ...

    def unserved(self) -> Sequence[Note]:
        """Of the last decision: the demand that gets no machine, and why."""
        ...

    def happened(self) -> Sequence[str]:
        """What the last decision did, one line each, for the rehearsal's list of events."""
        ...


@runtime_checkable
class Restartable(Protocol):
    """A decider whose process can be lost."""

    def restart(self, forget: bool) -> None:
        """A new process takes over, from what the old one had saved, or with `forget` from nothing: then the
        machines' tags and the registered nodes must do."""
        ...


class ReconcilerDecider:
    """The autoscaler's own planner and state machine."""

    def __init__(self, config: AutoscalerConfig) -> None:
        self._config = config
        self._numbers = itertools.count(1)
        self._rng = random.Random(0)
        self.reconciler = self._new(None)
        self._states: dict[str, InstanceState] = {}
        self._happened: list[str] = []

    def _new(self, memory: Memory | None) -> Reconciler:
        return Reconciler(
            self._config,
            Capabilities(),
            memory=memory,
            new_id=lambda: f"{next(self._numbers):04d}",
            rng=self._rng,
        )

    def restart(self, forget: bool) -> None:
        saved = self.reconciler.memory().to_json()
        self.reconciler = self._new(None if forget else Memory.from_json(saved))

    def decide(self, picture: World, capabilities: Capabilities, now: float) -> Sequence[Effect]:
        self.reconciler.configure(self._config, capabilities)
        effects = self.reconciler.step(picture, now)
        self._note_changes()
        return effects

    def next_s(self, now: float) -> float | None:
        return self.reconciler.next_s(now)

    def unserved(self) -> Sequence[Note]:
        return (*self.reconciler.plan.infeasible, *self.reconciler.plan.waiting)

    def happened(self) -> Sequence[str]:
        return tuple(self._happened)

    def _note_changes(self) -> None:
        """What was launched and why, and what else changed; alike changes are told together."""
        told: dict[str, int] = {}
        for launch in self.reconciler.plan.launches:
            told[f"{launch.node_type} wanted for {launch.why}"] = launch.count
        states: dict[str, InstanceState] = {}
        for instance in self.reconciler.table:
            states[instance.id] = instance.state
            if self._states.get(instance.id) is instance.state or instance.state in _TOLD_BY_LAUNCHES:
                continue
            # Machines have names of their own, and would each be told of alone.
            reason = (
                instance.reason.replace(f" {instance.machine_id}", "")
                if instance.machine_id
                else instance.reason
            )
            text = f"{instance.node_type} {instance.state.name}: {reason}"
            told[text] = told.get(text, 0) + 1
        self._states = states
        self._happened = [f"{count} x {text}" if count > 1 else text for text, count in told.items()]


_TOLD_BY_LAUNCHES = (InstanceState.QUEUED, InstanceState.REQUESTED)
