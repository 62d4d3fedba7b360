"""Instances as they are asked for and as they are listed."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler.provider import ON_DEMAND, SPOT, Config, MachineState, MachineTags
from clusterctl.artefacts import architectures
from clusterctl.providers import first_boot
from clusterctl.providers.gcp import instances
from clusterctl.providers.gcp.api import check_body
from clusterctl.providers.gcp.instances import Surroundings

AROUND = Surroundings(
    network="projects/p/global/networks/default",
    subnetwork="",
    network_tag="c-1",
    use_internal_ips=False,
    user="someone",
    public_keys=("ssh-ed25519 AAAA c",),
    service_account="default",
)
WORKER = {MachineTags.ROLE: MachineTags.WORKER, MachineTags.CLUSTER_ID: "c-1"}
HEAD = {MachineTags.ROLE: MachineTags.HEAD, MachineTags.CLUSTER_ID: "c-1"}


def body(
    node_config: dict[str, Any],
    market: str = ON_DEMAND,
    tags: dict[str, str] = WORKER,
    around: Surroundings = AROUND,
    has_gpus: bool = False,
) -> dict[str, Any]:
    made = instances.body(node_config, "name", "z-a", market, tags, around, has_gpus)
    check_body(made, "made")
    return made


def items(made: dict[str, Any]) -> dict[str, str]:
    return {item["key"]: item["value"] for item in made["metadata"]["items"]}


def test_nothing_needs_to_be_said() -> None:
    made = body({})
    assert made["machineType"] == "zones/z-a/machineTypes/n1-standard-2"
    (disk,) = made["disks"]
    assert disk["boot"]
    assert disk["autoDelete"]
    assert disk["initializeParams"]["sourceImage"] == instances.default_image()
    (interface,) = made["networkInterfaces"]
    assert interface["network"] == AROUND.network
    assert interface["accessConfigs"]
    assert items(made)["ssh-keys"] == "someone:ssh-ed25519 AAAA c"
    assert made["tags"] == {"items": ["c-1"]}
    assert made["labels"] == {"clusterctl-role": "worker", "clusterctl-cluster-id": "c-1"}
    assert "serviceAccounts" not in made


def test_a_head_may_make_workers_and_is_started_again() -> None:
    made = body({}, tags=HEAD)
    (account,) = made["serviceAccounts"]
    assert account == {"email": "default", "scopes": ["https://www.googleapis.com/auth/compute"]}, (
        "the default account is an Editor"
    )
    named = replace(AROUND, service_account="head@p.iam.gserviceaccount.com")
    (account,) = body({}, tags=HEAD, around=named)["serviceAccounts"]
    assert account["scopes"] == [instances.SCOPE], "its roles limit it"
    assert made["scheduling"]["automaticRestart"] is True
    assert body({})["scheduling"]["automaticRestart"] is False


def test_every_key_is_let_in() -> None:
    both = replace(AROUND, public_keys=("ssh-ed25519 AAAA c", "ssh-rsa BBBB me"))
    assert items(body({}, around=both))["ssh-keys"] == "someone:ssh-ed25519 AAAA c\nsomeone:ssh-rsa BBBB me"


def test_an_own_startup_script_runs_after_the_one_that_ends_a_machine_that_nobody_enters(
    tmp_path: Path,
) -> None:
    own = '#!/bin/bash\necho "own\'s" > "$MARK"\n'
    given = {"metadata": {"items": [{"key": "startup-script", "value": own}]}}
    both = items(body(given))["startup-script"]
    assert both.startswith(first_boot.script())
    (tmp_path / "shutdown").symlink_to("/bin/true")
    mark = tmp_path / "mark"
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "MARK": str(mark), "TMPDIR": str(tmp_path)}
    subprocess.run(["/bin/sh", "-c", both], env=env, check=True)
    assert mark.read_text() == "own's\n"
    assert items(body(given, tags=HEAD))["startup-script"] == own


def test_what_node_config_says_stays() -> None:
    given = {
        "machineType": "https://www.googleapis.com/compute/v1/projects/p/zones/other/machineTypes/e2-small",
        "disks": [
            {
                "boot": True,
                "autoDelete": False,
                "initializeParams": {"sourceImage": "i", "diskType": "pd-ssd"},
            },
            {"type": "SCRATCH", "interface": "NVME", "initializeParams": {"diskType": "local-ssd"}},
        ],
        "networkInterfaces": [{"subnetwork": "s", "networkIP": "10.0.0.9"}],
        "serviceAccounts": [{"email": "a@b", "scopes": ["x"]}],
        "metadata": {
            "items": [{"key": "ssh-keys", "value": "op:k"}, {"key": "startup-script", "value": "true"}]
        },
        "labels": {"team": "a"},
        "tags": {"items": ["web"]},
        "minCpuPlatform": "Intel Skylake",
    }
    made = body(given, tags=HEAD)
    assert made["machineType"] == "zones/z-a/machineTypes/e2-small"
    first, second = made["disks"]
    assert first["initializeParams"] == {"sourceImage": "i", "diskType": "zones/z-a/diskTypes/pd-ssd"}
    assert first["autoDelete"] is False
    assert second["autoDelete"] is True
    assert made["networkInterfaces"] == given["networkInterfaces"]
    assert made["serviceAccounts"] == given["serviceAccounts"]
    assert items(made)["ssh-keys"].splitlines() == ["op:k", "someone:ssh-ed25519 AAAA c"]
    assert items(made)["startup-script"] == "true"
    assert made["labels"]["team"] == "a"
    assert made["tags"]["items"] == ["web", "c-1"]
    assert made["minCpuPlatform"] == "Intel Skylake"


def test_spot_machines_are_deleted_when_they_are_taken_back() -> None:
    scheduling = body({}, market=SPOT)["scheduling"]
    assert scheduling == {
        "provisioningModel": "SPOT",
        "instanceTerminationAction": "DELETE",
        "automaticRestart": False,
        "onHostMaintenance": "TERMINATE",
    }


def test_node_config_may_ask_for_machines_that_are_taken_back() -> None:
    scheduling = body({"scheduling": {"preemptible": True}})["scheduling"]
    assert scheduling["preemptible"] is True
    assert scheduling["automaticRestart"] is False
    assert instances.is_spot({"scheduling": {"preemptible": True}})


def test_accelerators() -> None:
    given = {"guestAccelerators": [{"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": 2}]}
    made = body(given, has_gpus=True)
    assert made["guestAccelerators"] == [
        {"acceleratorType": "zones/z-a/acceleratorTypes/nvidia-tesla-t4", "acceleratorCount": 2}
    ]
    assert made["scheduling"]["onHostMaintenance"] == "TERMINATE"
    assert instances.accelerators(given) == {"nvidia-tesla-t4": 2}


def test_a_template_says_the_rest() -> None:
    given = {"sourceInstanceTemplate": "global/instanceTemplates/t", "labels": {"team": "a"}}
    made = body(given)
    assert "machineType" not in made
    assert "disks" not in made
    assert "sourceInstanceTemplate" not in made
    assert instances.query(given) == {"sourceInstanceTemplate": "global/instanceTemplates/t"}


def test_a_field_that_the_api_does_not_know_is_named() -> None:
    with pytest.raises(Config, match="machinetype"):
        check_body(instances.body({"machinetype": "x"}, "n", "z", "", {}, AROUND, False), "node type w")


def test_what_nobody_could_end_is_not_made() -> None:
    with pytest.raises(Config, match="nobody could end"):
        body({"deletionProtection": True})


def test_images_by_python() -> None:
    assert instances.default_image((3, 12)).endswith("ubuntu-2404-lts-amd64")
    with pytest.raises(Config, match=r"3\.99"):
        instances.default_image((3, 99))
    for python in ((3, 11), (3, 12), (3, 13)):
        for cpu in (architectures.ARM64, architectures.X86_64):
            assert instances.python_of(instances.default_image(python, cpu)) == python
    assert instances.python_of("projects/p/global/images/own") is None
    disks = body({"machineType": "t2a-standard-1"})["disks"]
    assert disks[0]["initializeParams"]["sourceImage"].endswith("-arm64")


def test_a_listed_instance() -> None:
    instance = {
        "name": "one",
        "zone": "https://x/projects/p/zones/us-west1-a",
        "status": "RUNNING",
        "creationTimestamp": "2025-04-01T10:00:00.000-07:00",
        "labels": {"clusterctl-cluster-id": "c_31", "clusterctl-node-type": "w"},
        "networkInterfaces": [{"networkIP": "10.0.0.2", "accessConfigs": [{"natIP": "34.0.0.2"}]}],
        "scheduling": {"provisioningModel": "SPOT"},
    }
    machine = instances.machine(instance)
    assert machine.id == "one.us-west1-a"
    assert machine.state is MachineState.RUNNING
    assert (machine.address, machine.public_address, machine.zone) == ("10.0.0.2", "34.0.0.2", "us-west1-a")
    assert machine.market == SPOT
    assert machine.node_type == "w"
    assert machine.tags[MachineTags.CLUSTER_ID] == "c1"
    assert machine.launched_s == 1743526800.0


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("PROVISIONING", MachineState.PENDING),
        ("STAGING", MachineState.PENDING),
        ("STOPPING", MachineState.STOPPING),
        ("TERMINATED", MachineState.STOPPED),
        ("SUSPENDED", MachineState.STOPPED),
    ],
)
def test_states(status: str, state: MachineState) -> None:
    assert instances.machine({"name": "n", "zone": "z", "status": status}).state is state
