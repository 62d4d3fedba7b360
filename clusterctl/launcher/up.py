"""`up`: applies a plan, and cleans up when it is interrupted."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec

from autoscaler.provider import (
    Capacity,
    LaunchRequest,
    Machine,
    MachineState,
    MachineTags,
    NodeType,
    Offer,
    Problem,
    ProviderError,
    Quota,
    SetupError,
    Shell,
    ShellError,
)
from clusterctl import home as homes
from clusterctl.api_client import ApiClient
from clusterctl.artefacts.target import Target
from clusterctl.errors import CliError, Interrupted, SetupFailed, from_provider
from clusterctl.head.config import HeadConfig
from clusterctl.head.record import NO_BOOT_ENTRY, DaemonRecord
from clusterctl.home import ClusterRecord, Home
from clusterctl.plan_view import changes
from clusterctl.providers import registry
from clusterctl.providers.protocol import OperatorProvider
from clusterctl.spec import ray_start
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.load import cluster_limit
from clusterctl.sync.transfer import SyncError

from . import checks, containers, look, machines, node_types, reach, setup, shipping
from .board import JOINED, NodeRow
from .costs import Costs, costs, estimate
from .plan import Action, Facts, Health, Plan, Restart, Step, plan
from .shipping import Shipment
from .wait import Watcher, await_workers, instance_ids, missing_workers

_STOP_S = 60.0
_REFRESH_S = 3600.0
_CORRECT = "Correct that and run `clusterctl up` again."


@dataclass(slots=True)
class UpResult:
    """What `up` did. `steps_s`: what each part took."""

    record: ClusterRecord
    plan: Plan
    workers: int = 0
    seconds: float = 0.0
    steps_s: dict[str, float] = field(default_factory=dict)


class Up:
    """One run of `up`, or a rehearsal, which changes nothing. `watcher` is told what happens. `is_renamed`: the spec's
    name is not that of its file."""

    _stop = setup.STOP
    """Command: ends the head's daemons."""

    def __init__(
        self,
        home: Home,
        spec: ClusterSpec,
        spec_file: str,
        watcher: Watcher,
        timeout_s: float,
        is_renamed: bool = False,
        is_rehearsal: bool = False,
    ) -> None:
        self._home = home
        self._spec = spec
        self._spec_file = os.path.abspath(spec_file)
        self._is_renamed = is_renamed
        self._is_rehearsal = is_rehearsal
        self._watcher = watcher
        self._timeout_s = timeout_s
        known = home.read(spec.cluster_name)
        self.record = known or homes.new_record(home, spec, spec_file, is_renamed)
        self._known = known is not None
        self._provider = self._make_provider(self.record.cluster_id)
        self._steps_s: dict[str, float] = {}
        self._earlier: frozenset[str] = frozenset()
        self._leaving: frozenset[str] = frozenset()
        self._made_machines = False
        self._booted = False
        self._made_head: Machine | None = None
        self._shipped: tuple[Target, Shipment] | None = None
        self._began_s = 0.0
        self._head_id = self.record.head.id if self.record.head else ""

    def facts(self) -> Facts:
        """Looks at the record, the listing and the head's API."""
        found = look.facts(
            self._home,
            self._spec,
            self.record,
            self._known,
            self._provider,
            self._make_provider,
            self._is_rehearsal,
        )
        self._head_id = found.head_id or self._head_id
        return replace(found, lacks_workers=found.health is Health.ANSWERS and self._lacks_workers())

    def plan(self, restart: Restart, facts: Facts | None = None) -> Plan:
        """What is to be done, as things are now, or as `facts` say."""
        if self._known and _place(self.record.spec) != _place(self._spec):
            return Plan(
                refusal=f"cluster '{self.record.name}' is at another place: {', '.join(_place(self.record.spec))}",
                advice="End it first, with `clusterctl down` and its name, or give this one another: -n NAME.",
            )
        return plan(facts or self.facts(), restart)

    def check(self) -> list[Problem]:
        """The check phase: what would make it fail, before anything is made."""
        try:
            return checks.problems(self._spec, self._provider, self._kinds(), self._shipment)
        except ProviderError as error:
            raise from_provider(error) from error

    def costs(self) -> Costs:
        """What the cluster costs with this spec.

        Raises:
            CliError: the provider does not tell its offers.
        """
        return estimate(self._spec, self._provider, self._kinds())

    def machines(self) -> Costs:
        """The machines of the cluster with this spec, without their prices. Asks nobody."""
        return costs(self._kinds(), self._spec.head_node_type, cluster_limit(self._spec), None, None)

    def changes(self) -> list[str]:
        """What the spec says otherwise than the one that is remembered."""
        if not self._known:
            return []
        before, after = msgspec.to_builtins(self.record.spec), msgspec.to_builtins(self._spec)
        return changes(before, after)

    def apply(self, chosen: Plan) -> UpResult:
        """Does what the plan says. A new cluster that does not come up is removed again."""
        started, self._began_s = time.monotonic(), time.time()
        result = UpResult(self.record, chosen, steps_s=self._steps_s)
        has_head = not chosen.is_new
        try:
            for step in chosen.steps:
                begun = time.monotonic()
                if step.action in (Action.AWAIT_WORKERS, Action.MAKE_WORKERS):
                    if step is chosen.steps[0]:
                        self._note_earlier()  # what an earlier `up` began may fail: the autoscaler begins anew
                    result.workers = self._await_workers()
                else:
                    self._do(step, chosen)
                self._steps_s[step.action.value] = time.monotonic() - begun
                has_head = has_head or step.action in (Action.SET_UP_HEAD, Action.START_DAEMONS)
        except CliError as error:
            if not has_head:
                log = self._remove(str(error))
                if log:
                    error.hint = f"{error.hint}\nAll of the head's set-up: {log}".strip()
            raise  # with a head that runs the cluster stays, to be looked at and corrected
        except KeyboardInterrupt as interrupt:
            if not chosen.is_new:
                raise Interrupted(
                    "interrupted: the cluster is left as far as it got, and what runs of it runs on. `clusterctl up` "
                    "goes on, `clusterctl down` ends it."
                ) from interrupt
            self._remove("`clusterctl up` was interrupted")
            raise Interrupted(
                "`clusterctl up` was interrupted, and what it had made is removed"
            ) from interrupt
        except BaseException as error:
            if chosen.is_new:
                self._remove(f"{type(error).__name__}: {error}")
            raise
        self.record.state = homes.UP
        if chosen.steps:
            self._remember_spec()
        self._home.set_current(self.record.name)
        result.record = self.record
        result.seconds = time.monotonic() - started
        return result

    def _lacks_workers(self) -> bool:
        """Whether fewer have joined than shall always be there."""
        return bool(missing_workers(self._spec, self.api().get("/api/cluster_status")))

    # -- one method per action

    def _do(self, step: Step, chosen: Plan) -> None:
        if step.action is Action.END_MACHINES:
            self._end(step.machines)
        elif step.action is Action.CREATE_HEAD:
            self._create_head(chosen.keeps_id)
        elif step.action is Action.BOOT_HEAD:
            self._boot_head()
        elif step.action is Action.SET_UP_HEAD:
            self._watcher.say("setting up the head")
            self._started(self._run_setup())
        elif step.action is Action.START_DAEMONS:
            self._watcher.say("starting the head's daemons")
            self._started(self._run_setup(only_start=True))
        elif step.action is Action.UPDATE_HEAD:
            self._watcher.say("bringing the head up to date")
            self._run_setup(starts=False)
            self._refresh_workers()
        elif step.action is Action.STOP_DAEMONS:
            self._stop_daemons()
        elif step.action is Action.END_WORKERS:
            self._end_workers()
        elif step.action is Action.PUSH_SPEC:
            self._push_spec()

    def _end(self, ids: Sequence[str]) -> None:
        self._watcher.say(f"ending {len(ids)} machine{'s' if len(ids) > 1 else ''} left from before")
        for cluster_id in machines.lives(self._provider, self.record, self.record.name):
            machines.end_all(self._make_provider(cluster_id), only=set(ids))

    def _end_workers(self) -> None:
        workers = {machine.id for machine in machines.existing(self._provider) if not machine.is_head}
        if workers:
            self._watcher.say(f"giving back {len(workers)} worker{'s' if len(workers) > 1 else ''}")
            machines.end_all(self._provider, only=workers)

    def _create_head(self, keeps_id: bool) -> None:
        if self._known and not keeps_id:
            self._home.renew(self.record.name)
            self.record = homes.new_record(self._home, self._spec, self._spec_file, self._is_renamed)
            self._provider = self._make_provider(self.record.cluster_id)
        self.record.provider_settings = dict(self._provider.settings())
        self._home.write(self.record)  # first, so that whatever happens next is remembered
        if not os.path.exists(self._home.secret_file(self.record.name)):
            self._home.new_secret(self.record.name)
        head_type = node_types.head_type(self._spec, self._provider.default_resources())
        self._watcher.say(
            f"creating the head ({head_type.name}, {self._spec.provider.__struct_config__.tag})"
        )
        problems: list[ProviderError] = []
        try:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(self._pack_for_here)  # takes a moment while the machines are prepared there
                machines.patiently(lambda: self._provider.prepare(self._kinds()))
            for offer in machines.patiently(lambda: self._provider.offers(head_type)):
                self._made_machines = True
                launched = machines.patiently(partial(self._provider.create, self._head_request(offer)))
                if launched.machines:
                    self._made_head = launched.machines[0]
                    self._head_id = self._made_head.id
                    return
                problems.extend(launched.errors)
        except ProviderError as error:
            raise from_provider(error) from error
        if not problems:
            raise CliError(f"the provider offers no machine for node type '{head_type.name}'")
        worst = next((p for p in problems if not isinstance(p, Capacity | Quota)), problems[-1])
        worst.message = "; ".join(dict.fromkeys(str(problem) for problem in problems))
        raise from_provider(worst)

    def _head_request(self, offer: Offer) -> LaunchRequest:
        # One token for each offer: platforms take the same one with other arguments for a mistake.
        token = "-".join(part for part in (self.record.cluster_id, "head", offer.zone, offer.market) if part)
        return LaunchRequest(
            token=token,
            node_type=node_types.head_type(self._spec, self._provider.default_resources()),
            count=1,
            offer=offer,
            tags=node_types.head_tags(self._spec, self.record.cluster_id),
            instance_ids=(f"{self.record.cluster_id}-head",),
        )

    def _boot_head(self) -> None:
        self._watcher.say("starting the head's machine")
        try:
            machines.patiently(lambda: self._provider.start([self._head_id]))
        except ProviderError as error:
            raise from_provider(error) from error
        self._booted = True

    def _stop_daemons(self) -> None:
        """Ends what the head runs, so that nothing of it looks after the workers any more."""
        self._watcher.say("stopping the head's daemons")
        head = self._head()
        shell = containers.shell_of(self.record.spec, head.node_type, True, self._shell(head))
        try:
            result = shell.run(self._stop, timeout_s=_STOP_S)
        except ShellError as error:
            raise CliError(f"the head's shell failed: {error}", "Run it again.") from error
        finally:
            shell.close()
        if result.exit_status:
            raise CliError(
                f"the head's daemons could not be stopped: {result.output.strip()}",
                "Run it again, or `clusterctl down` and `clusterctl up`.",
            )

    def _run_setup(self, *, starts: bool = True, only_start: bool = False) -> str:
        """Runs the head's setup; returns what its last step printed."""
        head = self._head()
        facts = self._head_facts(head)
        digest = self.record.files_digest if only_start else self._files_digest()
        if only_start:
            facts = setup.only_start(facts)
        if not starts:
            facts = setup.without_start(facts)
        log_path = str(self._home.folder(self.record.name) / "logs" / "head-setup.log")
        shell = self._shell(head)
        try:
            with setup.open_log(log_path) as log:
                output = setup.run(shell, facts, log, self._head_step)
        except SetupError as error:
            raise SetupFailed(
                f"the head could not be set up: step '{error.step}': {error.reason}", _CORRECT
            ) from error
        except ShellError as error:
            raise SetupFailed(f"the head's shell failed: {error}", _CORRECT) from error
        finally:
            shell.close()
        self.record.head, self.record.files_digest = head, digest
        self._head_does(JOINED)
        return output

    def _files_digest(self) -> str:
        try:
            return setup.files_digest(
                setup.operators_mounts(self._spec), self._home.digests_file(self.record.name)
            )
        except SyncError as error:
            raise SetupFailed(f"file_mounts: {error}", _CORRECT) from error

    def _refresh_workers(self) -> None:
        """The head brings its workers what it was brought. Those that a new spec makes otherwise are replaced later."""
        self._watcher.say("bringing the workers up to date")
        said = self.api().put("/api/workers/refresh", b"", timeout_s=_REFRESH_S)
        failed = [f"worker {name}: {why}" for name, why in said.items() if why]
        if failed:
            raise SetupFailed(
                "the head is up to date, and these workers are not:\n" + "\n".join(failed),
                "`clusterctl logs NODE` shows how they were set up. Correct it and run `clusterctl up` again.",
            )

    def _head_facts(self, head: Machine) -> setup.NodeFacts:
        config_file = self._home.write_head_config(self.record.name, self._head_config(head).to_json())
        facts = setup.head_facts(
            self._spec,
            self._home.secret_file(self.record.name),
            config_file,
            head.address,
            registry.for_head(self._spec, self._provider).files,
            None if self._provider.head_extras is None else self._shipment,
            self._home.digests_file(self.record.name),
        )
        if self._booted:
            facts = setup.ending_what_runs(facts)
        return replace(facts, keys_s=setup.KEYS_S if self._provider.capabilities.shutdown_ends else 0.0)

    def _shipment(self, target: Target) -> Shipment:
        """The runtime that travels to the head."""
        if self._shipped is None or self._shipped[0] != target:
            extras = self._provider.head_extras or ()
            self._shipped = target, shipping.packed(target, self._home.cache, extras)
        return self._shipped[1]

    def _pack_for_here(self) -> None:
        """Most machines have the Python and the CPU that are here."""
        target = Target.here()
        if self._provider.head_extras is not None and target is not None and self._shipped is None:
            self._shipment(target)

    def _head_step(self, step: str) -> None:
        self._head_does(f"set up: {step}")

    def _head_does(self, doing: str) -> None:
        self._watcher.nodes([NodeRow("head", self._spec.head_node_type, doing)])

    def _started(self, output: str) -> None:
        """Remembers where the head that was started can be reached."""
        self.record.control_address, self.record.api_url = self._addresses(output)
        self.record.is_behind = self._provider.capabilities.forward_ports
        self._remember_spec()
        self._home.set_current(self.record.name)

    def _remember_spec(self) -> None:
        """From now on the cluster goes by this spec, also if the rest of this `up` fails: `down` must look wherever it
        says that there are machines."""
        self.record.spec, self.record.spec_hash = self._spec, homes.spec_hash(self._spec)
        self.record.stops_itself |= self._spec.autostop is not None
        self.record.spec_file, self.record.is_renamed = self._spec_file, self._is_renamed
        self._home.write(self.record)

    def _addresses(self, output: str) -> tuple[str, str]:
        """Those of the control store and of the API, by what the start printed. Says what else is to be known."""
        daemon = msgspec.json.decode(output.strip().splitlines()[-1], type=DaemonRecord)
        if daemon.boot_entry == NO_BOOT_ENTRY:
            self._watcher.say(
                "the head does not survive a reboot of its machine: after one run `clusterctl up` again"
            )
        return daemon.control_address, daemon.api_url

    def _push_spec(self) -> None:
        self._watcher.say("giving the autoscaler the new limits and node types")
        self._prepare_for_new_spec()
        listed = machines.existing(self._provider)
        # The head is yet to find out that these shall leave, and calls them well until then.
        self._leaving = frozenset(m.instance_id for m in listed if MachineTags.UNWANTED in m.tags)
        self._note_earlier()
        self.api().put("/api/autoscaler/config", msgspec.json.encode(self._spec), timeout_s=30.0)
        self._remember_spec()

    def _prepare_for_new_spec(self) -> None:
        """So that the provider knows what the new spec names, and what only the old one does."""
        machines.existing(
            registry.make(self.record.spec, self.record.cluster_id, self.record.provider_settings)
        )
        self._provider = self._make_provider(self.record.cluster_id)
        try:
            machines.patiently(lambda: self._provider.prepare(self._kinds()))
        except ProviderError as error:
            raise from_provider(error) from error

    def _note_earlier(self) -> None:
        self._earlier = instance_ids(self.api().get("/api/cluster_status"))

    def _await_workers(self) -> int:
        return await_workers(
            self.api(),
            self._spec,
            self._timeout_s,
            self._watcher,
            self._earlier,
            self._leaving,
            self._began_s,
        )

    # -- inside

    def api(self) -> ApiClient:
        """The API of the cluster's head."""
        return reach.api(self._home, self.record, self._provider)

    def _kinds(self) -> tuple[NodeType, ...]:
        return node_types.node_types(self._spec, self._provider.default_resources())

    def _shell(self, machine: Machine) -> Shell:
        try:
            return self._provider.shell(machine)
        except ProviderError as error:
            raise from_provider(error) from error

    def _head(self) -> Machine:
        """The head's machine, when it runs."""
        made = self._made_head
        if (
            made is not None
            and made.id == self._head_id
            and made.state is MachineState.RUNNING
            and made.address
        ):
            return made
        return machines.await_running(self._provider, self._head_id)

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
            provider_settings=dict(registry.for_head(self._spec, self._provider).settings),
            restarts=self._provider.capabilities.restarts_head,
            in_container=containers.container_of(self._spec, kind.name, is_head=True) is not None,
            shutdown_ends=self._provider.capabilities.shutdown_ends,
        )

    def _make_provider(self, cluster_id: str) -> OperatorProvider:
        return registry.make(self._spec, cluster_id, self.record.provider_settings)

    def _remove(self, why: str) -> str:
        """Takes away what was made so far, undisturbed by further Ctrl-C; returns where the log of the head's set-up is
        kept, "" without one.

        Raises:
            CliError: some of it is left, and which; it stays remembered, so that `down` finds it.
        """
        with _uninterrupted():
            self._watcher.say("removing what was made so far")
            try:
                machines.end_all(self._provider, settles=self._made_machines)
                self._provider.cleanup()
            except (CliError, ProviderError) as error:
                raise CliError(
                    f"{why}; and not everything that was made could be removed: {error}",
                    f"Some of it may still cost money: run `clusterctl down {self.record.name}`.",
                ) from error
            log = self._home.keep_setup_log(self.record.name)
            self._home.forget(self.record.name)
            return log


def _place(spec: ClusterSpec) -> tuple[str, ...]:
    """Where the machines are: from elsewhere nobody sees them."""
    provider = spec.provider
    names = ("region", "project_id", "endpoint_url", "endpoint", "class_path")
    words = (getattr(provider, name, "") for name in names)
    return (str(provider.__struct_config__.tag), *(word for word in words if word))


@contextmanager
def _uninterrupted() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)
