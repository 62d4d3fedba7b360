"""Notices that a cluster has ended by itself (`autostop`) since the last command, and writes it down."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from autoscaler.provider import Machine, MachineState, ProviderError
from clusterctl import home as homes
from clusterctl.home import ClusterRecord, Home
from clusterctl.providers.protocol import OperatorProvider

from . import machines


class Fate(Enum):
    """What became of a cluster whose head does not answer."""

    UNKNOWN = "unknown"  # its head may have died
    STOPPED = "stopped"  # by itself; `up` starts it again
    ENDED = "ended"  # by itself; nothing is left


def fate(record: ClusterRecord, listed: Sequence[Machine]) -> Fate:
    """What the listing says of a cluster whose head does not answer. Pure."""
    if not record.stops_itself or record.state != homes.UP:
        return Fate.UNKNOWN
    if not listed:
        return Fate.ENDED
    head = machines.head_of(listed)
    stopped = (MachineState.STOPPED, MachineState.STOPPING)
    return Fate.STOPPED if head is not None and head.state in stopped else Fate.UNKNOWN


def notice(home: Home, record: ClusterRecord, provider: OperatorProvider) -> Fate:
    """Looks what became of a cluster whose head does not answer. One that has stopped itself is remembered as
    stopped; of one that has ended itself, what was made around it is removed, and it is forgotten.

    Raises:
        CliError: the provider does not say what there is.
    """
    found = fate(record, machines.existing(provider) if record.stops_itself else ())
    if found is Fate.STOPPED:
        record.state = homes.STOPPED
        home.write(record)
    elif found is Fate.ENDED:
        try:
            provider.cleanup()
        except ProviderError:
            return found  # it stays known, so that the next command tries again
        home.forget(record.name)
    return found
