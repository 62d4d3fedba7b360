"""When a draining node is done, and when it goes back to work."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.effects import Drained
from autoscaler.instances import Instance, InstanceState, Transition
from runtime._wire.messages.base import NodeInfo

REFUSED_REST_S = 5.0
"""A node that refused to be drained is left alone for so long."""


def answered(instance: Instance, outcome: Drained) -> Transition | Instance:
    """What the control store's answer means: back to work, or the drain holds."""
    if outcome.refused:
        return Transition(instance.id, InstanceState.RUNNING, f"drain refused: {outcome.refused}")
    return replace(instance, settled=True)


def rest_after_refusal(instance: Instance, now: float) -> Instance:
    """The instance, left alone for a while."""
    return replace(instance, not_before_s=now + REFUSED_REST_S)


def progress(instance: Instance, node: NodeInfo | None) -> Transition | None:
    """Whether the drain has come to its end: an idle node held nothing when the drain was accepted; a busy
    one must first have finished what it had."""
    if not instance.settled:
        return None
    if instance.only_if_idle:
        return Transition(instance.id, InstanceState.TERMINATING, f"drained: {instance.reason}")
    if node is None or (node.state == "DRAINING" and node.idle_since_s > 0):
        return Transition(instance.id, InstanceState.TERMINATING, f"drained and idle: {instance.reason}")
    return None
