"""What most commands begin with: the cluster's record and its head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoscaler.provider import Machine, Shell
    from clusterctl.api_client import ApiClient
    from clusterctl.home import ClusterRecord, Home
    from clusterctl.providers import OperatorProvider


@dataclass(slots=True)
class Session:
    """One cluster, as a command sees it."""

    home: Home
    record: ClusterRecord

    def api(self) -> ApiClient:
        """The head's API.

        Raises:
            Unreachable: the cluster is stopped, or was never brought up wholly.
        """
        from clusterctl.errors import Unreachable
        from clusterctl.home import STOPPED
        from clusterctl.launcher import reach

        record = self.record
        if record.state == STOPPED or not record.api_url:
            what = "is stopped" if record.state == STOPPED else "did not come up wholly"
            raise Unreachable(
                f"cluster '{record.name}' {what}", f"Bring it up with: clusterctl up {record.spec_file}"
            )
        return reach.api(self.home, record, self.provider())

    def provider(self) -> OperatorProvider:
        from clusterctl import providers

        return providers.make(self.record.spec, self.record.cluster_id, self.record.provider_settings)

    def machines(self) -> list[Machine]:
        from clusterctl.launcher.machines import existing

        return existing(self.provider())

    def environment(self) -> dict[str, str]:
        """What a person's programs on the head need besides the machine's environment: where the cluster is."""
        return {"CLUSTERCTL_ADDRESS": self.record.control_address} if self.record.control_address else {}

    def shell(self, machine: Machine) -> Shell:
        from autoscaler.provider import ProviderError
        from clusterctl.errors import from_provider

        try:
            return self.provider().shell(machine)
        except ProviderError as error:
            raise from_provider(error) from error

    def head(self) -> Machine:
        """The head's machine.

        Raises:
            Unreachable: it does not run.
        """
        from autoscaler.provider import MachineState
        from clusterctl.errors import Unreachable
        from clusterctl.launcher.machines import head_of

        head = head_of(self.machines())
        if head is None or head.state is not MachineState.RUNNING:
            raise Unreachable(
                f"the head's machine of cluster '{self.record.name}' does not run",
                f"Bring the cluster up with: clusterctl up {self.record.spec_file}",
            )
        return head


def open_session(cluster: str | None) -> Session:
    """The session of `--cluster`, or of the current cluster."""
    from clusterctl.home import Home

    home = Home.find()
    return Session(home, home.resolve(cluster))
