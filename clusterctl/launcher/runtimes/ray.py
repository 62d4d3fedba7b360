"""Ray itself (`runtime: {kind: ray}`). No daemon of ours is on its machines: the launcher makes the workers, too, and
asks Ray which of them have joined."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from autoscaler.provider import Machine, NodeType
from clusterctl.api_client import Answer
from clusterctl.errors import CliError, SetupFailed, TimedOut
from clusterctl.home import ClusterRecord, Home

from .. import machines, node_types, setup
from ..buying import Buyer
from ..cluster import Cluster
from ..plan import Health
from ..setup import NodeFacts
from . import ray_nodes

_ASK_S = 30.0
_POLL_S = 1.0
_AT_ONCE = 16


class Ray:
    """See `NodeRuntime`."""

    stop_command = "ray stop"
    status_command = "ray status"
    life_question = ray_nodes.LIFE_QUESTION

    def removal_of_boot_entry(self, cluster_id: str) -> str:
        return ""

    def health(self, answer: Answer, cluster_id: str) -> Health:
        if answer.status in (401, 403):
            return Health.DENIED
        if answer.status == 500:  # the part of the dashboard that is asked does not work
            return Health.SLOW
        return Health.ANSWERS if "ray_version" in answer.mapping() else Health.SILENT

    def environment(self, home: Home, record: ClusterRecord) -> Mapping[str, str]:
        if not record.control_address:
            return {}
        host = record.control_address.rpartition(":")[0]
        return ray_nodes.environment(record.spec, host, home.secret(record.name))

    def head_facts(self, cluster: Cluster, head: Machine, was_booted: bool) -> NodeFacts:
        secret = cluster.home.secret(cluster.record.name)
        return ray_nodes.head_facts(cluster.spec, head, cluster.head_kind(), secret)

    def addresses(self, cluster: Cluster, head: Machine, printed: str) -> tuple[str, str]:
        api = f"http://127.0.0.1:{ray_nodes.dashboard_port(cluster.spec)}"
        return f"{head.address}:{ray_nodes.port(cluster.spec)}", api

    def lacks_workers(self, cluster: Cluster) -> bool:
        """Whether workers are missing, lost or too many."""
        listed = machines.existing(cluster.provider)
        todo = ray_nodes.workers(cluster.spec, listed)
        lost = {machine.address for machine in listed if not machine.is_head} - _joined(cluster)
        return bool(todo.missing or todo.surplus or lost)

    def workers(self, cluster: Cluster) -> LaunchedWorkers:
        return LaunchedWorkers(cluster)


class LaunchedWorkers:
    """See `Workers`: `up` makes them itself."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def push_spec(self) -> None:
        self._cluster.prepare_for_new_spec()
        self._cluster.remember_spec()

    def refresh(self) -> None:
        kinds = self._kinds()
        listed = machines.existing(self._cluster.provider)
        running = [machine for machine in listed if not machine.is_head and machine.node_type in kinds]
        if running:
            self._cluster.watcher.say("bringing the workers up to date")
            self._set_up_all(running, kinds, self._cluster.head().address, starts=False)

    def complete(self, starts_over: bool) -> int:
        """Makes the workers that are missing, sets up those that have not joined, ends those that are too many."""
        cluster, say = self._cluster, self._cluster.watcher.say
        deadline = time.monotonic() + cluster.timeout_s
        self.push_spec()
        buyer = Buyer(cluster.home, cluster.record, cluster.provider)
        listed = buyer.existing()
        todo = ray_nodes.workers(cluster.spec, listed)
        if todo.surplus:
            say(f"ending {len(todo.surplus)} worker{'s' if len(todo.surplus) > 1 else ''}")
            machines.end_all(cluster.provider, only=set(todo.surplus))
        found = [machine for machine in listed if not machine.is_head and machine.id not in todo.surplus]
        kinds = self._kinds()
        for name, count in todo.missing.items():
            say(f"creating {count} {name}")
            tags = node_types.tags(cluster.spec, cluster.record.cluster_id, name)
            found += buyer.buy(kinds[name], count, tags)
        head = cluster.head()
        joined = _joined(cluster) if found else frozenset()
        new = [machine for machine in found if machine.address not in joined or not machine.address]
        if new:
            say(f"setting up {len(new)} worker{'s' if len(new) > 1 else ''}")
            wanted = self._set_up_all(new, kinds, head.address)
            self._await_joined(wanted, deadline)
        buyer.finish()
        return len(found)

    # -- inside

    def _kinds(self) -> dict[str, NodeType]:
        return {kind.name: kind for kind in self._cluster.kinds()}

    def _set_up_all(
        self, new: list[Machine], kinds: dict[str, NodeType], head_host: str, starts: bool = True
    ) -> dict[str, str]:
        """Sets the machines up, many at a time; returns address -> machine id.

        Raises:
            SetupFailed: at least one could not be; it names each with its step.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            futures: dict[str, Future[str]] = {
                machine.id: pool.submit(self._set_up, machine.id, kinds[machine.node_type], head_host, starts)
                for machine in new
            }
        addresses, failures = {}, []
        for machine_id, future in futures.items():
            try:
                addresses[future.result()] = machine_id
            except CliError as error:
                failures.append(error.message)
        if failures:
            raise SetupFailed(
                "\n".join(failures),
                "Correct the spec and run `clusterctl up` again, or end the cluster with `clusterctl down`.",
            )
        return addresses

    def _set_up(self, machine_id: str, kind: NodeType, head_host: str, starts: bool) -> str:
        cluster = self._cluster
        machine = machines.await_running(cluster.provider, machine_id)
        secret = cluster.home.secret(cluster.record.name)
        facts = ray_nodes.worker_facts(cluster.spec, machine, head_host, kind, secret)
        if not starts:
            facts = setup.without_start(facts)
        cluster.set_up(machine, facts)
        return machine.address

    def _await_joined(self, wanted: dict[str, str], deadline: float) -> None:
        cluster = self._cluster
        while True:
            missing = set(wanted) - _joined(cluster)
            if not missing:
                return
            if time.monotonic() >= deadline:
                names = ", ".join(sorted(wanted[address] for address in missing))
                raise TimedOut(
                    f"Ray runs on {names} and has not joined after {cluster.timeout_s:g} s",
                    f"Its ports must be open between the machines; {ray_nodes.port(cluster.spec)} is the head's.",
                )
            time.sleep(_POLL_S)


def _joined(cluster: Cluster) -> frozenset[str]:
    """The addresses of Ray's living nodes."""
    return ray_nodes.alive(cluster.api().get(ray_nodes.NODES, timeout_s=_ASK_S))
