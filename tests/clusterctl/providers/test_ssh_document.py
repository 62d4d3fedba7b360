"""Specs of one's own machines: Ray's form, and what may be left out."""

from __future__ import annotations

import pytest

from clusterctl.providers.ssh.config import SshProvider
from clusterctl.spec.load import cluster_limit, load_text, read_text

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


@pytest.mark.parametrize(
    ("provider", "column", "message"),
    [
        ("head: '', workers: [a]", 29, "'' is not a machine: write HOST, HOST:PORT or USER@HOST"),
        ("head: 'h:', workers: [a]", 29, "'h:' is not a machine"),
        ("head: 'h:99999', workers: [a]", 29, "'h:99999' is not a machine"),
        ("head: h, workers: [a b]", 42, "'a b' is not a machine"),
        ("head: h, workers: [a, b, x@a:22]", 48, "'x@a:22' is given twice: it is a worker already"),
        ("head: h, workers: ['h:22']", 42, "'h:22' is given twice: it is the head already"),
    ],
)
def test_each_machine_is_one_and_is_named_once(provider: str, column: int, message: str) -> None:
    _, problems = read_text(f"cluster_name: c\nprovider: {{type: ssh, {provider}}}\n", {})
    assert [(p.line, p.column) for p in problems] == [(2, column)]
    assert message in problems[0].message


def test_a_way_through_other_machines_names_machines() -> None:
    text = "cluster_name: c\nprovider: {type: ssh, head: h}\nauth: {ssh_proxy_jump: 'u@a, b:x'}\n"
    _, problems = read_text(text, {})
    assert [(p.line, p.path) for p in problems] == [(3, ("auth", "ssh_proxy_jump"))]


def test_more_workers_than_machines_are_named() -> None:
    text = OURS + "max_workers: 9\nhead_node_type: a\navailable_node_types: {a: {}, b: {min_workers: 9}}\n"
    _, problems = read_text(text, {"WORKER": "h3"})
    assert ["above the machines for workers" in p.message for p in problems] == [True]


@pytest.mark.parametrize("provider", ["worker_ips: [a]", "head_ip: , worker_ips: [a]"])
def test_rays_form_without_a_head(provider: str) -> None:
    _, problems = read_text(f"cluster_name: c\nprovider: {{type: local, {provider}}}\n", {})
    assert [(p.line, p.message) for p in problems] == [(2, "the key 'head_ip' is missing")]


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("elsewhere", "'elsewhere' is none of provider.workers"),
        ("h1", "'h1' is none of provider.workers"),
        ("'op@h2'", "'op@h2' is none of provider.workers"),
        ("''", "'' is not a machine"),
    ],
)
def test_the_machines_of_a_type_are_workers(host: str, message: str) -> None:
    types = f"available_node_types:\n  a: {{}}\n  b: {{max_workers: 1, node_config: {{hosts: ['h2:2222', {host}]}}}}\n"
    _, problems = read_text(f"{OURS}head_node_type: a\n{types}", {"WORKER": "h3"})
    assert [(p.line, p.path[-1]) for p in problems] == [(6, 1)]
    assert message in problems[0].message


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ("", ["provider"]),
        ("available_node_types: {a: {}}\nhead_node_type: a\n", ["provider"]),
        ("head_node_type: a\n", ["provider"]),
        ("available_node_types: {a: {}}\n", ["head_node_type", "provider"]),
    ],
)
def test_of_a_spec_without_a_provider_only_what_is_missing_is_said(given: str, missing: list[str]) -> None:
    _, problems = read_text(f"cluster_name: c\n{given}", {})
    assert sorted(p.message for p in problems) == [f"the key '{name}' is missing" for name in missing]
