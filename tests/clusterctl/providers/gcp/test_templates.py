"""Node types that name an instance template or a machine image."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.provider import MachineTags, NodeType
from clusterctl.providers import first_boot
from clusterctl.providers.gcp.provider import GcpMachines
from tests.clusterctl.providers.gcp.cluster import create
from tests.testbed.gcp.server import Cloud

PROPERTIES: dict[str, Any] = {
    "machineType": "e2-small",
    "disks": [
        {
            "boot": True,
            "initializeParams": {"sourceImage": "projects/debian-cloud/global/images/family/debian-12"},
        }
    ],
    "canIpForward": True,
    "networkInterfaces": [{"network": "global/networks/default"}],
    "labels": {"team": "a"},
    "tags": {"items": ["theirs"]},
    "metadata": {
        "items": [{"key": "theirs", "value": "x"}, {"key": "ssh-keys", "value": "they:ssh-rsa AAAA"}]
    },
    "serviceAccounts": [{"email": "they@a-project", "scopes": ["x"]}],
    "scheduling": {"automaticRestart": True, "provisioningModel": "STANDARD"},
}


def kind(link: str, key: str = "sourceInstanceTemplate", **more: Any) -> NodeType:
    return NodeType("small", node_config={key: link, **more}, max_workers=1)


@pytest.mark.parametrize(
    ("link", "key"),
    [
        ("global/instanceTemplates/t", "sourceInstanceTemplate"),
        ("projects/a-project/regions/us-west1/instanceTemplates/t", "sourceInstanceTemplate"),
        ("projects/a-project/global/machineImages/t", "sourceMachineImage"),
    ],
)
def test_what_it_says_is_kept_and_ours_is_added(
    cloud: Cloud, provider: GcpMachines, link: str, key: str
) -> None:
    inside = "instanceProperties" if key == "sourceMachineImage" else "properties"
    cloud.compute.templates["t"] = {"name": "t", inside: PROPERTIES}
    small = kind(link, key)
    assert provider.check([small]) == []
    assert provider.offers(small)[0].resources["memory"] < 2**31
    assert create(provider, "a", kind=small).errors == ()
    (instance,) = cloud.compute.all()
    assert instance["canIpForward"] is True
    assert instance["machineType"].endswith("e2-small")
    assert instance["networkInterfaces"][0]["accessConfigs"] == []
    assert instance["serviceAccounts"] == PROPERTIES["serviceAccounts"]
    assert instance["labels"]["team"] == "a"
    assert instance["labels"][MachineTags.NODE_TYPE] == "small"
    assert instance["tags"]["items"][0] == "theirs"
    assert len(instance["tags"]["items"]) == 2
    assert instance["scheduling"]["automaticRestart"] is False
    metadata = {item["key"]: item["value"] for item in instance["metadata"]["items"]}
    assert metadata["theirs"] == "x"
    assert metadata["ssh-keys"].startswith("they:ssh-rsa AAAA\nclusterctl:")
    assert "shutdown" in metadata["startup-script"], "nobody may ever come"


def test_what_node_config_says_goes_before_it(cloud: Cloud, provider: GcpMachines) -> None:
    cloud.compute.templates["t"] = {"name": "t", "properties": PROPERTIES}
    small = kind("global/instanceTemplates/t", labels={"team": "b"}, machineType="e2-standard-2")
    assert create(provider, "h", kind=small, role=MachineTags.HEAD).errors == ()
    (instance,) = cloud.compute.all()
    assert instance["labels"]["team"] == "b"
    assert instance["machineType"].endswith("e2-standard-2")
    assert instance["serviceAccounts"] == PROPERTIES["serviceAccounts"], "a head's, too"


@pytest.mark.parametrize("role", [MachineTags.HEAD, MachineTags.WORKER])
def test_one_that_was_made_of_a_worker_brings_nothing_of_it(
    cloud: Cloud, provider: GcpMachines, role: str
) -> None:
    worker: dict[str, Any] = {
        "labels": {"team": "a", "clusterctl-cluster-id": "other", "clusterctl-unwanted": "x"},
        "metadata": {
            "fingerprint": "f",
            "items": [
                {"key": "startup-script", "value": first_boot.script()},
                {"key": "clusterctl-tags", "value": '{"clusterctl-token": "long"}'},
                {"key": "theirs", "value": "x"},
            ],
        },
    }
    cloud.compute.templates["t"] = {"name": "t", "instanceProperties": {**PROPERTIES, **worker}}
    image = kind("projects/a-project/global/machineImages/t", "sourceMachineImage")
    assert create(provider, "a", kind=image, role=role).errors == ()
    (instance,) = cloud.compute.all()
    metadata = {item["key"]: item["value"] for item in instance["metadata"]["items"]}
    assert ("startup-script" in metadata) == (role == MachineTags.WORKER)
    assert "clusterctl-tags" not in metadata
    assert metadata["theirs"] == "x"
    assert instance["labels"]["team"] == "a"
    assert "clusterctl-unwanted" not in instance["labels"]


@pytest.mark.parametrize("link", ["global/instanceTemplates/none", "global/instanceTemplate/t"])
def test_one_that_is_not_there_is_found(provider: GcpMachines, link: str) -> None:
    (problem,) = provider.check([kind(link)])
    assert link.rpartition("/")[2] in problem.what
    assert problem.advice == "Correct sourceInstanceTemplate of node_config."
