"""The pretended platform: projects, zones, instances, firewalls and operations, and what the API says of them. Time
passes by the clock: each call first makes happen what is due.
"""

from __future__ import annotations

import heapq
import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from tests.testbed.cloud_hosts import Wanted

from . import catalog, filters
from .faults import Fault, Faults

Json = dict[str, Any]
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}\Z")
_MOST_PER_PAGE = 5
_WAIT_S = 2.0
_ROOT = "https://www.googleapis.com/compute/v1"


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


class Compute:
    """One project. `call` is what an HTTP request comes to."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.instances: dict[tuple[str, str], Json] = {}
        self.firewalls: dict[str, Json] = {}
        self.operations: dict[str, Json] = {}
        self.networks = {"default": {"name": "default", "selfLink": self._link("global/networks/default")}}
        self.default_service_account = "1-compute@developer.gserviceaccount.com"
        self.quotas: list[Json] = []  # of the project
        self.templates: dict[str, Json] = {}
        self._requests: dict[str, Json] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()

    # ------------------------------------------------------------ for tests

    def all(self) -> list[Json]:
        """The instances, as they are now."""
        with self._lock:
            self._advance()
            return [dict(instance) for instance in self.instances.values()]

    def preempt(self, name: str) -> None:
        """Takes a spot machine back."""
        with self._lock:
            key = next(key for key in self.instances if key[1] == name)
            scheduling = self.instances[key]["scheduling"]
            assert scheduling["provisioningModel"] == "SPOT", "only these are taken back"
            operation = self._operation(key[0], "compute.instances.preempted", self._instance_link(*key))
            action = scheduling.get("instanceTerminationAction", "STOP")
            self._ending(key, operation, is_deleted=action == "DELETE")

    def wanted(self) -> Mapping[str, Wanted]:
        """For `CloudHosts`."""
        with self._lock:
            self._advance()
            return {
                f"{zone}/{name}": Wanted(
                    _addresses(it), _keys(it), it["status"] == "RUNNING", self._lets_in(it)
                )
                for (zone, name), it in self.instances.items()
                if it["status"] in ("RUNNING", "STOPPING", "TERMINATED")
            }

    def _lets_in(self, instance: Json) -> bool:
        """Whether a rule of its network opens the port of SSH for one of its tags."""
        network = instance["networkInterfaces"][0].get("network", "").rpartition("/")[2]
        return any(
            network == rule["network"].rpartition("/")[2]
            and set(rule.get("targetTags", ())) & set(instance.get("tags", {}).get("items", ()))
            and any(entry.get("ports") == ["22"] for entry in rule["allowed"])
            and rule.get("sourceRanges")
            for rule in self.firewalls.values()
        )

    # ------------------------------------------------------------ the API

    def call(self, method: str, path: str, query: Mapping[str, str], body: Json | None) -> tuple[int, Json]:
        """An answer: its status and its body. `path`: below /compute/v1/.

        Raises:
            ConnectionAbortedError: there is none.
        """
        fault = self.faults.of(f"{method} {path}")
        if fault is not None:
            time.sleep(fault.slow_s)
        done: Json | None = None
        try:
            if fault is None or fault.is_done or fault.operation:
                done = self._handle(method, path, query, body, fault)
        except Refused as error:
            if fault is None:
                return error.status, _error(error.status, error.reason, str(error))
        if fault is None or fault.operation:
            assert done is not None
            return 200, done
        if not fault.status:
            raise ConnectionAbortedError
        return fault.status, _error(fault.status, fault.reason, fault.message)

    def _handle(
        self, method: str, path: str, query: Mapping[str, str], body: Json | None, fault: Fault | None
    ) -> Json:
        if match := re.match(r"projects/[^/]+/(zones/[^/]+|global)/operations/([^/]+)/wait\Z", path):
            return self._wait(match[2])
        with self._lock:
            self._advance()
            parts = path.split("/")
            if parts[0] != "projects":
                raise Refused(404, "notFound", "Not Found")
            if parts[1] != catalog.PROJECT and parts[2:4] != ["global", "images"]:
                raise Refused(404, "notFound", f"The resource 'projects/{parts[1]}' was not found")
            known = self._requests.get(query.get("requestId", ""))
            if known is not None and method != "GET":
                return known
            answer = self._route(method, parts, query, body or {}, fault.operation if fault else "")
            if query.get("requestId") and method != "GET":
                self._requests[query["requestId"]] = answer
            return answer

    def _route(
        self, method: str, parts: list[str], query: Mapping[str, str], body: Json, failing: str
    ) -> Json:
        match method, parts[2:]:
            case "GET", []:
                return {
                    "name": parts[1],
                    "quotas": self.quotas,
                    "defaultServiceAccount": self.default_service_account,
                }
            case "GET", ["zones"]:
                return self._page([_zone(zone) for zone in catalog.ZONES], query)
            case "GET", ["regions", region] if region in catalog.REGIONS:
                return {"name": region, "quotas": self._quotas(region)}
            case "GET", ["regions", region, "subnetworks", name] if region in catalog.REGIONS:
                return {"name": name, "network": self._link("global/networks/default")}
            case "GET", ["global", "networks", name] if name in self.networks:
                return self.networks[name]
            case "GET", ["global", "images", "family", family]:
                return self._image(parts[1], family)
            case "GET", ["global", "images", name] if (parts[1], name) in _image_names():
                return {"name": name, "status": "READY"}
            case "GET", ["global", "instanceTemplates" | "machineImages", name] if name in self.templates:
                return self.templates[name]
            case "GET", ["regions", _, "instanceTemplates", name] if name in self.templates:
                return self.templates[name]
            case "GET", ["aggregated", "machineTypes"]:
                found = [
                    _machine_type(z, n) for z in catalog.ZONES for n in catalog.MACHINE_TYPES if _is_in(n, z)
                ]
                return self._aggregated("machineTypes", found, query)
            case "GET", ["aggregated", "acceleratorTypes"]:
                kinds = [(n, z) for n, zones in catalog.ACCELERATORS.items() for z in zones]
                return self._aggregated(
                    "acceleratorTypes",
                    [{"name": name, "zone": self._link(f"zones/{z}")} for name, z in kinds],
                    query,
                )
            case "GET", ["aggregated", "instances"]:
                return self._aggregated("instances", self._listed(), query)
            case _, ["zones", zone, *_] if zone not in catalog.ZONES:
                raise Refused(400, "invalid", f"Invalid value for field 'zone': '{zone}'. Unknown zone.")
            case "GET", ["zones", zone, "machineTypes", name] if _is_in(name, zone):
                return _machine_type(zone, name)
            case "POST", ["zones", zone, "instances"]:
                return self._insert(zone, query, body, failing)
            case _, ["zones", zone, "instances", name, *verb]:
                return self._of_instance(method, (zone, name), verb, body)
            case "GET", ["global", "firewalls"]:
                return self._page([*self.firewalls.values()], query)
            case "POST", ["global", "firewalls"]:
                return self._insert_firewall(body)
            case "DELETE", ["global", "firewalls", name] if name in self.firewalls:
                operation = self._operation("", "delete", self._link(f"global/firewalls/{name}"))
                self._later(operation, self.faults.operation_s, lambda: self.firewalls.pop(name, None))
                return operation
            case "GET", ["global", "firewalls", name] if name in self.firewalls:
                return self.firewalls[name]
            case "GET", [*_, "operations", name] if name in self.operations:
                return self.operations[name]
        raise Refused(404, "notFound", f"The resource '{'/'.join(parts)}' was not found")

    # ------------------------------------------------------------ instances

    def _insert(self, zone: str, query: Mapping[str, str], body: Json, failing: str) -> Json:
        if source := query.get("sourceInstanceTemplate") or query.get("sourceMachineImage"):
            found = self.templates.get(source.rpartition("/")[2])
            if found is None:
                raise Refused(404, "notFound", f"The resource '{source}' was not found")
            properties = found.get("properties") or found["instanceProperties"]
            kind = f"zones/{zone}/machineTypes/{properties['machineType'].rpartition('/')[2]}"
            body = {**properties, "machineType": kind, **body}  # whole fields: nothing within them is merged
        _check_form(body, "Instance")
        self._check_instance(zone, body)
        key = (zone, body["name"])
        if key in self.instances:
            path = f"projects/{catalog.PROJECT}/zones/{zone}/instances/{body['name']}"
            raise Refused(409, "alreadyExists", f"The resource '{path}' already exists")
        operation = self._operation(zone, "insert", self._instance_link(*key))
        market = "spot" if _is_spot(body) else "standard"
        code = failing or ("ZONE_RESOURCE_POOL_EXHAUSTED" if (zone, market) in self.faults.stockouts else "")
        code = code or self._over_quota(zone, body)
        number = next(self._numbers)
        instance = {
            **body,
            "id": str(10**18 + number),
            "creationTimestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "status": "PROVISIONING",
            "zone": self._link(f"zones/{zone}"),
            "selfLink": self._instance_link(*key),
            "labelFingerprint": "f",
            "scheduling": {"provisioningModel": "STANDARD", **body.get("scheduling", {})},
            "networkInterfaces": [
                {
                    **interface,
                    "networkIP": f"10.138.0.{number + 1}",
                    "accessConfigs": [
                        {**c, "natIP": f"34.82.0.{number + 1}"} for c in interface.get("accessConfigs", ())
                    ],
                }
                for interface in body["networkInterfaces"]
            ],
        }
        self.instances[key] = instance

        def end() -> None:
            if code:
                self.instances.pop(key, None)
                message = f"{code.replace('_', ' ').lower()} in {zone}"
                operation["error"] = {"errors": [{"code": code, "message": message}]}
                operation.update(httpErrorStatusCode=503, httpErrorMessage="SERVICE UNAVAILABLE")
            elif self.instances.get(key) is instance and instance["status"] == "PROVISIONING":
                instance["status"] = "RUNNING"

        self._later(operation, self.faults.operation_s, end)
        return operation

    def _check_instance(self, zone: str, body: Json) -> None:
        def need(condition: object, field: str, value: object, reason: str = "invalid") -> None:
            if not condition:
                raise Refused(400, reason, f"Invalid value for field 'resource.{field}': '{value}'.")

        need(_NAME.match(body.get("name", "")), "name", body.get("name"))
        for key, value in body.get("labels", {}).items():
            need(_LABEL_KEY.match(key) and _LABEL_VALUE.match(value), f"labels.{key}", value)
        need(len(body.get("labels", {})) <= 64, "labels", len(body.get("labels", {})))
        for tag in body.get("tags", {}).get("items", ()):
            need(_NAME.match(tag), "tags.items", tag)
        kind = re.search(r"zones/([^/]+)/machineTypes/([^/]+)\Z", body.get("machineType", ""))
        need(kind and kind[1] == zone, "machineType", body.get("machineType"))
        assert kind is not None
        need(_is_in(kind[2], zone), "machineType", body["machineType"], "notFound")
        need(body.get("disks"), "disks", "")
        for disk in body["disks"]:
            image = disk.get("initializeParams", {}).get("sourceImage", "")
            if disk.get("boot"):
                self._check_image(image)
            disk_type = disk.get("initializeParams", {}).get("diskType", "")
            need(not disk_type or f"zones/{zone}/diskTypes/" in disk_type, "disks.diskType", disk_type)
        need(body.get("networkInterfaces"), "networkInterfaces", "")
        for interface in body["networkInterfaces"]:
            network = interface.get("network", "").rpartition("/")[2]
            need(
                network in self.networks or interface.get("subnetwork"), "networkInterfaces.network", network
            )
        scheduling = body.get("scheduling", {})
        maintenance = scheduling.get("onHostMaintenance", "MIGRATE")
        has_gpus = body.get("guestAccelerators") or catalog.MACHINE_TYPES[kind[2]].gpus[1]
        if has_gpus:
            text = "Instances with guest accelerators do not support live migration"
            need(maintenance == "TERMINATE", "scheduling", text)
        for accelerator in body.get("guestAccelerators", ()):
            name = re.search(
                r"zones/([^/]+)/acceleratorTypes/([^/]+)\Z", accelerator.get("acceleratorType", "")
            )
            need(name and zone in catalog.ACCELERATORS.get(name[2], ()), "guestAccelerators", accelerator)
        if _is_spot(body):
            need(scheduling.get("automaticRestart") is False, "scheduling.automaticRestart", True)
            need(maintenance == "TERMINATE", "scheduling.onHostMaintenance", maintenance)
        else:
            need("instanceTerminationAction" not in scheduling, "scheduling.instanceTerminationAction", "")

    def _check_image(self, link: str) -> None:
        match = re.search(r"projects/([^/]+)/global/images/(family/)?([^/]+)\Z", link)
        if match is None:
            raise Refused(400, "invalid", f"Invalid value for field 'sourceImage': '{link}'.")
        if match[2]:
            self._image(match[1], match[3])
        elif (match[1], match[3]) not in _image_names():
            raise Refused(404, "notFound", f"The resource '{link}' was not found")

    def _of_instance(self, method: str, key: tuple[str, str], verb: list[str], body: Json) -> Json:
        instance = self.instances.get(key)
        if instance is None:
            path = f"projects/{catalog.PROJECT}/zones/{key[0]}/instances/{key[1]}"
            raise Refused(404, "notFound", f"The resource '{path}' was not found")
        match method, verb:
            case "GET", []:
                return instance
            case "DELETE", []:
                operation = self._operation(key[0], "delete", instance["selfLink"])
                self._ending(key, operation, is_deleted=True)
                return operation
            case "POST", ["stop"]:
                operation = self._operation(key[0], "stop", instance["selfLink"])
                self._ending(key, operation, is_deleted=False)
                return operation
            case "POST", ["start"]:
                if instance["status"] not in ("TERMINATED", "RUNNING"):
                    raise Refused(400, "resourceNotReady", f"The resource '{key[1]}' is not ready")
                operation = self._operation(key[0], "start", instance["selfLink"])
                self._later(operation, self.faults.operation_s, lambda: self._started(instance))
                return operation
            case "POST", ["setLabels"]:
                _check_form(body, "InstancesSetLabelsRequest")
                operation = self._operation(key[0], "setLabels", instance["selfLink"])
                instance["labels"] = body.get("labels", {})
                self._later(operation, self.faults.operation_s, lambda: None)
                return operation
            case "POST", ["setMetadata"]:
                _check_form(body, "Metadata")
                operation = self._operation(key[0], "setMetadata", instance["selfLink"])
                instance["metadata"] = body
                self._later(operation, self.faults.operation_s, lambda: None)
                return operation
        raise Refused(404, "notFound", f"there is no {'/'.join(verb)}")

    def _started(self, instance: Json) -> None:
        if instance["status"] != "TERMINATED":
            return
        instance["status"] = "RUNNING"
        number = next(self._numbers)
        for interface in instance["networkInterfaces"]:
            for config in interface["accessConfigs"]:
                config["natIP"] = f"34.82.1.{number}"  # it keeps its own, and gets another public one

    def _ending(self, key: tuple[str, str], operation: Json, is_deleted: bool) -> None:
        instance = self.instances[key]
        instance["status"] = "STOPPING"

        def end() -> None:
            if self.instances.get(key) is not instance:
                return
            if is_deleted:
                del self.instances[key]
            else:
                instance["status"] = "TERMINATED"

        self._later(operation, self.faults.delete_s, end)

    def _listed(self) -> list[Json]:
        horizon = time.time() - self.faults.listing_lag_s
        return [
            instance
            for instance in self.instances.values()
            if datetime.fromisoformat(instance["creationTimestamp"]).timestamp() <= horizon
            or not self.faults.listing_lag_s
        ]

    # ------------------------------------------------------------ quotas

    def _quotas(self, region: str) -> list[Json]:
        return [
            {"metric": metric, "limit": limit, "usage": self._used(region, metric)}
            for metric, limit in catalog.QUOTAS.items()
        ]

    def _used(self, region: str, metric: str) -> float:
        here = [i for (zone, _), i in self.instances.items() if zone in catalog.REGIONS[region]]
        return sum(_needs(instance).get(metric, 0.0) for instance in here)

    def _over_quota(self, zone: str, body: Json) -> str:
        region = zone.rpartition("-")[0]
        for metric, amount in _needs(body).items():
            if self._used(region, metric) + amount > catalog.QUOTAS.get(metric, float("inf")):
                return "QUOTA_EXCEEDED"
        return ""

    # ------------------------------------------------------------ firewalls, images

    def _insert_firewall(self, body: Json) -> Json:
        _check_form(body, "Firewall")
        name = body.get("name", "")
        if not _NAME.match(name) or not body.get("allowed"):
            raise Refused(400, "invalid", f"Invalid value for field 'resource.name': '{name}'.")
        if body.get("network", "").rpartition("/")[2] not in self.networks:
            raise Refused(404, "notFound", f"The resource '{body.get('network')}' was not found")
        if name in self.firewalls:
            raise Refused(409, "alreadyExists", f"The resource 'global/firewalls/{name}' already exists")
        operation = self._operation("", "insert", self._link(f"global/firewalls/{name}"))
        self.firewalls[name] = {**body, "selfLink": self._link(f"global/firewalls/{name}")}
        self._later(operation, self.faults.operation_s, lambda: None)
        return operation

    def _image(self, project: str, family: str) -> Json:
        name = catalog.IMAGES.get((project, family))
        if name is None:
            message = f"The resource 'projects/{project}/global/images/family/{family}' was not found"
            raise Refused(404, "notFound", message)
        return {"name": name, "family": family, "status": "READY"}

    # ------------------------------------------------------------ operations and lists

    def _operation(self, zone: str, kind: str, target: str) -> Json:
        number = next(self._numbers)
        name = f"operation-{number}"
        place = f"zones/{zone}" if zone else "global"
        operation: Json = {
            "id": str(10**18 + number),
            "name": name,
            "operationType": kind,
            "status": "RUNNING",
            "progress": 0,
            "targetLink": target,
            "selfLink": self._link(f"{place}/operations/{name}"),
        }
        if zone:
            operation["zone"] = self._link(f"zones/{zone}")
        self.operations[name] = operation
        return operation

    def _later(self, operation: Json, after_s: float, happen: Callable[[], object]) -> None:
        def end() -> None:
            happen()
            operation.update(status="DONE", progress=100)

        heapq.heappush(self._due, (time.monotonic() + after_s, next(self._numbers), end))

    def _advance(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()

    def _wait(self, name: str) -> Json:
        deadline = time.monotonic() + _WAIT_S
        while True:
            with self._lock:
                self._advance()
                operation = self.operations.get(name)
                if operation is None:
                    raise Refused(404, "notFound", f"The resource 'operations/{name}' was not found")
                if operation["status"] == "DONE" or time.monotonic() > deadline:
                    return dict(operation)
            time.sleep(0.005)

    def _page(self, found: list[Json], query: Mapping[str, str]) -> Json:
        items, token = self._cut(found, query)
        return {"items": items, **({"nextPageToken": token} if token else {})}

    def _aggregated(self, what: str, found: list[Json], query: Mapping[str, str]) -> Json:
        found = [item for item in found if item["zone"].rpartition("/")[2] not in self.faults.unreachable]
        items, token = self._cut(found, query)
        scopes: Json = {}
        for zone in catalog.ZONES:
            here = [item for item in items if item["zone"].rpartition("/")[2] == zone]
            warning = {"code": "NO_RESULTS_ON_PAGE", "message": "There are no results on this page."}
            if zone in self.faults.unreachable:
                warning = {"code": "UNREACHABLE", "message": f"The zone {zone} is unreachable."}
            scopes[f"zones/{zone}"] = {what: here} if here else {"warning": warning}
        unreachable = [f"zones/{zone}" for zone in sorted(self.faults.unreachable)]
        return {"items": scopes, "unreachables": unreachable, **({"nextPageToken": token} if token else {})}

    def _cut(self, found: list[Json], query: Mapping[str, str]) -> tuple[list[Json], str]:
        try:
            found = [item for item in found if filters.matches(query.get("filter", ""), item)]
        except filters.BadFilter as error:
            raise Refused(400, "invalid", str(error)) from error
        start = int(query.get("pageToken", 0))
        end = start + min(_MOST_PER_PAGE, int(query.get("maxResults", 500)))
        return found[start:end], str(end) if end < len(found) else ""

    def _link(self, path: str) -> str:
        return f"{_ROOT}/projects/{catalog.PROJECT}/{path}"

    def _instance_link(self, zone: str, name: str) -> str:
        return self._link(f"zones/{zone}/instances/{name}")


def _check_form(body: Json, kind: str) -> None:
    from google.cloud import compute_v1  # seconds, which every process of the tests would spend on its import

    try:
        getattr(compute_v1, kind).from_json(json.dumps(body), ignore_unknown_fields=False)
    except Exception as error:
        raise Refused(400, "invalid", f"Invalid JSON payload received. {error}") from error


def _error(status: int, reason: str, message: str) -> Json:
    detail = {"message": message, "domain": "global", "reason": reason}
    return {"error": {"code": status, "message": message, "errors": [detail]}}


def _zone(zone: str) -> Json:
    region = zone.rpartition("-")[0]
    return {"name": zone, "status": "UP", "region": f"{_ROOT}/projects/{catalog.PROJECT}/regions/{region}"}


def _is_in(machine_type: str, zone: str) -> bool:
    kind = catalog.MACHINE_TYPES.get(machine_type)
    return kind is not None and (not kind.zones or zone in kind.zones)


def _machine_type(zone: str, name: str) -> Json:
    kind = catalog.MACHINE_TYPES[name]
    gpu, count = kind.gpus
    built_in = [{"guestAcceleratorType": gpu, "guestAcceleratorCount": count}] if count else []
    return {
        "name": name,
        "zone": f"{_ROOT}/projects/{catalog.PROJECT}/zones/{zone}",
        "guestCpus": kind.cpus,
        "memoryMb": kind.memory_mb,
        **({"accelerators": built_in} if built_in else {}),
    }


def _image_names() -> set[tuple[str, str]]:
    return {(project, name) for (project, _), name in catalog.IMAGES.items()}


def _is_spot(body: Json) -> bool:
    scheduling = body.get("scheduling", {})
    return scheduling.get("provisioningModel") == "SPOT" or scheduling.get("preemptible") is True


def _needs(body: Json) -> dict[str, float]:
    """Of quotas."""
    name = body["machineType"].rpartition("/")[2]
    needs = {
        "INSTANCES": 1.0,
        "C2_CPUS" if name.startswith("c2-") else "CPUS": float(catalog.MACHINE_TYPES[name].cpus),
    }
    for accelerator in body.get("guestAccelerators", ()):
        if accelerator["acceleratorType"].endswith("/nvidia-tesla-t4"):
            metric = "PREEMPTIBLE_NVIDIA_T4_GPUS" if _is_spot(body) else "NVIDIA_T4_GPUS"
            needs[metric] = float(accelerator["acceleratorCount"])
    return needs


def _addresses(instance: Json) -> tuple[str, ...]:
    interface = instance["networkInterfaces"][0]
    return interface["networkIP"], *(config["natIP"] for config in interface["accessConfigs"])


def _keys(instance: Json) -> dict[str, list[str]]:
    keys: dict[str, list[str]] = {}
    for item in instance.get("metadata", {}).get("items", ()):
        if item["key"] == "ssh-keys":
            for line in item["value"].splitlines():
                user, _, key = line.partition(":")
                keys.setdefault(user, []).append(key)
    return keys
