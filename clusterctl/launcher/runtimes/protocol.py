"""What the launcher needs of a runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from autoscaler.provider import Machine
from clusterctl.api_client import Answer
from clusterctl.home import ClusterRecord, Home

from ..cluster import Cluster
from ..plan import Health
from ..setup import NodeFacts


class Workers(Protocol):
    """How the workers of a cluster come to be, in one run of `up`."""

    def push_spec(self) -> None:
        """Tells the autoscaler the new spec. Only where there is one."""

    def refresh(self) -> None:
        """Brings those that run what the head was brought, and runs their setup commands again."""

    def complete(self, starts_over: bool) -> int:
        """Waits until there are those that the spec demands; returns how many workers there are.

        Args:
            starts_over: nothing else was done in this `up`: earlier failures do not count.
        """


class NodeRuntime(Protocol):
    """One runtime. It keeps no state."""

    @property
    def stop_command(self) -> str:
        """Ends the head's daemons."""

    @property
    def status_command(self) -> str:
        """Prints the cluster's status on the head; "" where the API has it."""

    @property
    def life_question(self) -> str:
        """Script: prints what runs on a machine. See `life.read`."""

    def removal_of_boot_entry(self, cluster_id: str) -> str:
        """Command for the head's machine, after which no boot starts the head any more; "" where none does."""

    def health(self, answer: Answer, cluster_id: str) -> Health:
        """How the head is whose port gave this answer to a request for `/api/version`. SILENT: another program has the
        port. Pure."""

    def environment(self, home: Home, record: ClusterRecord) -> Mapping[str, str]:
        """What programs on a node need to use the cluster."""

    def head_facts(self, cluster: Cluster, head: Machine, was_booted: bool) -> NodeFacts:
        """Facts of the head. `was_booted`: this `up` has started its machine, whose boot may have started daemons."""

    def addresses(self, cluster: Cluster, head: Machine, printed: str) -> tuple[str, str]:
        """Where nodes and where clients reach a head, given what its start has printed."""

    def lacks_workers(self, cluster: Cluster) -> bool:
        """Whether the workers are not those that the spec demands."""

    def workers(self, cluster: Cluster) -> Workers:
        """The workers, in one run of `up` that begins now."""
