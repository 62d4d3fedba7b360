"""Our engine: a head that looks after its workers, makes them and ends them."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from autoscaler.provider import Machine
from clusterctl.api_client import Answer
from clusterctl.errors import SetupFailed
from clusterctl.home import ClusterRecord, Home
from clusterctl.providers import registry
from clusterctl.spec import ray_start
from clusterctl.startup.config import HeadConfig
from clusterctl.startup.record import NO_BOOT_ENTRY, DaemonRecord

from .. import containers, machines
from ..cluster import Cluster
from ..plan import Health
from ..setup import BASE_PYTHON, NODE_FOLDER, NodeFacts
from ..wait import await_workers, instance_ids, missing_workers
from . import engine_nodes

_STATUS = "/api/cluster_status"
_REFRESH_S = 3600.0


class Engine:
    """See `NodeRuntime`."""

    stop_command = engine_nodes.STOP
    status_command = ""
    life_question = engine_nodes.LIFE_QUESTION

    def removal_of_boot_entry(self, cluster_id: str) -> str:
        file = f"{NODE_FOLDER}/boot_entry.py"
        return f"[ ! -f {file} ] || {BASE_PYTHON} -I {file} {shlex.quote(cluster_id)}"

    def health(self, answer: Answer, cluster_id: str) -> Health:
        if answer.status in (401, 403) and answer.complaint:
            return Health.DENIED
        if answer.status in (503, 504) and answer.complaint:  # its control store is coming back
            return Health.SLOW
        return Health.ANSWERS if answer.mapping().get("cluster_id") == cluster_id else Health.SILENT

    def environment(self, home: Home, record: ClusterRecord) -> Mapping[str, str]:
        """`CLUSTERCTL_LOGIN` is the mark by which the head knows that somebody works there
        (`clusterctl.head.log_ins`)."""
        where = {"CLUSTERCTL_ADDRESS": record.control_address} if record.control_address else {}
        return {**where, "CLUSTERCTL_LOGIN": "1"}

    def head_facts(self, cluster: Cluster, head: Machine, was_booted: bool) -> NodeFacts:
        config_file = cluster.home.write_head_config(
            cluster.record.name, _head_config(cluster, head).to_json()
        )
        facts = engine_nodes.head_facts(
            cluster.spec,
            cluster.home.secret_file(cluster.record.name),
            config_file,
            head.address,
            registry.for_head(cluster.spec, cluster.provider).files,
            None if cluster.provider.head_extras is None else cluster.shipment,
        )
        if not was_booted:
            return facts
        # What the boot entry has started has the configuration of before.
        return replace(facts, start=f"{self.stop_command} && {facts.start}")

    def addresses(self, cluster: Cluster, head: Machine, printed: str) -> tuple[str, str]:
        daemon = msgspec.json.decode(printed.strip().splitlines()[-1], type=DaemonRecord)
        if daemon.boot_entry == NO_BOOT_ENTRY:
            cluster.watcher.say(
                "the head does not survive a reboot of its machine: after one run `clusterctl up` again"
            )
        return daemon.control_address, daemon.api_url

    def lacks_workers(self, cluster: Cluster) -> bool:
        return bool(missing_workers(cluster.spec, cluster.api().get(_STATUS)))

    def workers(self, cluster: Cluster) -> AutoscaledWorkers:
        return AutoscaledWorkers(cluster)


class AutoscaledWorkers:
    """See `Workers`: the head makes them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._began_s = time.time()
        self._earlier: frozenset[str] = frozenset()
        self._leaving: frozenset[str] = frozenset()

    def push_spec(self) -> None:
        cluster = self._cluster
        cluster.watcher.say("giving the autoscaler the new limits and node types")
        cluster.prepare_for_new_spec()
        listed = machines.existing(cluster.provider)
        # The head is yet to find out that these shall leave, and calls them well until then.
        self._leaving = frozenset(m.instance_id for m in listed if m.unwanted)
        self._note_earlier()
        cluster.api().put("/api/autoscaler/config", msgspec.json.encode(cluster.spec), timeout_s=30.0)
        cluster.remember_spec()

    def refresh(self) -> None:
        """Those that a new spec makes otherwise are replaced later."""
        self._cluster.watcher.say("bringing the workers up to date")
        said = self._cluster.api().put("/api/workers/refresh", b"", timeout_s=_REFRESH_S)
        failed = [f"worker {name}: {why}" for name, why in said.items() if why]
        if failed:
            raise SetupFailed(
                "the head is up to date, and these workers are not:\n" + "\n".join(failed),
                "`clusterctl logs NODE` shows how they were set up. Correct it and run `clusterctl up` again.",
            )

    def complete(self, starts_over: bool) -> int:
        if starts_over:
            self._note_earlier()  # what an earlier `up` began may fail: the autoscaler begins anew
        return await_workers(
            self._cluster.api(),
            self._cluster.spec,
            self._cluster.timeout_s,
            self._cluster.watcher,
            self._earlier,
            self._leaving,
            self._began_s,
        )

    def _note_earlier(self) -> None:
        self._earlier = instance_ids(self._cluster.api().get(_STATUS))


def _head_config(cluster: Cluster, head: Machine) -> HeadConfig:
    spec, kind = cluster.spec, cluster.head_kind()
    start = ray_start.parse_start(spec.head_start_ray_commands)
    return HeadConfig(
        cluster_id=cluster.record.cluster_id,
        cluster_name=cluster.record.name,
        host=head.address,
        control_port=spec.ports.control or start.control_port,
        api_port=spec.ports.api or start.api_port,
        node_type=kind.name,
        resources=dict(kind.resources),
        labels=dict(kind.labels),
        instance_id=head.instance_id,
        spec=spec,
        provider_settings=dict(registry.for_head(spec, cluster.provider).settings),
        restarts=cluster.provider.capabilities.restarts_head,
        in_container=containers.container_of(spec, kind.name, is_head=True) is not None,
        shutdown_ends=cluster.provider.capabilities.shutdown_ends,
    )
