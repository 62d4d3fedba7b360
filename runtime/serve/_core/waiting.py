"""What a deployment waits for, in words."""

from __future__ import annotations

from collections.abc import Iterable

from runtime._controllers.controller import Wait
from runtime.serve._core.creation import reserved
from runtime.serve._core.replica import Replica
from runtime.serve._core.specs import DeploymentOptions
from runtime.serve._core.states import ReplicaState

SLOW_S = 30.0
"""A replica that starts, or takes options, for longer is mentioned in the status."""
WORDS = {
    ReplicaState.STARTING: "to start",
    ReplicaState.UPDATING: "to take its options",
    ReplicaState.RECOVERING: "to answer the restarted controller",
    ReplicaState.STOPPING: "to stop",
}


def slow(replicas: Iterable[Replica], options: DeploymentOptions, now: float) -> str:
    """For the status; "" if nothing takes long."""
    found = list(replicas)
    late = [each for each in found if each.state is ReplicaState.STARTING and now - each.since_s >= SLOW_S]
    unplaced = sum(not each.is_up for each in late)
    parts = []
    if unplaced:
        needs = (
            ", ".join(f"{amount:g} {name}" for name, amount in reserved(options).items()) or "no resources"
        )
        parts.append(
            f"{unplaced} replicas wait for a process for more than {SLOW_S:g} s: each needs {needs}, which no node may "
            "have free, or its runtime_env is being made."
        )
    if len(late) > unplaced:
        parts.append(f"The constructors of {len(late) - unplaced} replicas take more than {SLOW_S:g} s.")
    updating = sum(each.state is ReplicaState.UPDATING and now - each.since_s >= SLOW_S for each in found)
    if updating:
        parts.append(
            f"{updating} replicas take more than {SLOW_S:g} s for their new options (`reconfigure`)."
        )
    return " ".join(parts)


def waits(replicas: Iterable[Replica]) -> list[Wait]:
    """See `Controller.waiting_for`."""
    return [
        Wait(each.key, f"replica {each.id} {WORDS[each.state]}", each.since_s)
        for each in replicas
        if each.state in WORDS
    ]
