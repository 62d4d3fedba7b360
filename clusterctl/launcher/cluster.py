"""The cluster that one run of `up` works on."""

from __future__ import annotations

import os
from dataclasses import replace

from autoscaler.provider import (
    Machine,
    MachineState,
    NodeType,
    ProviderError,
    SetupError,
    Shell,
    ShellError,
)
from clusterctl import home as homes
from clusterctl.api_client import ApiClient
from clusterctl.artefacts.target import Target
from clusterctl.errors import SetupFailed, from_provider
from clusterctl.home import Home
from clusterctl.providers import registry
from clusterctl.providers.protocol import OperatorProvider
from clusterctl.spec.definition import ClusterSpec

from . import machines, node_types, reach, setup, shipping
from .setup import NodeFacts
from .shipping import Shipment
from .wait import NodeRow, Watcher

CORRECT = "Correct that and run `clusterctl up` again."


class Cluster:
    """What the spec wants, what is remembered, and the ways to the machines.

    Attributes:
        watcher: told what happens.
        timeout_s: for the workers to join.
        is_renamed: the spec's name is not that of its file.
        is_known: there was a record of it.
        made_head: the head's machine, if this run has made it.
        head_id: the id of the head's machine; "": there is none.
    """

    def __init__(
        self,
        home: Home,
        spec: ClusterSpec,
        spec_file: str,
        watcher: Watcher,
        timeout_s: float,
        is_renamed: bool = False,
    ) -> None:
        self.home = home
        self.spec = spec
        self.watcher = watcher
        self.timeout_s = timeout_s
        self._spec_file = os.path.abspath(spec_file)
        self._is_renamed = is_renamed
        known = home.read(spec.cluster_name)
        self.is_known = known is not None
        self.record = known or homes.new_record(home, spec, spec_file, is_renamed)
        self.provider = self.provider_of(self.record.cluster_id)
        self.made_head: Machine | None = None
        self.head_id = self.record.head.id if self.record.head else ""
        self._shipped: tuple[Target, Shipment] | None = None

    def provider_of(self, cluster_id: str) -> OperatorProvider:
        """The provider of one id of the cluster."""
        return registry.make(self.spec, cluster_id, self.record.provider_settings)

    def renew(self) -> None:
        """Gives the cluster a new id, a new secret and an empty record."""
        self.home.renew(self.record.name)
        self.record = homes.new_record(self.home, self.spec, self._spec_file, self._is_renamed)
        self.provider = self.provider_of(self.record.cluster_id)

    def kinds(self) -> tuple[NodeType, ...]:
        """The node types."""
        return node_types.node_types(self.spec, self.provider.default_resources())

    def head_kind(self) -> NodeType:
        """The head's node type."""
        return node_types.head_type(self.spec, self.provider.default_resources())

    def api(self) -> ApiClient:
        """The API of the head."""
        return reach.api(self.home, self.record, self.provider)

    def shell(self, machine: Machine) -> Shell:
        """The shell of a machine."""
        try:
            return self.provider.shell(machine)
        except ProviderError as error:
            raise from_provider(error) from error

    def head(self) -> Machine:
        """The head's machine, when it runs."""
        made = self.made_head
        is_up = made is not None and made.state is MachineState.RUNNING and made.address
        if made is not None and made.id == self.head_id and is_up:
            return made
        return machines.await_running(self.provider, self.head_id)

    def shipment(self, target: Target) -> Shipment:
        """The runtime that travels to the head."""
        if self._shipped is None or self._shipped[0] != target:
            extras = self.provider.head_extras or ()
            self._shipped = target, shipping.packed(target, self.home.cache, extras)
        return self._shipped[1]

    def pack_for_here(self) -> None:
        """Most machines have the Python and the CPU that are here."""
        target = Target.here()
        is_shipped = self.spec.runtime.is_uploaded and self.provider.head_extras is not None
        if is_shipped and target is not None and self._shipped is None:
            self.shipment(target)

    def digests_file(self) -> str:
        """Where digests of the mounts' files are kept."""
        return self.home.digests_file(self.record.name)

    def set_up(self, machine: Machine, facts: NodeFacts) -> str:
        """Turns a machine into a node; returns what its start printed.

        Raises:
            SetupFailed: it names the node and the step.
        """
        name = "head" if machine.is_head else machine.id
        who = "the head" if machine.is_head else f"node {name} ({machine.node_type})"
        log_name = "head-setup.log" if machine.is_head else f"setup-{machine.instance_id}.log"
        log_path = str(self.home.folder(self.record.name) / "logs" / log_name)

        def tell(step: str) -> None:
            self.watcher.nodes([NodeRow(name, machine.node_type, f"set up: {step}")])

        is_cloud = self.provider.capabilities.shutdown_ends
        facts = replace(facts, digests=self.digests_file(), is_cloud=is_cloud)
        shell = self.shell(machine)
        try:
            with setup.open_log(log_path) as log:
                return setup.run(shell, facts, log, tell)
        except SetupError as error:
            why = f"{who} could not be set up: step '{error.step}': {error.reason}"
            is_kept_elsewhere = machine.is_head  # of a head that goes again, `up` says where
            raise SetupFailed(
                why if is_kept_elsewhere else f"{why}\n  its setup log: {log_path}", CORRECT
            ) from error
        except ShellError as error:
            raise SetupFailed(f"{who}: its shell failed: {error}", CORRECT) from error
        finally:
            shell.close()

    def prepare_for_new_spec(self) -> None:
        """So that the provider knows what the new spec names, and what only the old one does."""
        machines.existing(
            registry.make(self.record.spec, self.record.cluster_id, self.record.provider_settings)
        )
        self.provider = self.provider_of(self.record.cluster_id)
        self.prepare()

    def prepare(self) -> None:
        """Makes at the provider what the node types need."""
        try:
            machines.patiently(lambda: self.provider.prepare(self.kinds()))
        except ProviderError as error:
            raise from_provider(error) from error

    def remember_spec(self) -> None:
        """From now on the cluster goes by this spec, also if the rest of this `up` fails: `down` must look wherever it
        says that there are machines."""
        self.record.spec, self.record.spec_hash = self.spec, homes.spec_hash(self.spec)
        self.record.stops_itself |= self.spec.autostop is not None
        self.record.spec_file, self.record.is_renamed = self._spec_file, self._is_renamed
        self.home.write(self.record)
