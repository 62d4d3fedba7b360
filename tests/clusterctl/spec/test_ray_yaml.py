"""Cluster YAMLs in Ray's words."""

from __future__ import annotations

import pytest

from clusterctl.errors import SpecError
from clusterctl.providers.aws.config import AwsProvider
from clusterctl.providers.gcp.config import GcpProvider
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.load import cluster_limit, load_text, read_text, worker_limit
from clusterctl.spec.ray_start import parse_start

LOCAL = """\
cluster_name: default
max_workers: 2
upscaling_speed: 1.0
idle_timeout_minutes: 5
provider:
    type: local
auth:
    ssh_user: ubuntu
head_node_type: head_node
available_node_types:
    head_node:
        resources: {"CPU": 2}
        node_config: {}
    worker_node:
        resources: {"CPU": 2}
        min_workers: 0
        max_workers: 2
metadata: {team: a}
docker: {}
file_mounts: {}
cluster_synced_files: []
file_mounts_sync_continuously: False
rsync_exclude:
    - "**/.git"
rsync_filter:
    - ".gitignore"
initialization_commands: []
setup_commands: []
head_setup_commands: []
worker_setup_commands: []
head_start_ray_commands:
    - ray stop
    - ulimit -n 65536; ray start --head --port=6379 --autoscaling-config=~/ray_bootstrap_config.yaml
worker_start_ray_commands:
    - ray stop
    - ray start --address=$RAY_HEAD_IP:6379
"""

AWS = """\
cluster_name: team-a
max_workers: 2
provider:
    type: aws
    region: eu-central-1
    availability_zone: eu-central-1a, eu-central-1b
    cache_stopped_nodes: True
    use_internal_ips: false
    key_pair: {key_name: mine}
    security_group:
        GroupName: ours
        IpPermissions: [{FromPort: 443, ToPort: 443, IpProtocol: TCP}]
auth:
    ssh_user: ubuntu
    ssh_private_key: ~/.ssh/mine.pem
available_node_types:
    ray.head.default:
        resources: {}
        node_config:
            InstanceType: m5.xlarge
            ImageId: ami-1
            BlockDeviceMappings: [{DeviceName: /dev/sda1, Ebs: {VolumeSize: 100}}]
    ray.worker.default:
        min_workers: 1
        priority: 3
        resources: {CPU: 4, GPU: 1}
        labels: {team: a}
        node_config:
            InstanceType: g4dn.xlarge
            InstanceMarketOptions: {MarketType: spot}
        worker_setup_commands: [make all]
head_node_type: ray.head.default
setup_commands:
    - (stat /opt/x &> /dev/null && echo 'export PATH=/opt/x:$PATH' >> ~/.bashrc) || true
    - which ray || pip install -U "ray[default] @ https://example.com/ray.whl"
head_start_ray_commands:
    - ray stop
    - ulimit -n 65536; ray start --head --port=6379 --object-manager-port=8076 --dashboard-host=0.0.0.0
worker_start_ray_commands:
    - ray stop
    - ulimit -n 65536; ray start --address=$RAY_HEAD_IP:6379 --object-manager-port=8076
"""

GCP = """\
cluster_name: default
provider: {type: gcp, region: us-west1, availability_zone: us-west1-a, project_id: null}
max_workers: 2
available_node_types:
    ray_head_default:
        resources: {CPU: 2}
        node_config:
            machineType: n1-standard-2
            disks: [{boot: true, autoDelete: true, initializeParams: {diskSizeGb: 50}}]
    ray_worker_small:
        resources: {CPU: 2}
        node_config:
            machineType: n1-standard-2
            scheduling:
              - preemptible: true
              - onHostMaintenance: TERMINATE
head_node_type: ray_head_default
"""


def read(text: str) -> tuple[ClusterSpec, list[str]]:
    """The spec and its warnings."""
    warnings: list[str] = []
    return load_text(text, "f", {}, warnings.append), warnings


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as wrong:
        load_text(text, "f", {})
    return wrong.value.message.splitlines()


def test_a_ray_yaml_loads_as_it_is() -> None:
    spec, warnings = read(LOCAL)
    assert not warnings
    assert parse_start(spec.head_start_ray_commands).control_port == 6379
    assert parse_start(spec.head_start_ray_commands).commands == []
    assert parse_start(spec.worker_start_ray_commands).commands == []


def test_a_file_for_aws() -> None:
    spec, warnings = read(AWS)
    assert isinstance(spec.provider, AwsProvider)
    worker = spec.available_node_types["ray.worker.default"]
    assert worker.node_config["InstanceType"] == "g4dn.xlarge"
    assert worker.worker_setup_commands == ["make all"]
    lines = [text.split(" ", 1) for text in warnings]
    assert [where for where, _ in lines] == [
        "f:7:26:",
        "f:25:9:",
        "f:34:7:",
        "f:35:7:",
        "f:38:7:",
        "f:41:7:",
    ]
    assert "ended, never stopped" in lines[0][1]
    assert "priority: not used" in lines[1][1]
    assert "reads this file" in lines[2][1]
    assert "installs Ray" in lines[3][1]
    assert "--object-manager-port" in lines[4][1]
    assert "--dashboard-host" in lines[4][1]


def test_a_file_for_gcp() -> None:
    spec, warnings = read(GCP)
    assert isinstance(spec.provider, GcpProvider)
    assert spec.provider.project_id == ""
    scheduling = spec.available_node_types["ray_worker_small"].node_config["scheduling"]
    assert scheduling == {"preemptible": True, "onHostMaintenance": "TERMINATE"}
    assert not warnings


@pytest.mark.parametrize(
    ("provider", "key", "kind"),
    [
        ("{type: aws, region: us-west-2}", "InstanceType", "m5.large"),
        ("{type: gcp, region: us-west1}", "machineType", "n1-standard-2"),
    ],
)
def test_the_shortest_files_of_clouds(provider: str, key: str, kind: str) -> None:
    spec, warnings = read(f"cluster_name: minimal\nprovider: {provider}\n")
    assert not warnings
    assert spec.head_node_type == "head"
    assert spec.available_node_types["head"].node_config == {key: kind}
    worker = spec.available_node_types["worker"]
    assert (worker.node_config, worker.spot, worker_limit(spec, "worker")) == ({key: kind}, True, 2)


def test_the_form_of_before_there_were_node_types() -> None:
    spec, _ = read(
        "cluster_name: old\nmin_workers: 1\nmax_workers: 3\nprovider: {type: aws, region: r}\n"
        "head_node: {InstanceType: m5.large, ImageId: ami-1}\n"
        "worker_nodes: {InstanceType: p3.2xlarge, resources: {GPU: 1}}\n"
    )
    head, worker = (spec.available_node_types[name] for name in ("head", "worker"))
    assert head.node_config == {"InstanceType": "m5.large", "ImageId": "ami-1"}
    assert (worker.node_config, worker.resources) == ({"InstanceType": "p3.2xlarge"}, {"GPU": 1.0})
    assert (worker.min_workers, worker.max_workers, worker.spot) == (1, 3, False)
    half, _ = read(
        "cluster_name: old\nprovider: {type: aws, region: r}\nhead_node: {InstanceType: c5.large}\nworker_nodes: {}\n"
    )
    assert half.available_node_types["head"].node_config == {"InstanceType": "c5.large"}
    assert half.available_node_types["worker"].node_config == {"InstanceType": "m5.large"}
    _, warnings = read(AWS + "worker_nodes: {InstanceType: x}\nmin_workers: 1\n")
    assert "worker_nodes: not used" in warnings[-2]
    assert "min_workers: not used" in warnings[-1]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("    use_internal_ips: false", "    aws_credentials: {a: b}", "AWS_PROFILE"),
        ("    use_internal_ips: false", "    module: a.b", "f:8:5: provider.module: not supported"),
        ("    ssh_user: ubuntu", "    ssh_proxy_use_node_id: true", "auth.ssh_proxy_use_node_id"),
        ("max_workers: 2", "target_utilization_fraction: 0.8", "upscaling_speed"),
        ("max_workers: 2", "min_worker: 2", "unknown key 'min_worker'"),
    ],
)
def test_what_cannot_be_honoured_is_named_by_line(old: str, new: str, words: str) -> None:
    (line,) = problems(AWS.replace(old, new, 1))
    assert words in line


def test_what_changes_no_result_is_a_warning() -> None:
    old, new = "    use_internal_ips: false", "    cloudwatch: {agent: {config: x}}"
    _, before = read(AWS)
    _, warnings = read(AWS.replace(old, new))
    (line,) = set(warnings) - set(before)
    assert line.startswith("f:8:5: provider.cloudwatch: not used: `setup_commands`")


@pytest.mark.parametrize(
    ("provider", "name", "other"),
    [
        ("{type: aws, region: r}", "ray.head.default", "ray_head_default"),
        ("{type: gcp, region: r}", "ray_head_default", "ray.head.default"),
    ],
)
def test_the_head_has_the_node_type_that_rays_defaults_name(provider: str, name: str, other: str) -> None:
    text = f"cluster_name: c\nprovider: {provider}\navailable_node_types: {{{name}: {{}}, w: {{}}}}\n"
    spec, warnings = read(text)
    assert not warnings
    assert spec.head_node_type == name
    assert [worker_limit(spec, kind) for kind in (name, "w")] == [0, 2]
    assert cluster_limit(spec) == 2
    spec, _ = read(f"{text}max_workers: 5\nhead_node_type: w\n")
    assert (spec.head_node_type, cluster_limit(spec)) == ("w", 5)
    spec, _ = read(f"{text}max_workers: 0\n")
    assert (spec.head_node_type, cluster_limit(spec)) == (name, 0)
    (line,) = problems(text.replace(name, other))
    assert "head_node_type" in line


def test_what_asks_for_nothing_is_no_problem() -> None:
    harmless = "    use_internal_ips: false\n    cloudwatch: {}\n    use_external_head_ip: False\n    aws_credentials:"
    load_text(AWS.replace("    use_internal_ips: false", harmless), "f", {})


def test_gcp_alone() -> None:
    (line,) = problems(GCP.replace("project_id: null", "gcp_credentials: {type: credentials_token}"))
    assert "GOOGLE_APPLICATION_CREDENTIALS" in line
    (line,) = problems(GCP.replace("machineType: n1-standard-2", "acceleratorType: v2-8", 1))
    assert "f:8:13: available_node_types.ray_head_default.node_config.acceleratorType" in line


def test_ones_own_machines() -> None:
    found = problems("cluster_name: c\nprovider: {type: local, coordinator_address: 'h:1'}\n")
    assert any("f:2:25: provider.coordinator_address: not supported" in line for line in found)
    own = (
        "cluster_name: c\nprovider: {type: local, head_ip: h1, worker_ips: [h2], external_head_ip: 1.2.3.4}\n"
    )
    (line,) = problems(own)
    assert "ssh_proxy_jump" in line


FULL = """\
docker:
    image: "rayproject/ray:latest"
    container_name: "ray_container"
    pull_before_run: True
    run_options:
        - --ulimit nofile=65536:65536
    head_image: "rayproject/ray:latest-cpu"
    worker_image: "rayproject/ray:latest-gpu"
    worker_run_options: []
    disable_automatic_runtime_detection: False
    disable_shm_size_detection: False
    use_podman: False
file_mounts: {"/path1/on/remote/machine": "/path1/on/local/machine"}
cluster_synced_files: []
file_mounts_sync_continuously: False
rsync_exclude: ["**/.git", "**/.git/**"]
rsync_filter: [".gitignore"]
initialization_commands: ["sudo usermod -aG docker $USER"]
head_setup_commands: []
worker_setup_commands: []
"""
OWN = """\
cluster_name: default
provider: {type: local, head_ip: 10.0.0.1, worker_ips: [10.0.0.2, 10.0.0.3], use_external_head_ip: false}
auth:
    ssh_user: ubuntu
    ssh_private_key: ~/.ssh/id_rsa
    ssh_proxy_command: "ssh -W %h:%p gate"
    ssh_proxy_use_node_id: false
min_workers: 2
max_workers: 2
upscaling_speed: 1.0
idle_timeout_minutes: 5
"""


@pytest.mark.parametrize("text", [AWS, GCP, OWN], ids=["aws", "gcp", "own"])
def test_full_files_with_containers(text: str) -> None:
    spec, _ = read(text + FULL)
    assert spec.docker is not None
    assert spec.docker.worker_image == "rayproject/ray:latest-gpu"
    ray, warnings = read(text + FULL + "runtime: {kind: ray}\n")
    assert ray.docker == spec.docker
    assert not any("installs Ray" in warning or "not used: --" in warning for warning in warnings)


def test_workers_that_can_never_come_are_named() -> None:
    _, warnings = read(GCP.replace("max_workers: 2\n", ""))
    assert len(warnings) == 1
    assert "available_node_types.ray_worker_small: it never grows beyond its min_workers" in warnings[0]


def test_problems_and_warnings_come_together() -> None:
    spec, found = read_text(AWS.replace("max_workers: 2", "max_worker: 2"), {})
    assert spec is None
    assert [problem.is_fatal for problem in found][:2] == [True, False]
