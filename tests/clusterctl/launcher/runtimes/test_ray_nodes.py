"""Nodes of Ray itself: how they are set up, and how many there have to be."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from dataclasses import replace

import pytest

from autoscaler.provider import Machine, MachineState, MachineTags
from clusterctl.launcher import node_types, setup
from clusterctl.launcher.node_look import Found
from clusterctl.launcher.runtimes import ray_nodes
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.load import cluster_limit, load_text, read_text
from clusterctl.sync.transfer import Mount

TEXT = """\
cluster_name: c
provider: {type: aws, region: r}
runtime: {kind: ray, version: 2.60.0}
head_node_type: head
available_node_types:
  head: {node_config: {InstanceType: m5.large}}
  w: {min_workers: 2, resources: {CPU: 4, GPU: 1}, labels: {team: a}}
setup_commands: [s]
head_setup_commands: [h]
worker_setup_commands: [w]
"""
HEAD = Machine("m0", MachineState.RUNNING, "head", {MachineTags.ROLE: MachineTags.HEAD}, "10.0.0.1")
START = 'ray start --temp-dir="$CLUSTERCTL_SESSION_DIR/ray"'
OWN = """\
head_start_ray_commands:
  - ray stop
  - ray start --head --port=7000 --dashboard-port 9000 --autoscaling-config=~/ray_bootstrap_config.yaml
worker_start_ray_commands: ['ray start --address=$RAY_HEAD_IP:7000']
"""


def spec(text: str = TEXT) -> ClusterSpec:
    return load_text(text, environ={})


def commands(facts: setup.NodeFacts) -> dict[str, str]:
    return {step.name: step.command for step in (*setup.steps_before(facts), *setup.steps(facts, Found()))}


def head(text: str = TEXT) -> setup.NodeFacts:
    kind = node_types.head_type(spec(text), {})
    return ray_nodes.head_facts(spec(text), HEAD, kind, "token")


def worker(text: str = TEXT) -> setup.NodeFacts:
    machine = Machine("m1", MachineState.RUNNING, "w", {}, "10.0.0.2", zone="z", market="spot")
    kind = next(kind for kind in node_types.node_types(spec(text), {}) if kind.name == "w")
    return ray_nodes.worker_facts(spec(text), machine, "10.0.0.1", kind, "token")


def test_the_head() -> None:
    found = commands(head())
    assert list(found) == [
        "install Ray",
        "setup_commands[0]",
        "head_setup_commands[0]",
        "start_commands[0]",
        "start_commands[1]",
        "start_commands[2]",
        "start",
    ]
    assert "'ray[default]==2.60.0'" in found["install Ray"]
    assert (
        f"{START} --head --port=6379 --dashboard-port=8265 --node-ip-address=10.0.0.1"
        in found["start_commands[1]"]
    )
    assert found["start_commands[2]"] == "ray health-check --address 10.0.0.1:6379"
    assert head().env["RAY_AUTH_TOKEN"] == "token"
    assert "RAY_OVERRIDE_RESOURCES" not in head().env


def test_a_worker() -> None:
    facts = worker()
    assert '--address="$RAY_HEAD_IP:6379"' in commands(facts)["start_commands[1]"]
    assert facts.env["RAY_HEAD_IP"] == "10.0.0.1"
    assert json.loads(facts.env["RAY_OVERRIDE_RESOURCES"]) == {"CPU": 4.0, "GPU": 1.0}
    assert "lease" not in commands(facts)
    labels = json.loads(facts.env["RAY_OVERRIDE_LABELS"])
    assert (labels["team"], labels["ray.io/node-group"], labels["ray.io/market-type"]) == ("a", "w", "spot")


def test_a_worker_that_costs_holds_a_lease() -> None:
    assert "echo 10.0.0.1:6379 >" in commands(replace(worker(), is_cloud=True))["lease"]


def test_the_specs_own_start_commands_are_used_as_they_are() -> None:
    found = commands(head(TEXT + OWN))
    assert found["start_commands[0]"].endswith("\nray stop")
    assert found["start_commands[1]"].endswith(f"\n{START} --head --port=7000 --dashboard-port 9000")
    assert found["start_commands[2]"] == "ray health-check --address 10.0.0.1:7000"
    started = commands(worker(TEXT + OWN))["start_commands[0]"]
    assert started.endswith(f"\n{START} --address=$RAY_HEAD_IP:7000")
    assert ray_nodes.environment(spec(TEXT + OWN), "h", "t") == {
        "RAY_ADDRESS": "h:7000",
        "RAY_API_SERVER_ADDRESS": "http://127.0.0.1:9000",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "t",
    }


def test_an_image_is_taken_for_one_with_ray() -> None:
    boxed = TEXT.replace(", version: 2.60.0", "") + "docker: {image: rayproject/ray, container_name: box}\n"
    facts = head(boxed)
    assert facts.container is not None
    assert "command -v python" in commands(facts)["find Ray"]
    assert "install Ray" in commands(head(boxed.replace("kind: ray", "kind: ray, version: 2.60.0")))


def test_where_ray_comes_from(tmp_path: pathlib.Path) -> None:
    newest = commands(head(TEXT.replace(", version: 2.60.0", "")))["install Ray"]
    assert newest.count("'ray[default]'") == 1
    wheels = setup.steps(head(TEXT.replace("2.60.0", "2.60.0, wheelhouse: /w")), Found())
    assert [(step.name, step.mounts) for step in wheels][:2] == [
        ("copy Ray's wheels", (Mount("~/.clusterctl-node/wheels", "/w"),)),
        ("install Ray", ()),
    ]
    assert "--no-index --find-links wheels" in wheels[1].command
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    find = commands(head(TEXT.replace("version: 2.60.0", f"python: {python}")))["find Ray"]
    home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(
        ["sh", "-c", find], env=home, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 1
    assert f"there is no Ray in {python}: name another runtime.python, or a version" in ran.stdout


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("{type: aws, region: r}", "{type: local}", "runtime.kind: Ray cannot run on local machines"),
        ("version: 2.60.0", "version: 2.60.0, python: /p", "with runtime.python nothing is installed"),
        (
            "setup_commands: [s]",
            "cluster_synced_files: [f]",
            "cluster_synced_files: a cluster that runs Ray itself has no process",
        ),
        (
            "setup_commands: [s]",
            "autostop: {idle_minutes: 5}",
            "autostop: Ray has no head of ours",
        ),
        (
            "kind: ray",
            "kind: rays",
            "runtime kind 'rays' is not available in this version; available: engine, ray",
        ),
    ],
)
def test_what_cannot_be(old: str, new: str, words: str) -> None:
    _, problems = read_text(TEXT.replace(old, new), {})
    assert any(words in problem.render("f") for problem in problems if problem.is_fatal)


def test_that_nothing_scales_it_is_said() -> None:
    found, (warning,) = read_text(TEXT.replace("min_workers: 2", "min_workers: 2, max_workers: 5"), {})
    assert found is not None
    assert "nothing scales a cluster that runs Ray itself: there are always min_workers, 2" in warning.message
    assert cluster_limit(found) == 2


def test_which_workers_are_missing_and_which_are_too_many() -> None:
    def listed(machine_id: str, tag: str, at_s: float, kind: str = "w") -> Machine:
        tags = {MachineTags.CONFIG_HASH: tag}
        return Machine(machine_id, MachineState.RUNNING, kind, tags, launched_s=at_s)

    good = node_types.worker_hash(spec(), "w")
    assert ray_nodes.workers(spec(), [HEAD]).missing == {"w": 2}
    todo = ray_nodes.workers(spec(), [HEAD, listed("a", good, 1.0), listed("b", "old", 0.0)])
    assert (todo.missing, todo.surplus) == ({"w": 1}, ("b",))
    all_good = [listed(name, good, at_s) for name, at_s in (("c", 3.0), ("a", 1.0), ("b", 2.0))]
    todo = ray_nodes.workers(spec(), [*all_good, listed("x", good, 0.0, "gone")])
    assert (todo.missing, todo.surplus) == ({}, ("x", "c"))
    unwanted = replace(all_good[0], id="u", unwanted="removed")
    assert ray_nodes.workers(spec(), [HEAD, unwanted]).surplus == ("u",)


def test_the_nodes_that_live() -> None:
    nodes = [{"node_ip": "a", "state": "ALIVE"}, {"node_ip": "b", "state": "DEAD"}]
    assert ray_nodes.alive({"data": {"result": {"result": nodes}}}) == {"a"}


@pytest.mark.parametrize(("found", "stops"), [(0, True), (1, False), (127, True)])
def test_ray_is_asked_to_stop_only_where_it_runs(tmp_path: pathlib.Path, found: int, stops: bool) -> None:
    """`found`: what pgrep says; 127: there is none."""
    for name, script in {"pgrep": f"exit {found}", "ray": f"echo $@ > {tmp_path}/asked"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    command = commands(worker())["start_commands[0]"]
    subprocess.run(["/bin/bash", "-c", command], env={"PATH": str(tmp_path)}, check=True, timeout=60)
    assert (tmp_path / "asked").exists() == stops
