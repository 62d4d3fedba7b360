"""Instances: what is asked for, as the API's `instances.insert` takes it, and what is listed, as machines. Pure.

`node_config` is that very body, under the API's names. It is completed, and nothing that it says is changed but for
short names (`e2-standard-4`, `nvidia-tesla-t4`), which become those of the zone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from autoscaler.provider import ON_DEMAND, SPOT, Config, Machine, MachineState, MachineTags
from clusterctl.artefacts.architectures import ARM64, X86_64
from clusterctl.providers import first_boot

from . import names
from .machine_names import MACHINE_TYPES

Json = dict[str, Any]

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_COMPUTE = "https://www.googleapis.com/auth/compute"
DEFAULT_ACCOUNT = "default"
"""Compute Engine's own account of the project, which is an Editor in many projects."""
_IMAGES = {
    (3, 11): "projects/debian-cloud/global/images/family/debian-12",
    (3, 12): "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts",
    (3, 13): "projects/debian-cloud/global/images/family/debian-13",
}
"""By the Python that they bring: the default is that of the operator."""
_SUFFIXES = {"ubuntu-2404-lts": ("-amd64", "-arm64")}
"""Of families that are not NAME for x86_64 and NAME-arm64 for arm64."""
_DISK_GB = 50
_MACHINE_TYPE = "n1-standard-2"
_BOOTS = "startup-script"
_QUERY = ("sourceInstanceTemplate", "sourceMachineImage")
"""Of `node_config`, but parameters of the call and no part of the instance."""
_STATES = {
    "PROVISIONING": MachineState.PENDING,
    "STAGING": MachineState.PENDING,
    "PENDING": MachineState.PENDING,
    "REPAIRING": MachineState.PENDING,
    "RUNNING": MachineState.RUNNING,
    "PENDING_STOP": MachineState.STOPPING,
    "STOPPING": MachineState.STOPPING,
    "SUSPENDING": MachineState.STOPPING,
    "DEPROVISIONING": MachineState.STOPPING,
    "TERMINATED": MachineState.STOPPED,
    "SUSPENDED": MachineState.STOPPED,
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the instances of a cluster have in common.

    Attributes:
        network, subnetwork: links; of instances whose node_config names none.
        network_tag: by which firewall rules know them.
        user, public_keys: who enters them, by which keys.
        service_account: of the head, that it may make workers.
    """

    network: str
    subnetwork: str
    network_tag: str
    use_internal_ips: bool
    user: str
    public_keys: tuple[str, ...]
    service_account: str


def default_image(
    python: tuple[int, int] = (sys.version_info[0], sys.version_info[1]), architecture: str = X86_64
) -> str:
    """The image that brings a Python.

    Raises:
        Config: none does.
    """
    if python not in _IMAGES:
        raise Config(
            f"no public image is known to bring Python {python[0]}.{python[1]}: name one as "
            "disks[0].initializeParams.sourceImage of node_config"
        )
    x86_64, arm64 = _SUFFIXES.get(_IMAGES[python].rpartition("/")[2], ("", "-arm64"))
    return _IMAGES[python] + (arm64 if architecture == ARM64 else x86_64)


def python_of(image: str) -> tuple[int, int] | None:
    """The Python that an image brings, if it is one of the default images."""
    for python in _IMAGES:
        if image in (default_image(python), default_image(python, ARM64)):
            return python
    return None


def machine_type(node_config: Mapping[str, Any]) -> str:
    """The short name of the machine type."""
    return str(node_config.get("machineType") or _MACHINE_TYPE).rpartition("/")[2]


def accelerators(node_config: Mapping[str, Any]) -> dict[str, int]:
    """Those that are added: short name -> how many."""
    found: dict[str, int] = {}
    for entry in node_config.get("guestAccelerators") or ():
        kind = str(entry.get("acceleratorType", "")).rpartition("/")[2]
        count = entry.get("acceleratorCount")
        found[kind] = found.get(kind, 0) + (1 if count is None else int(count))
    return found


def boot_image(node_config: Mapping[str, Any]) -> str:
    """The image of the boot disk; "" when something else makes that disk.

    Raises:
        Config: no image is known for this Python, and none is named.
    """
    if query(node_config) and not node_config.get("disks"):
        return ""
    for disk in _disks(node_config):
        if disk.get("boot"):
            return str((disk.get("initializeParams") or {}).get("sourceImage", ""))
    return ""


def is_spot(node_config: Mapping[str, Any]) -> bool:
    """Whether node_config itself asks for machines that may be taken back."""
    scheduling = _scheduling(node_config)
    return scheduling.get("provisioningModel") == "SPOT" or scheduling.get("preemptible") is True


def query(node_config: Mapping[str, Any]) -> dict[str, str]:
    """The parameters of the call: what the instance is a copy of."""
    return {key: str(node_config[key]) for key in _QUERY if node_config.get(key)}


def passed_on(node_config: Mapping[str, Any]) -> Json:
    """What of it describes the instance itself. A null says nothing."""
    return {key: value for key, value in node_config.items() if key not in _QUERY and value is not None}


def body(
    node_config: Mapping[str, Any],
    name: str,
    zone: str,
    market: str,
    tags: Mapping[str, str],
    around: Surroundings,
    has_gpus: bool,
    template: Mapping[str, Any] | None = None,
) -> Json:
    """The instance to insert.

    Args:
        has_gpus: of whatever kind; such machines cannot move to another host.
        template: what the template or machine image that it names says. A field of the instance replaces the whole of
            the template's, so where we add to a field, the template's is in it.

    Raises:
        Config: no image is known for this Python, and none is named; or nobody could delete the instance.
    """
    if node_config.get("deletionProtection"):
        raise Config("deletionProtection: with it nobody could end the machine, and it would cost for ever")
    is_head = tags.get(MachineTags.ROLE) == MachineTags.HEAD
    labels, long_tags = names.write(tags)
    said = {**_of_others(template or {}), **node_config}
    out = passed_on(node_config)
    from_template = bool(query(node_config))
    out["name"] = name
    if node_config.get("machineType") or not from_template:
        out["machineType"] = f"zones/{zone}/machineTypes/{machine_type(node_config)}"
    if node_config.get("disks") or not from_template:
        out["disks"] = [_in_zone(disk, zone) for disk in _disks(node_config)]
    out["networkInterfaces"] = _interfaces(said, around)
    out["scheduling"] = _with_market(_scheduling(said), market, has_gpus, is_head)
    if "scheduling" not in node_config and market != SPOT and not is_spot(said):
        out["scheduling"]["automaticRestart"] = is_head  # every template says something of it
    if node_config.get("guestAccelerators"):
        out["guestAccelerators"] = [
            {"acceleratorType": f"zones/{zone}/acceleratorTypes/{kind}", "acceleratorCount": count}
            for kind, count in accelerators(node_config).items()
        ]
    if is_head and not said.get("serviceAccounts"):
        # The default account may do nearly anything: its scope limits it. A named one is limited by its roles.
        scope = _COMPUTE if around.service_account == DEFAULT_ACCOUNT else SCOPE
        out["serviceAccounts"] = [{"email": around.service_account, "scopes": [scope]}]
    out["labels"] = {**(said.get("labels") or {}), **labels}
    out["metadata"] = {"items": _metadata(said, around, long_tags, is_head)}
    given = (said.get("tags") or {}).get("items", ())
    out["tags"] = {"items": [*dict.fromkeys((*given, around.network_tag))]}
    return out


def machine(instance: Mapping[str, Any]) -> Machine:
    """An instance as it is listed."""
    zone = str(instance.get("zone", "")).rpartition("/")[2]
    interface = (instance.get("networkInterfaces") or [{}])[0]
    public = [config.get("natIP", "") for config in interface.get("accessConfigs", ())]
    tags = tags_of(instance)
    return Machine(
        id=names.machine_id(zone, str(instance["name"])),
        state=_STATES.get(str(instance.get("status")), MachineState.PENDING),
        node_type=tags.get(MachineTags.NODE_TYPE, ""),
        tags=tags,
        address=interface.get("networkIP", ""),
        public_address=next((address for address in public if address), ""),
        zone=zone,
        market=SPOT if is_spot(instance) else ON_DEMAND,
        launched_s=_unix_time(str(instance.get("creationTimestamp", ""))),
    )


def tags_of(instance: Mapping[str, Any]) -> dict[str, str]:
    """Our tags."""
    items = instance.get("metadata", {}).get("items", ())
    long = next((str(item.get("value", "")) for item in items if item.get("key") == names.LONG_TAGS), "")
    return names.read(instance.get("labels", {}), long)


# ---------------------------------------------------------------- inside


def _of_others(template: Mapping[str, Any]) -> Json:
    """A template without what is ours in it: it may have been made of a worker, also of another cluster's, and a head
    that boots as a worker does shuts itself down."""
    out = dict(template)
    if labels := template.get("labels"):
        out["labels"] = {key: text for key, text in labels.items() if not names.is_tag(key)}
    if metadata := template.get("metadata"):
        out["metadata"] = {**metadata, "items": [i for i in metadata.get("items", ()) if not _is_ours(i)]}
    return out


def _is_ours(item: Mapping[str, Any]) -> bool:
    """Whether it is metadata that we wrote, for one machine."""
    key = item.get("key")
    return key == names.LONG_TAGS or (key == _BOOTS and first_boot.is_ours(str(item.get("value"))))


def _disks(node_config: Mapping[str, Any]) -> Sequence[Json]:
    given = [dict(disk) for disk in node_config.get("disks") or ()]
    if not given:
        given = [{"boot": True, "initializeParams": {"diskSizeGb": str(_DISK_GB)}}]
    for disk in given:
        disk.setdefault("autoDelete", True)  # nothing is left of a machine unless that is wished
        starts = disk.get("source") or (disk.get("initializeParams") or {}).get("sourceSnapshot")
        if disk.get("boot") and not starts:
            parameters = dict(disk.get("initializeParams") or {})
            if not parameters.get("sourceImage"):
                parameters["sourceImage"] = default_image(
                    architecture=MACHINE_TYPES.architecture(machine_type(node_config))
                )
            disk["initializeParams"] = parameters
    return given


def _in_zone(disk: Json, zone: str) -> Json:
    parameters = disk.get("initializeParams")
    if not parameters or not parameters.get("diskType"):
        return disk
    short = str(parameters["diskType"]).rpartition("/")[2]
    return {**disk, "initializeParams": {**parameters, "diskType": f"zones/{zone}/diskTypes/{short}"}}


def _interfaces(node_config: Mapping[str, Any], around: Surroundings) -> list[Json]:
    given = node_config.get("networkInterfaces")
    if given:
        return [dict(interface) for interface in given]
    interface: Json = {"network": around.network} if around.network else {}
    if around.subnetwork:
        interface["subnetwork"] = around.subnetwork
    if not around.use_internal_ips:
        interface["accessConfigs"] = [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}]
    return [interface]


def _scheduling(node_config: Mapping[str, Any]) -> Json:
    return dict(node_config.get("scheduling") or {})


def _with_market(given: Json, market: str, has_gpus: bool, is_head: bool) -> Json:
    if market == SPOT:
        ours: Json = {
            "provisioningModel": "SPOT",
            "instanceTerminationAction": "DELETE",
            "automaticRestart": False,
            "onHostMaintenance": "TERMINATE",
        }
        return {**given, **ours}
    if given.get("provisioningModel") == "SPOT" or given.get("preemptible"):
        return {"automaticRestart": False, "onHostMaintenance": "TERMINATE", **given}
    # A worker that fails is replaced; started again it would be a machine without a node.
    ours = {"automaticRestart": is_head}
    if has_gpus:
        ours["onHostMaintenance"] = "TERMINATE"
    return {**ours, **given}


def _metadata(
    node_config: Mapping[str, Any], around: Surroundings, long_tags: str, is_head: bool
) -> list[Json]:
    given = {
        str(item["key"]): str(item.get("value", ""))
        for item in (node_config.get("metadata") or {}).get("items", ())
    }
    keys = [line for line in given.pop("ssh-keys", "").splitlines() if line]
    ours = {
        "enable-oslogin": "FALSE",  # where the project has it on, keys in metadata are not looked at
        **given,
        "ssh-keys": "\n".join([*keys, *(f"{around.user}:{key}" for key in around.public_keys)]),
    }
    if not is_head:
        ours[_BOOTS] = first_boot.with_startup_script(ours.get(_BOOTS, ""), first_boot.script())
    if long_tags:
        ours[names.LONG_TAGS] = long_tags
    return [{"key": key, "value": value} for key, value in ours.items()]


def _unix_time(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
