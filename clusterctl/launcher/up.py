"""`up`: gathers facts, plans, applies the plan, and cleans up when it is interrupted."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from autoscaler.provider import (
    LaunchRequest,
    Machine,
    MachineState,
    ProviderError,
    SetupError,
    ShellError,
)
from clusterctl import home as homes
from clusterctl import providers
from clusterctl.api_client import ApiClient
from clusterctl.errors import CliError, Denied, NotFound, SetupFailed, TimedOut, Unreachable, from_provider
from clusterctl.head.config import DaemonRecord, HeadConfig
from clusterctl.home import ClusterRecord, Home
from clusterctl.plan_view import changes
from clusterctl.providers import OperatorProvider
from clusterctl.spec import ray_start
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.load import cluster_limit

from . import machines, node_types, reach, setup, shipping
from .costs import Costs, costs
from .notice import notice
from .plan import Action, Facts, Health, Plan, Step, plan
from .wait import await_workers, instance_ids


@dataclass(slots=True)
class UpResult:
    """What `up` did. `steps_s`: what each part took."""

    record: ClusterRecord
    plan: Plan
    workers: int = 0
    seconds: float = 0.0
    steps_s: dict[str, float] = field(default_factory=dict)


class Up:
    """One run of `up`. `progress` is told what happens."""

    def __init__(
        self, home: Home, spec: ClusterSpec, spec_file: str, progress: Callable[[str], None], timeout_s: float
    ) -> None:
        self._home = home
        self._spec = spec
        self._spec_file = spec_file
        self._progress = progress
        self._timeout_s = timeout_s
        known = home.read(spec.cluster_name)
        self.record = known or homes.new_record(home, spec, spec_file)
        self._known = known is not None
        self._provider = self._make_provider(self.record.cluster_id)
        self._steps_s: dict[str, float] = {}
        self._earlier: frozenset[str] = frozenset()

    def facts(self) -> Facts:
        """Looks at the record, the listing and the head's API."""
        record = self.record
        health = self._health() if self._known else Health.UNKNOWN
        if health is Health.SILENT:
            notice(self._home, record, self._provider)
        # A head that answers looks after its machines itself: nothing is planned for them.
        listed = [] if health is Health.ANSWERS else machines.existing(self._provider)
        head = machines.head_of(listed)
        others = () if health is Health.ANSWERS else self._provider.clusters(record.name)
        strangers = [
            machine.id
            for other in others
            if other != record.cluster_id
            for machine in machines.existing(self._make_provider(other))
        ]
        return Facts(
            record_state=record.state if self._known else "",
            health=health,
            head_id=head.id if head else "",
            head_stopped=head is not None and head.state is MachineState.STOPPED,
            machines=tuple(machine.id for machine in listed),
            strangers=tuple(strangers),
            spec_changed=record.spec_hash != homes.spec_hash(self._spec),
            head_changed=node_types.head_hash(record.spec) != node_types.head_hash(self._spec),
        )

    def check(self) -> list[str]:
        """The check phase: what would make it fail, before anything is made."""
        try:
            problems = self._provider.check(
                node_types.node_types(self._spec, self._provider.default_resources())
            )
        except ProviderError as error:
            raise from_provider(error) from error
        missing = [mount for mount in setup.operators_mounts(self._spec) if not os.path.exists(mount.source)]
        return [
            *(f"{problem.what}. {problem.advice}" for problem in problems if problem.fatal),
            *(
                f"file_mounts {mount.target}: there is no {mount.source}. Correct the path."
                for mount in missing
            ),
        ]

    def costs(self) -> Costs:
        """What the cluster costs with this spec.

        Raises:
            CliError: the provider does not tell its offers.
        """
        kinds = node_types.node_types(self._spec, self._provider.default_resources())
        able = self._provider.capabilities
        wanted = [kind for kind in kinds if kind.max_workers or kind.name == self._spec.head_node_type]
        try:
            offers = {kind.name: self._provider.offers(kind) for kind in wanted} if able.prices else None
        except ProviderError as error:
            raise from_provider(error) from error
        most, budget = cluster_limit(self._spec), self._spec.budgets.max_hourly_price
        return costs(kinds, self._spec.head_node_type, most, budget, offers, able.price_source)

    def changes(self) -> list[str]:
        """What the spec says otherwise than the one that is remembered."""
        if not self._known:
            return []
        before, after = msgspec.to_builtins(self.record.spec), msgspec.to_builtins(self._spec)
        return changes(before, after)

    def apply(self, chosen: Plan) -> UpResult:
        """Does what the plan says. A new cluster that does not come up is removed again."""
        started = time.monotonic()
        result = UpResult(self.record, chosen, steps_s=self._steps_s)
        head_is_up = not chosen.is_new
        try:
            for step in chosen.steps:
                begun = time.monotonic()
                if step.action is Action.AWAIT_WORKERS:
                    result.workers = self._await_workers()
                else:
                    self._do(step)
                self._steps_s[step.action.value] = time.monotonic() - begun
                head_is_up = head_is_up or step.action is Action.SET_UP_HEAD
        except (SetupFailed, TimedOut):
            if not head_is_up:
                self._remove()
            raise  # with a head that runs the cluster stays, to be looked at and corrected
        except BaseException:
            if chosen.is_new:
                self._remove()
            raise
        self.record.state = homes.UP
        self.record.spec, self.record.spec_hash = self._spec, homes.spec_hash(self._spec)
        self.record.stops_itself |= self._spec.autostop is not None
        self.record.spec_file = os.path.abspath(self._spec_file)
        if chosen.steps:
            self._home.write(self.record)
        self._home.set_current(self.record.name)
        result.record = self.record
        result.seconds = time.monotonic() - started
        return result

    # -- one method per action

    def _do(self, step: Step) -> None:
        if step.action is Action.END_MACHINES:
            self._end(step.machines)
        elif step.action is Action.CREATE_HEAD:
            self._create_head()
        elif step.action is Action.BOOT_HEAD:
            self._boot_head()
        elif step.action is Action.SET_UP_HEAD:
            self._set_up_head()
        elif step.action is Action.PUSH_SPEC:
            self._progress("giving the autoscaler the new limits and node types")
            self._prepare_for_new_spec()
            self._earlier = instance_ids(self.api().get("/api/cluster_status"))
            self.api().put("/api/autoscaler/config", msgspec.json.encode(self._spec), timeout_s=30.0)

    def _end(self, ids: Sequence[str]) -> None:
        self._progress(f"ending {len(ids)} machine{'s' if len(ids) > 1 else ''} left from before")
        for cluster_id in {self.record.cluster_id, *self._provider.clusters(self.record.name)}:
            machines.end_all(self._make_provider(cluster_id), only=set(ids))

    def _create_head(self) -> None:
        if self._known:
            self._home.forget(self.record.name)
            self.record = homes.new_record(self._home, self._spec, self._spec_file)
            self._provider = self._make_provider(self.record.cluster_id)
        self.record.provider_settings = dict(self._provider.settings())
        self._home.write(self.record)  # first, so that whatever happens next is remembered
        self._home.new_secret(self.record.name)
        head_type = node_types.head_type(self._spec, self._provider.default_resources())
        self._progress(f"creating the head ({head_type.name}, {self._spec.provider.__struct_config__.tag})")
        try:
            self._provider.prepare(node_types.node_types(self._spec, self._provider.default_resources()))
            offers = self._provider.offers(head_type)
            problems: list[ProviderError] = []
            for offer in offers:
                launched = self._provider.create(
                    LaunchRequest(
                        token=f"{self.record.cluster_id}-head",
                        node_type=head_type,
                        count=1,
                        offer=offer,
                        tags=node_types.head_tags(self._spec, self.record.cluster_id),
                        instance_ids=(f"{self.record.cluster_id}-head",),
                    )
                )
                if launched.machines:
                    self.record.head_machine = launched.machines[0].id
                    self._home.write(self.record)
                    return
                problems.extend(launched.errors)
        except ProviderError as error:
            raise from_provider(error) from error
        raise (
            from_provider(problems[-1])
            if problems
            else CliError(f"the provider offers no machine for node type '{head_type.name}'")
        )

    def _boot_head(self) -> None:
        self._progress("starting the head's machine")
        try:
            self._provider.start([self.record.head_machine])
        except ProviderError as error:
            raise from_provider(error) from error

    def _set_up_head(self) -> None:
        head = machines.await_running(self._provider, self.record.head_machine)
        config_file = self._home.folder(self.record.name) / "head.json"
        config_file.write_bytes(self._head_config(head).to_json())
        config_file.chmod(0o600)
        extras = self._provider.head_extras
        shipped = None if extras is None else shipping.own(str(self._home.root / "cache"), extras)
        facts = setup.head_facts(
            self._spec,
            self._home.secret_file(self.record.name),
            str(config_file),
            head.address,
            self._provider.for_head().files,
            shipped,
            self._home.digests_file(self.record.name),
        )
        log_path = str(self._home.folder(self.record.name) / "logs" / "head-setup.log")
        self._progress("setting up the head")
        shell = self._provider.shell(head)
        try:
            with setup.open_log(log_path) as log:
                output = setup.run(shell, facts, log)
        except SetupError as error:
            raise SetupFailed(f"the head could not be set up: step '{error.step}': {error.reason}") from error
        except ShellError as error:
            raise SetupFailed(f"the head's shell failed: {error}") from error
        finally:
            shell.close()
        daemon = msgspec.json.decode(output.strip().splitlines()[-1], type=DaemonRecord)
        self.record.control_address, self.record.api_url = daemon.control_address, daemon.api_url
        self._home.write(self.record)
        self._home.set_current(self.record.name)

    def _prepare_for_new_spec(self) -> None:
        """So that the provider knows what the new spec names, and what only the old one does."""
        machines.existing(
            providers.make(self.record.spec, self.record.cluster_id, self.record.provider_settings)
        )
        self._provider = self._make_provider(self.record.cluster_id)
        try:
            self._provider.prepare(node_types.node_types(self._spec, self._provider.default_resources()))
        except ProviderError as error:
            raise from_provider(error) from error

    def _await_workers(self) -> int:
        return await_workers(self.api(), self._spec, self._timeout_s, self._progress, self._earlier)

    # -- inside

    def api(self) -> ApiClient:
        """The API of the cluster's head."""
        return reach.api(self._home, self.record, self._provider)

    def _head_config(self, head: Machine) -> HeadConfig:
        defaults = self._provider.default_resources()
        kind = node_types.head_type(self._spec, defaults)
        start = ray_start.parse_start(self._spec.head_start_ray_commands)
        return HeadConfig(
            cluster_id=self.record.cluster_id,
            cluster_name=self.record.name,
            host=head.address,
            control_port=self._spec.ports.control or start.control_port,
            api_port=self._spec.ports.api or start.api_port,
            node_type=kind.name,
            resources=dict(kind.resources),
            labels=dict(kind.labels),
            instance_id=head.instance_id,
            spec=self._spec,
            provider_settings=dict(self._provider.for_head().settings),
        )

    def _health(self) -> Health:
        if not self.record.api_url:
            return Health.UNKNOWN
        try:
            self.api().get("/api/version", timeout_s=3.0)
        except (Unreachable, NotFound):
            return Health.SILENT
        except TimedOut:
            return Health.SLOW
        except Denied:
            return Health.DENIED
        return Health.ANSWERS

    def _make_provider(self, cluster_id: str) -> OperatorProvider:
        return providers.make(self._spec, cluster_id, self.record.provider_settings)

    def _remove(self) -> None:
        """Takes away what was made so far, undisturbed by further Ctrl-C."""
        with _uninterrupted():
            self._progress("removing what was made so far")
            machines.end_all(self._provider)
            self._provider.cleanup()
            self._home.forget(self.record.name)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)


def plan_for(up: Up) -> Plan:
    """The plan for what `up` finds now."""
    return plan(up.facts())
