"""Cluster YAMLs in Ray's words."""

from __future__ import annotations

import pytest

from clusterctl.spec.load import load_text
from clusterctl.spec.ray_yaml import parse_start

RAY = """\
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


def test_a_ray_yaml_loads_as_it_is() -> None:
    spec = load_text(RAY)
    assert parse_start(spec.head_start_ray_commands).control_port == 6379
    assert parse_start(spec.head_start_ray_commands).commands == []
    assert parse_start(spec.worker_start_ray_commands).commands == []


@pytest.mark.parametrize(
    ("commands", "kept", "port", "resources"),
    [
        ([], [], 0, {}),
        (["ray stop"], [], 0, {}),
        (["ray start --head --port 7000 --num-cpus=3"], [], 7000, {"CPU": 3.0}),
        (["echo a; ray start --num-gpus 1", "echo b"], ["echo a", "echo b"], 0, {"GPU": 1.0}),
        (["""ray start --resources='{"x": 2}'"""], [], 0, {"x": 2.0}),
        (["ray start --head --block && echo late"], ["echo late"], 0, {}),
        (
            ["ray start --memory=100 --object-store-memory=50"],
            [],
            0,
            {"memory": 100.0, "object_store_memory": 50.0},
        ),
    ],
)
def test_start_commands(commands: list[str], kept: list[str], port: int, resources: dict[str, float]) -> None:
    start = parse_start(commands)
    assert (start.commands, start.control_port, start.resources) == (kept, port, resources)


@pytest.mark.parametrize(
    "command", ["ray start --port=x", "ray start --resources=[1]", "ray start --num-cpus=many"]
)
def test_unusable_options(command: str) -> None:
    with pytest.raises(ValueError, match="ray start"):
        parse_start([command])
