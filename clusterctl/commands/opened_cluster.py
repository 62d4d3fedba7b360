"""What most commands begin with: the cluster's record and its head."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .guard import typed

if TYPE_CHECKING:
    from autoscaler.provider import Machine, Shell
    from clusterctl.api_client import ApiClient
    from clusterctl.home import ClusterRecord, Home
    from clusterctl.launcher.runtimes.protocol import NodeRuntime
    from clusterctl.providers.protocol import OperatorProvider

_DOCTOR = "`clusterctl doctor` looks for what is wrong."
_PATIENCE_S = 10.0
"""Whoever only writes something down waits so long for another command."""


@dataclass(slots=True)
class OpenedCluster:
    """One cluster, as a command sees it."""

    home: Home
    record: ClusterRecord

    def api(self) -> ApiClient:
        """The head's API.

        Raises:
            Unreachable: the cluster is stopped, or never finished coming up.
            NotFound: it has ended by itself.
        """
        from clusterctl.errors import Unreachable
        from clusterctl.home import STOPPED
        from clusterctl.launcher import reach

        record = self.record
        if record.stops_itself and record.state != STOPPED and record.api_url:
            self._notice()
        if record.state == STOPPED or not record.api_url:
            what = "is stopped" if record.state == STOPPED else "did not finish coming up"
            raise Unreachable(f"cluster '{record.name}' {what}", f"Bring it up with: {record.up_command}")
        return reach.api(self.home, record, self.provider())

    def engine_api(self) -> ApiClient:
        """The same, for what only our engine's head has.

        Raises:
            UsageProblem: the cluster runs another.
        """
        from clusterctl.errors import UsageProblem

        if not self.has_our_head:
            raise UsageProblem(
                f"cluster '{self.record.name}' runs {self.record.spec.runtime.name} itself, which has nothing of the "
                "kind",
                "docs/from-ray.md says what there is; Ray's own commands: clusterctl exec 'ray --help'",
            )
        return self.api()

    def _notice(self) -> None:
        """Notices that the cluster has stopped or ended by itself."""
        from clusterctl.errors import Busy, NotFound, Unreachable
        from clusterctl.launcher import look, notice
        from clusterctl.launcher.plan import Health

        record, provider = self.record, self.provider()
        if look.health(self.home, record, provider) not in (Health.SILENT, Health.SLOW):
            return
        try:
            with self.home.locked(record.name, typed()):
                now = self.home.again(record)
                if now is None or now.state != record.state:
                    return  # another command has begun something with it
                found = notice.notice(self.home, now, provider)
        except Busy:
            return
        again = f"Bring it up again with: {record.up_command}"
        if found is notice.Fate.ENDED:
            raise NotFound(
                f"cluster '{record.name}' has ended by itself, as nobody used it (autostop)", again
            )
        if found is notice.Fate.STOPPED:
            raise Unreachable(
                f"cluster '{record.name}' has stopped by itself, as nobody used it (autostop)", again
            )

    def may_end_by_itself(self) -> None:
        """Remembers that the cluster may end while nobody looks: then its silence has a reason.

        Raises:
            Busy: another command changes the cluster.
            NotFound: the cluster has ended meanwhile.
        """
        from clusterctl.errors import NotFound

        if self.record.stops_itself:
            return
        with self.home.locked(self.record.name, typed(), _PATIENCE_S):
            now = self.home.again(self.record)  # another command may have changed it
            if now is None:
                raise NotFound(
                    f"cluster '{self.record.name}' has ended meanwhile",
                    f"Bring it up again with: {self.record.up_command}",
                )
            self.record = now
            self.record.stops_itself = True
            self.home.write(self.record)

    @property
    def has_our_head(self) -> bool:
        """Whether the head runs our daemon. The API of another's has the same jobs, and none of the rest."""
        return self.record.spec.runtime.has_our_head

    def runtime(self) -> NodeRuntime:
        """What runs on the machines."""
        from clusterctl.launcher.runtimes.chosen import runtime_of

        return runtime_of(self.record.spec)

    def provider(self) -> OperatorProvider:
        from clusterctl.providers import registry

        return registry.make(self.record.spec, self.record.cluster_id, self.record.provider_settings)

    def machines(self) -> list[Machine]:
        from clusterctl.launcher.machines import existing

        return existing(self.provider())

    def environment(self) -> Mapping[str, str]:
        """What a person's programs on a node get besides the machine's environment: where the cluster is."""
        return self.runtime().environment(self.home, self.record)

    def shell(self, machine: Machine) -> Shell:
        from autoscaler.provider import ProviderError
        from clusterctl.errors import from_provider
        from clusterctl.launcher.containers import shell_of

        try:
            shell = self.provider().shell(machine)
            return shell_of(self.record.spec, machine.node_type, machine.is_head, shell)
        except ProviderError as error:
            raise from_provider(error) from error

    @contextlib.contextmanager
    def entered(self, machine: Machine) -> Iterator[Shell]:
        """The machine's shell, closed at the end.

        Raises:
            CliError: it cannot be used; TimedOut: not in time.
        """
        from autoscaler.provider import ShellError, ShellTimedOut
        from clusterctl.errors import CliError, TimedOut

        shell = self.shell(machine)
        try:
            yield shell
        except ShellTimedOut as error:
            raise TimedOut(str(error), _DOCTOR) from error
        except ShellError as error:
            raise CliError(str(error), _DOCTOR) from error
        finally:
            shell.close()

    def running(self) -> list[Machine]:
        """The machines that run, the head's first.

        Raises:
            Unreachable: there is none.
        """
        from autoscaler.provider import MachineState
        from clusterctl.errors import Unreachable

        machines = [machine for machine in self.machines() if machine.state is MachineState.RUNNING]
        if not machines:
            raise Unreachable(
                f"no machine of cluster '{self.record.name}' runs",
                f"Bring the cluster up with: {self.record.up_command}",
            )
        return sorted(machines, key=lambda machine: (not machine.is_head, machine.launched_s, machine.id))

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
                f"Bring the cluster up with: {self.record.up_command}",
            )
        return head

    def find(self, node: str | None, even_stopped: bool = False) -> Machine:
        """The machine of a node: by the beginning of its machine's or instance's id, or by its address. None: the
        head's.

        Raises:
            NotFound: none fits, or several do.
            Unreachable: the head is meant, and its machine does not run (but for `even_stopped`).
        """
        from clusterctl.errors import NotFound

        if node is None or node == "head":
            if not even_stopped:
                return self.head()
            from clusterctl.launcher.machines import head_of

            head = head_of(self.machines())
            if head is None:
                raise NotFound(f"the head's machine of cluster '{self.record.name}' is gone")
            return head
        machines = self.machines()
        exact = [m for m in machines if node in (m.id, m.instance_id, m.address, m.public_address)]
        found = exact or [m for m in machines if m.id.startswith(node) or m.instance_id.startswith(node)]
        if len(found) != 1:
            names = ", ".join(f"{m.id} ({m.instance_id})" for m in machines)
            problem = "more than one machine fits" if found else "there is no machine"
            raise NotFound(f"{problem} '{node}'", f"Machines of the cluster: {names or 'none'}.")
        return found[0]


def label(machine: Machine) -> str:
    """What a node is called in front of its lines."""
    return "head" if machine.is_head else machine.instance_id or machine.id


def open_cluster(cluster: str | None) -> OpenedCluster:
    """The cluster of `--cluster`, or the current one."""
    from clusterctl.home import Home

    home = Home.find()
    return OpenedCluster(home, home.resolve(cluster))
