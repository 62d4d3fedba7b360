"""Specs of one's own machines: Ray's form, and what may be left out."""

from __future__ import annotations

from clusterctl.spec.load import cluster_limit, load_text, read_text
from clusterctl.spec.platforms.ssh import SshProvider

RAYS = """\
cluster_name: default
provider:
  type: local
  head_ip: 10.0.0.1
  worker_ips: [10.0.0.2, 10.0.0.3]
auth: {ssh_user: me, ssh_private_key: ~/.ssh/id_rsa}
min_workers: 1
max_workers: 2
head_start_ray_commands: [ray stop, ray start --head --port=6379]
"""
OURS = "cluster_name: c\nprovider: {type: ssh, head: h1, workers: ['op@h2:2222', '${WORKER}']}\n"


def test_rays_form_is_understood() -> None:
    spec = load_text(RAYS)
    assert spec.provider == SshProvider(head="10.0.0.1", workers=["10.0.0.2", "10.0.0.3"])
    assert spec.head_node_type == "head"
    worker = spec.available_node_types["worker"]
    assert (worker.min_workers, worker.max_workers) == (1, 2)
    assert spec.auth.ssh_user == "me"


def test_node_types_are_implied_by_the_machines() -> None:
    spec, problems = read_text(OURS, {"WORKER": "h3"})
    assert not problems
    assert spec is not None
    assert spec.provider == SshProvider(head="h1", workers=["op@h2:2222", "h3"])
    assert spec.available_node_types["worker"].min_workers == 2
    assert cluster_limit(spec) == 2
    alone = load_text("cluster_name: c\nprovider: {type: ssh, head: h1}\n")
    assert list(alone.available_node_types) == ["head"]


def test_given_node_types_stay() -> None:
    text = (
        OURS
        + "max_workers: 1\nhead_node_type: a\navailable_node_types: {a: {}, b: {node_config: {hosts: [h3]}}}\n"
    )
    spec, problems = read_text(text, {"WORKER": "h3"})
    assert not problems
    assert spec is not None
    assert list(spec.available_node_types) == ["a", "b"]


def test_problems_point_at_what_was_written() -> None:
    _, problems = read_text(RAYS.replace("worker_ips:", "worker_ip:"), {})
    assert [(p.line, p.column) for p in problems] == [(5, 3)]
    assert "unknown key 'worker_ip'" in problems[0].message
    _, problems = read_text(RAYS.replace("min_workers: 1", "min_workers: 7"), {})
    assert [p.line for p in problems] == [7, 8]
    _, problems = read_text("cluster_name: c\nprovider: {type: ssh}\n", {})
    assert [p.message for p in problems] == ["the key 'head' is missing"]
    _, problems = read_text("cluster_name: c\nprovider: {type: local, root: x}\n", {})
    assert {p.message for p in problems} == {
        "the key 'available_node_types' is missing",
        "the key 'head_node_type' is missing",
    }
