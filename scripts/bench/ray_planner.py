"""Ray's autoscaler (v2) as a program that decides: a JSON line with a picture of a cluster in, one with what is to be
done out. Started by quality.py with a Python in whose environment Ray is installed.

What decides is Ray's own `Reconciler` with its `ResourceDemandScheduler`, its instance table and its timeouts; this
program only stands where the cloud, the control store and the clock are. The first line is the cluster's
configuration as Ray's YAML has it; every further line is a tick:

    {"now": 12.0,
     "nodes": [{"id", "machine", "type", "status", "total", "available", "labels", "idle_s", "groups"}],
     "machines": [{"id", "type", "running", "head"}],
     "launch_errors": [[request, type, count]], "terminate_errors": [machine], "setup_errors": [instance],
     "drain_refused": [instance],
     "shapes": [[resources, [selector, fallback ...], count]],
     "gangs": [{"id", "strategy", "bundles": [[resources, selector]]}],
     "requested": [[resources, selector]]}

    {"launch": [[request, type, count]], "setup": [[instance, machine]], "drain": [[instance, node, if idle]],
     "terminate": [machine], "cpu_s": 0.01}
"""

from __future__ import annotations

import json
import logging
import random
import sys
import time
import uuid
from typing import Any

from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
from ray.autoscaler.v2.instance_manager.instance_manager import InstanceManager
from ray.autoscaler.v2.instance_manager.instance_storage import InstanceStorage
from ray.autoscaler.v2.instance_manager.node_provider import (
    CloudInstance,
    CloudInstanceProviderError,
    ICloudInstanceProvider,
    LaunchNodeError,
    TerminateNodeError,
)
from ray.autoscaler.v2.instance_manager.reconciler import Reconciler
from ray.autoscaler.v2.instance_manager.storage import InMemoryStorage
from ray.autoscaler.v2.instance_manager.subscribers.cloud_instance_updater import CloudInstanceUpdater
from ray.autoscaler.v2.instance_manager.subscribers.cloud_resource_monitor import CloudResourceMonitor
from ray.autoscaler.v2.instance_manager.subscribers.ray_stopper import RayStopError
from ray.autoscaler.v2.instance_manager.subscribers.threaded_ray_installer import RayInstallError
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler
from ray.autoscaler.v2.utils import ResourceRequestUtil
from ray.core.generated.autoscaler_pb2 import (
    ClusterResourceConstraint,
    ClusterResourceState,
    GangResourceRequest,
    NodeState,
    NodeStatus,
    ResourceRequest,
    ResourceRequestByCount,
)
from ray.core.generated.common_pb2 import LabelSelectorOperator
from ray.core.generated.instance_manager_pb2 import Instance, NodeKind, TerminationRequest

Json = dict[str, Any]


class Clock:
    """Ray reads the time where it needs it: here it reads the simulated one."""

    def __init__(self) -> None:
        self.now = 0.0
        time.time = lambda: self.now
        time.monotonic = lambda: self.now
        time.time_ns = lambda: int(self.now * 1e9)


class Cloud(ICloudInstanceProvider):
    """Tells what the tick says, and remembers what is asked for."""

    def __init__(self) -> None:
        self.machines: dict[str, CloudInstance] = {}
        self.errors: list[CloudInstanceProviderError] = []
        self.launches: list[tuple[str, str, int]] = []
        self.ends: list[str] = []

    def get_non_terminated(self) -> dict[str, CloudInstance]:
        return dict(self.machines)

    def terminate(self, ids: list[str], request_id: str) -> None:
        self.ends += ids

    def launch(self, shape: dict[str, int], request_id: str) -> None:
        self.launches += [(request_id, kind, count) for kind, count in shape.items()]

    def poll_errors(self) -> list[CloudInstanceProviderError]:
        errors, self.errors = self.errors, []
        return errors


class Orders:
    """Listens to the instance table for setups and drains."""

    def __init__(self) -> None:
        self.setups: list[tuple[str, str]] = []
        self.drains: list[tuple[str, str, bool]] = []
        self.machine_of: dict[str, str] = {}

    def notify(self, events: list[Any]) -> None:
        for event in events:
            if event.cloud_instance_id:
                self.machine_of[event.instance_id] = event.cloud_instance_id
            if event.new_instance_status == Instance.RAY_INSTALLING:
                self.setups.append((event.instance_id, self.machine_of[event.instance_id]))
            elif event.new_instance_status == Instance.RAY_STOP_REQUESTED:
                request = event.termination_request
                is_idle = request.cause == TerminationRequest.Cause.IDLE
                self.drains.append((event.instance_id, request.ray_node_id, is_idle))


class Planner:
    """Ray's autoscaler without its surroundings."""

    def __init__(self, config: Json) -> None:
        self.clock = Clock()
        self.config = AutoscalingConfig(config, skip_content_hash=True)
        self.cloud = Cloud()
        self.orders = Orders()
        self.monitor = CloudResourceMonitor()
        self.manager = InstanceManager(
            InstanceStorage("quality", InMemoryStorage()),
            [CloudInstanceUpdater(self.cloud), self.orders, self.monitor],
        )
        self.scheduler = ResourceDemandScheduler()

    def tick(self, picture: Json) -> Json:
        """One round of Ray's reconciliation."""
        began = time.process_time()
        self.clock.now = picture["now"]
        stamp = time.time_ns()
        self.cloud.machines = {each["id"]: _machine(each) for each in picture["machines"]}
        self.cloud.errors = [
            *(LaunchNodeError(kind, n, request, stamp) for request, kind, n in picture["launch_errors"]),
            *(TerminateNodeError(each, "", stamp) for each in picture["terminate_errors"]),
        ]
        Reconciler.reconcile(
            instance_manager=self.manager,
            scheduler=self.scheduler,
            cloud_provider=self.cloud,
            cloud_resource_monitor=self.monitor,
            ray_cluster_resource_state=_state(picture),
            non_terminated_cloud_instances=self.cloud.get_non_terminated(),
            autoscaling_config=self.config,
            cloud_provider_errors=self.cloud.poll_errors(),
            ray_install_errors=[RayInstallError(each, "") for each in picture["setup_errors"]],
            ray_stop_errors=[RayStopError(each) for each in picture["drain_refused"]],
        )
        done = {
            "launch": self.cloud.launches,
            "setup": self.orders.setups,
            "drain": self.orders.drains,
            "terminate": self.cloud.ends,
            "cpu_s": time.process_time() - began,
        }
        self.cloud.launches, self.cloud.ends = [], []
        self.orders.setups, self.orders.drains = [], []
        return done


def _machine(given: Json) -> CloudInstance:
    kind = NodeKind.HEAD if given["head"] else NodeKind.WORKER
    return CloudInstance(given["id"], given["type"], kind, given["running"])


def _state(picture: Json) -> ClusterResourceState:
    state = ClusterResourceState()
    for given in picture["nodes"]:
        node = NodeState(
            node_id=bytes.fromhex(given["id"]),
            instance_id=given["machine"],
            ray_node_type_name=given["type"],
            status=NodeStatus.Value(given["status"]),
            idle_duration_ms=int(given["idle_s"] * 1000),
        )
        node.total_resources.update(given["total"])
        node.available_resources.update(given["available"])
        node.labels.update(given["labels"])
        node.dynamic_labels.update({f"_PG_{group}": "" for group in given["groups"]})
        state.node_states.append(node)
    for resources, selectors, count in picture["shapes"]:
        request = _request(resources, selectors)
        state.pending_resource_requests.append(ResourceRequestByCount(request=request, count=count))
    for gang in picture["gangs"]:
        state.pending_gang_resource_requests.append(_gang(gang))
    if picture["requested"]:
        requests = [_request(resources, [selector]) for resources, selector in picture["requested"]]
        state.cluster_resource_constraints.append(
            ClusterResourceConstraint(resource_requests=ResourceRequestUtil.group_by_count(requests))
        )
    return state


def _gang(gang: Json) -> GangResourceRequest:
    """As Ray's control store tells of a placement group: constraints for the strict strategies, none for the others."""
    kinds = ResourceRequestUtil.PlacementConstraintType
    kind = {"STRICT_PACK": kinds.AFFINITY, "STRICT_SPREAD": kinds.ANTI_AFFINITY}.get(gang["strategy"])
    constraints = [(kind, f"_PG_{gang['id']}", "")] if kind is not None else []
    found = GangResourceRequest(details=gang["id"])
    bundles = [_request(resources, [selector], constraints) for resources, selector in gang["bundles"]]
    found.requests.extend(bundles)
    found.bundle_selectors.add().resource_requests.extend(bundles)
    return found


def _request(
    resources: dict[str, float], selectors: list[dict[str, str]], constraints: list[Any] | None = None
) -> ResourceRequest:
    wanted = [[_condition(key, text) for key, text in each.items()] for each in selectors if each]
    return ResourceRequestUtil.make(resources, constraints or [], wanted)


def _condition(key: str, text: str) -> tuple[str, int, list[str]]:
    negated = text.startswith("!")
    body = text.removeprefix("!")
    values = body.removeprefix("in(").removesuffix(")").split(",") if body.startswith("in(") else [body]
    kinds = LabelSelectorOperator
    return key, kinds.LABEL_OPERATOR_NOT_IN if negated else kinds.LABEL_OPERATOR_IN, values


def serve() -> None:
    """Answers tick by tick until the input ends."""
    logging.disable(logging.CRITICAL)
    ids = random.Random(0)
    uuid.uuid4 = lambda: uuid.UUID(int=ids.getrandbits(128))  # the same run decides the same
    planner = Planner(json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        print(json.dumps(planner.tick(json.loads(line))), flush=True)


if __name__ == "__main__":
    serve()
