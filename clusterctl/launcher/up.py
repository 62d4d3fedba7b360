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

from autoscaler.provider import (
    Capacity,
    LaunchRequest,
    NodeType,
    Offer,
    Problem,
    ProviderError,
    Quota,
    ShellError,
)
from clusterctl import home as homes
from clusterctl.errors import CliError, Interrupted, SetupFailed, from_provider
from clusterctl.home import ClusterRecord
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.load import cluster_limit
from clusterctl.sync.transfer import SyncError

from . import containers, look, machines, node_types, preflight, setup
from .cluster import CORRECT, Cluster
from .costs import Costs, costs, estimate
from .plan import Action, Facts, Health, Plan, Restart, Step, plan, without_autoscaler
from .runtimes.chosen import runtime_of
from .runtimes.protocol import Workers
from .wait import JOINED, NodeRow

_STOP_S = 60.0


@dataclass(slots=True)
class UpResult:
    """What `up` did. `steps_s`: what each part took."""

    record: ClusterRecord
    plan: Plan
    workers: int = 0
    seconds: float = 0.0
    steps_s: dict[str, float] = field(default_factory=dict)


class Up:
    """One run of `up`, or a rehearsal, which changes nothing. `spec`: what the cluster shall be."""

    def __init__(self, cluster: Cluster, is_rehearsal: bool = False) -> None:
        self._cluster = cluster
        self._home = cluster.home
        self.spec = cluster.spec
        self._is_rehearsal = is_rehearsal
        self._watcher = cluster.watcher
        self._runtime = runtime_of(cluster.spec)
        self._steps_s: dict[str, float] = {}
        self._made_machines = False
        self._booted = False

    @property
    def record(self) -> ClusterRecord:
        """What is remembered, or will be."""
        return self._cluster.record

    def facts(self) -> Facts:
        """Looks at the record, the listing and the head's API."""
        cluster = self._cluster
        found = look.facts(cluster, self._is_rehearsal)
        cluster.head_id = found.head_id or cluster.head_id
        answers = found.health is Health.ANSWERS
        return replace(found, lacks_workers=answers and self._runtime.lacks_workers(cluster))

    def plan(self, restart: Restart, facts: Facts | None = None) -> Plan:
        """What is to be done, as things are now, or as `facts` say."""
        if self._cluster.is_known and _place(self.record.spec) != _place(self.spec):
            return Plan(
                refusal=f"cluster '{self.record.name}' is at another place: {', '.join(_place(self.record.spec))}",
                advice="End it first, with `clusterctl down` and its name, or give this one another: -n NAME.",
            )
        chosen = plan(facts or self.facts(), restart)
        return chosen if self.spec.runtime.autoscales else without_autoscaler(chosen)

    def check(self) -> list[Problem]:
        """The check phase: what would make it fail, before anything is made."""
        cluster = self._cluster
        try:
            return preflight.problems(self.spec, cluster.provider, cluster.kinds(), cluster.shipment)
        except ProviderError as error:
            raise from_provider(error) from error

    def costs(self) -> Costs:
        """What the cluster costs with this spec.

        Raises:
            CliError: the provider does not tell its offers.
        """
        return estimate(self.spec, self._cluster.provider, self._cluster.kinds())

    def machines(self) -> Costs:
        """The machines of the cluster with this spec, without their prices. Asks nobody."""
        return costs(self._cluster.kinds(), self.spec.head_node_type, cluster_limit(self.spec), None, None)

    def apply(self, chosen: Plan) -> UpResult:
        """Does what the plan says. A new cluster that does not come up is removed again."""
        started, workers = time.monotonic(), self._runtime.workers(self._cluster)
        result = UpResult(self.record, chosen, steps_s=self._steps_s)
        has_head = not chosen.is_new
        try:
            for step in chosen.steps:
                begun = time.monotonic()
                if step.action in (Action.AWAIT_WORKERS, Action.MAKE_WORKERS):
                    result.workers = workers.complete(starts_over=step is chosen.steps[0])
                else:
                    self._do(step, chosen, workers)
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
            self._cluster.remember_spec()
        self._home.set_current(self.record.name)
        result.record = self.record
        result.seconds = time.monotonic() - started
        return result

    # -- one method per action

    def _do(self, step: Step, chosen: Plan, workers: Workers) -> None:
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
            workers.refresh()
        elif step.action is Action.STOP_DAEMONS:
            self._stop_daemons()
        elif step.action is Action.END_WORKERS:
            self._end_workers()
        elif step.action is Action.PUSH_SPEC:
            workers.push_spec()

    def _end(self, ids: Sequence[str]) -> None:
        self._watcher.say(f"ending {len(ids)} machine{'s' if len(ids) > 1 else ''} left from before")
        for cluster_id in machines.lives(self._cluster.provider, self.record, self.record.name):
            machines.end_all(self._cluster.provider_of(cluster_id), only=set(ids))

    def _end_workers(self) -> None:
        provider = self._cluster.provider
        workers = {machine.id for machine in machines.existing(provider) if not machine.is_head}
        if workers:
            self._watcher.say(f"giving back {len(workers)} worker{'s' if len(workers) > 1 else ''}")
            machines.end_all(provider, only=workers)

    def _create_head(self, keeps_id: bool) -> None:
        cluster = self._cluster
        if cluster.is_known and not keeps_id:
            cluster.renew()
        record = cluster.record
        record.provider_settings = dict(cluster.provider.settings())
        self._home.write(record)  # first, so that whatever happens next is remembered
        if not os.path.exists(self._home.secret_file(record.name)):
            self._home.new_secret(record.name)
        head_type = cluster.head_kind()
        self._watcher.say(f"creating the head ({head_type.name}, {self.spec.provider.type_name})")
        problems: list[ProviderError] = []
        try:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(cluster.pack_for_here)  # takes a moment while the machines are prepared there
                cluster.prepare()
            for offer in machines.patiently(lambda: cluster.provider.offers(head_type)):
                self._made_machines = True
                request = self._head_request(head_type, offer)
                launched = machines.patiently(partial(cluster.provider.create, request))
                if launched.machines:
                    cluster.made_head = launched.machines[0]
                    cluster.head_id = cluster.made_head.id
                    return
                problems.extend(launched.errors)
        except ProviderError as error:
            raise from_provider(error) from error
        if not problems:
            raise CliError(f"the provider offers no machine for node type '{head_type.name}'")
        worst = next((p for p in problems if not isinstance(p, Capacity | Quota)), problems[-1])
        worst.message = "; ".join(dict.fromkeys(str(problem) for problem in problems))
        raise from_provider(worst)

    def _head_request(self, head_type: NodeType, offer: Offer) -> LaunchRequest:
        # One token for each offer: platforms take the same one with other arguments for a mistake.
        token = "-".join(part for part in (self.record.cluster_id, "head", offer.zone, offer.market) if part)
        return LaunchRequest(
            token=token,
            node_type=head_type,
            count=1,
            offer=offer,
            tags=node_types.tags(self.spec, self.record.cluster_id),
            instance_ids=(f"{self.record.cluster_id}-head",),
        )

    def _boot_head(self) -> None:
        self._watcher.say("starting the head's machine")
        try:
            machines.patiently(lambda: self._cluster.provider.start([self._cluster.head_id]))
        except ProviderError as error:
            raise from_provider(error) from error
        self._booted = True

    def _stop_daemons(self) -> None:
        """Ends what the head runs, so that nothing of it looks after the workers any more."""
        self._watcher.say("stopping the head's daemons")
        head = self._cluster.head()
        shell = containers.shell_of(self.record.spec, head.node_type, True, self._cluster.shell(head))
        try:
            result = shell.run(self._runtime.stop_command, timeout_s=_STOP_S)
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
        cluster = self._cluster
        head = cluster.head()
        facts = self._runtime.head_facts(cluster, head, self._booted)
        digest = self.record.files_digest if only_start else self._files_digest()
        if only_start:
            facts = setup.only_start(facts)
        if not starts:
            facts = setup.without_start(facts)
        output = cluster.set_up(head, facts)
        self.record.head, self.record.files_digest = head, digest
        self._watcher.nodes([NodeRow("head", head.node_type, JOINED)])
        return output

    def _files_digest(self) -> str:
        try:
            return setup.files_digest(setup.operators_mounts(self.spec), self._cluster.digests_file())
        except SyncError as error:
            raise SetupFailed(f"file_mounts: {error}", CORRECT) from error

    def _started(self, output: str) -> None:
        """Remembers where the head that was started can be reached."""
        cluster, record = self._cluster, self.record
        record.control_address, record.api_url = self._runtime.addresses(cluster, cluster.head(), output)
        record.is_behind = cluster.provider.capabilities.forward_ports
        cluster.remember_spec()
        self._home.set_current(record.name)

    # -- inside

    def _remove(self, why: str) -> str:
        """Takes away what was made so far, undisturbed by further Ctrl-C; returns where the log of the head's set-up is
        kept, "" without one.

        Raises:
            CliError: some of it is left, and which; it stays remembered, so that `down` finds it.
        """
        with _uninterrupted():
            self._watcher.say("removing what was made so far")
            try:
                machines.end_all(self._cluster.provider, settles=self._made_machines)
                self._cluster.provider.cleanup()
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
    return (spec.provider.type_name, *spec.provider.place)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)
