"""Machines as EC2 lists them. Pure but for `Recent`, which remembers what the listing may not know yet."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from autoscaler.provider import ON_DEMAND, SPOT, Machine, MachineState, MachineTags

from . import tagging

STATES = {
    "pending": MachineState.PENDING,
    "running": MachineState.RUNNING,
    "shutting-down": MachineState.STOPPING,
    "stopping": MachineState.STOPPING,
    "stopped": MachineState.STOPPED,
    "terminated": MachineState.GONE,
}


def machine(instance: Mapping[str, Any]) -> Machine:
    """The machine of a described instance."""
    tags = tagging.of_machine(tagging.read(instance.get("Tags")), int(instance.get("AmiLaunchIndex", 0)))
    return Machine(
        id=str(instance["InstanceId"]),
        state=STATES.get(instance["State"]["Name"], MachineState.PENDING),
        node_type=tags.get(MachineTags.NODE_TYPE, ""),
        tags=tags,
        address=str(instance.get("PrivateIpAddress") or ""),
        public_address=str(instance.get("PublicIpAddress") or ""),
        zone=str(instance.get("Placement", {}).get("AvailabilityZone", "")),
        market=SPOT if instance.get("InstanceLifecycle") == "spot" else ON_DEMAND,
        launched_s=instance["LaunchTime"].timestamp(),
    )


def instances(reservations: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The instances of reservations."""
    return [instance for reservation in reservations for instance in reservation.get("Instances", ())]


class Recent:
    """What was launched from here just now. EC2's listing is eventually consistent: for a while it may lack a machine
    whose launch it has confirmed. One that it has shown once counts by the listing alone."""

    def __init__(self, lag_s: float) -> None:
        self._lag_s = lag_s
        self._lock = threading.Lock()
        self._launched: dict[str, tuple[float, Machine]] = {}

    def add(self, launched: Iterable[Machine]) -> None:
        """Remembers machines."""
        until = time.monotonic() + self._lag_s
        with self._lock:
            self._launched.update({one.id: (until, one) for one in launched})

    def completed(self, listed: list[Machine]) -> list[Machine]:
        """The listing with what it may not show yet."""
        shown = {one.id for one in listed}
        now = time.monotonic()
        with self._lock:
            self._launched = {
                id: (until, one)
                for id, (until, one) in self._launched.items()
                if id not in shown and now < until
            }
            return listed + [one for _, one in self._launched.values()]
