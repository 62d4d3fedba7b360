"""When a draining node is done, and when it goes back to work.

A drain is called off as long as the machine is there: what waits and would use the node, a minimum that lacks
it, or a maximum that was raised again bring it back, before any machine is launched for that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from autoscaler.budgets import count_by_type
from autoscaler.config import Cause
from autoscaler.effects import Drained, Resumed
from autoscaler.instances import ACTIVE, Instance, InstanceState, Transition
from autoscaler.snapshot import Snapshot
from runtime._wire.messages.base import NodeInfo

REFUSED_REST_S = 5.0
"""A node that refused to be drained, or was called back, is left alone for so long."""
RETRY_S = 1.0


def answered(instance: Instance, outcome: Drained) -> Transition | Instance:
    """What the control store's answer means: back to work, or the drain holds."""
    if outcome.refused:
        return Transition(instance.id, InstanceState.RUNNING, f"drain refused: {outcome.refused}")
    return replace(instance, settled=True)


def rest_after_refusal(instance: Instance, now: float) -> Instance:
    """The instance, left alone for a while."""
    return replace(instance, not_before_s=now + REFUSED_REST_S)


def back_to_work(instance: Instance, reason: str) -> Transition:
    """The drain is off. The node is told so until it has heard it."""
    return Transition(instance.id, InstanceState.RUNNING, reason, recalled=True)


def resumed(instance: Instance, outcome: Resumed, now: float) -> Instance:
    """What the control store's answer to the call back means: it works, or it is asked again."""
    if outcome.failure:
        return replace(instance, asked_s=0.0, not_before_s=now + RETRY_S)
    return replace(instance, recalled=False, not_before_s=now + REFUSED_REST_S)


def overdue(instance: Instance, spent: str) -> Transition:
    """What the deadline means: who must go is ended, and what runs there with it; who need not go stays."""
    if instance.cause in (Cause.SURPLUS, Cause.UNWANTED):
        return Transition(
            instance.id, InstanceState.TERMINATING, f"not drained within {spent}: {instance.reason}"
        )
    return back_to_work(instance, f"not empty within {spent}, so it stays: {instance.reason}")


def is_done(instance: Instance, node: NodeInfo | None) -> bool:
    """Whether the drain has come to its end: nothing holds the node. One that was idle is believed to be so as long
    as nothing says otherwise (a driver may have come since); of one that was busy the node itself must have said
    so while it drained."""
    if instance.state is not InstanceState.DRAINING or not instance.settled:
        return False
    if node is None or node.state == "DEAD":
        return True
    return node.idle_since_s > 0 and (instance.only_if_idle or node.state == "DRAINING")


def recallable(snapshot: Snapshot, leaving: Collection[str]) -> list[Instance]:
    """The draining instances that could work on within the maximums, those that hold most to lose first: their
    nodes live, and no person drained them or gave their machines up."""
    living = {node.node_id: node for node in snapshot.nodes if node.state != "DEAD"}
    counts = dict(count_by_type((i for i in snapshot.instances if i.id not in leaving), ACTIVE))
    room = snapshot.config.max_workers - sum(counts.values())
    found = [
        instance
        for instance in snapshot.instances
        if instance.state is InstanceState.DRAINING
        and instance.cause not in (Cause.UNWANTED, Cause.BY_HAND)
        and instance.node_id in living
    ]
    found.sort(
        key=lambda one: (
            living[one.node_id].idle_since_s > 0,
            one.cause is Cause.OUTDATED,
            -living[one.node_id].idle_since_s,
            one.id,
        )
    )
    most = snapshot.config.budgets.max_hourly_price
    price = sum(i.offer.price for i in snapshot.instances if i.state in ACTIVE and i.id not in leaving)
    back: list[Instance] = []
    for instance in found:
        kind = snapshot.config.node_type(instance.node_type)
        is_dear = most is not None and instance.offer.price > 0 and price + instance.offer.price > most + 1e-9
        if kind is None or counts.get(kind.name, 0) >= kind.max_workers or len(back) >= room or is_dear:
            continue
        counts[kind.name] = counts.get(kind.name, 0) + 1
        price += instance.offer.price
        back.append(instance)
    return back


def due_back(snapshot: Snapshot, leaving: Collection[str], options: Collection[Instance]) -> dict[str, str]:
    """Of those that could work on the ones that shall, whatever waits, by instance id with the reason: a
    maximum no longer stands against a busy one, an idle one got busy, waiting work names the node, or a minimum
    lacks it."""
    nodes = {node.node_id: node for node in snapshot.nodes}
    counts = dict(count_by_type((i for i in snapshot.instances if i.id not in leaving), ACTIVE))
    back: dict[str, str] = {}
    for instance in options:
        kind = snapshot.config.node_type(instance.node_type)
        lacking = kind is not None and counts.get(kind.name, 0) < kind.min_workers
        is_busy = not nodes[instance.node_id].idle_since_s
        if is_busy and instance.cause is Cause.SURPLUS:
            back[instance.id] = "max_workers and the price budget allow it again"
        elif is_busy and instance.settled and instance.only_if_idle:
            back[instance.id] = "something holds it after all"
        elif instance.node_id in snapshot.demand.pinned:
            back[instance.id] = "waiting work names its node"
        elif lacking and instance.cause is not Cause.OUTDATED:
            back[instance.id] = f"min_workers of {instance.node_type!r}"
        else:
            continue
        counts[instance.node_type] = counts.get(instance.node_type, 0) + 1
    return back
