"""Which container a node gets, and what its commands say."""

from __future__ import annotations

import shlex

import pytest

from clusterctl.launcher import setup
from clusterctl.launcher.containers import Container, container_of
from clusterctl.launcher.node_look import Found
from clusterctl.launcher.node_types import head_change, worker_hash
from clusterctl.launcher.plan import Change
from clusterctl.launcher.runtimes import engine_nodes
from clusterctl.providers.ssh.checks import Examined, problems_of
from clusterctl.providers.ssh.claim import Facts
from clusterctl.spec.docker import all_in_containers
from clusterctl.spec.load import load_text

FACTS = Facts("h", "1.2.3.4", "/home/op", "1000", "/bin", 1.0, 1.0, None)
OWN = "cluster_name: c\nprovider: {type: ssh, head: h, workers: [w]}\n"
TYPES = "head_node_type: head\navailable_node_types: {head: {}, w: {max_workers: 1, docker: {DOCKER}}}\n"


@pytest.mark.parametrize(
    ("docker", "of_type", "head", "worker"),
    [
        ("image: i", "", "i", "i"),
        ("image: i, head_image: h", "", "h", "i"),
        ("worker_image: w", "", "", "w"),
        ("image: i, worker_image: w", "image: own", "i", "own"),
        ("image: i", "worker_image: own", "i", "own"),
    ],
)
def test_images_by_role_and_type(docker: str, of_type: str, head: str, worker: str) -> None:
    types = TYPES.replace("DOCKER", of_type)
    spec = load_text(f"{OWN}{types}docker: {{{docker}}}\n")
    found = [container_of(spec, "head", True), container_of(spec, "w", False)]
    assert [one.image if one else "" for one in found] == [head, worker]


def test_where_all_nodes_are_in_containers_the_machines_may_have_any_python() -> None:
    old = Examined(FACTS, "3.9", "cpython-39-x86_64-linux-gnu", "glibc-2.36", 2**40)

    def nobody(claim: object) -> bool:
        return False

    assert problems_of({"h": old}, "h", "python3", nobody, any_python=True) == []
    assert "has Python 3.9" in problems_of({"h": old}, "h", "python3", nobody)[0].what
    for docker, all_are in (
        ("image: i", True),
        ("head_image: i", False),
        ("head_image: i, worker_image: w", True),
    ):
        assert all_in_containers(load_text(f"{OWN}docker: {{{docker}}}\n")) is all_are


def test_options_by_role() -> None:
    text = f"{OWN}docker: {{image: i, run_options: [-a], head_run_options: [-h], worker_run_options: [-w]}}\n"
    spec = load_text(text)
    head, worker = container_of(spec, "head", True), container_of(spec, "worker", False)
    assert head is not None
    assert worker is not None
    assert (head.options, worker.options) == (("-a", "-h"), ("-a", "-w"))
    assert head.digest != worker.digest


def test_the_order_of_steps() -> None:
    spec = load_text(f"{OWN}docker: {{image: img}}\ninitialization_commands: [i]\nsetup_commands: [s]\n")
    facts = engine_nodes.head_facts(spec, "/secret", "/config", "1.2.3.4")
    before = setup.steps_before(facts)
    assert all(step.on_machine for step in before)
    assert [step.name for step in before] == [
        "container engine",
        "initialization_commands[0]",
        "pull img",
        "container clusterctl",
    ]
    assert not any(step.on_machine for step in setup.steps(facts, Found()))
    asked = setup.question(facts)
    assert asked is not None
    assert asked.who == "the image img"


def test_shared_memory_is_sized_unless_the_options_say_so() -> None:
    assert "MemTotal" in Container("i", "n").run()
    assert "MemTotal" not in Container("i", "n", ("--shm-size=1g",)).run()
    assert "MemTotal" not in Container("i", "n", sizes_shm=False).run()


def test_podman_alone_where_it_is_wanted() -> None:
    tries = Container("i", "n", only_podman=True).engine().splitlines()[0]
    assert shlex.split(tries.partition(" in ")[2].removesuffix("; do")) == ["podman", "sudo -n -E podman"]


def test_another_image_makes_other_nodes() -> None:
    one, two = (load_text(f"{OWN}docker: {{head_image: a, worker_image: {image}}}\n") for image in "bc")
    assert head_change(one, two) is Change.NOTHING
    assert worker_hash(one, "worker") != worker_hash(two, "worker")
    assert head_change(one, load_text(f"{OWN}docker: {{image: x}}\n")) is Change.MACHINE


def test_a_container_in_which_something_runs_is_kept() -> None:
    spec = load_text(f"{OWN}docker: {{image: i}}\n")
    facts = setup.without_start(engine_nodes.head_facts(spec, "/secret", "/config", "1.2.3.4"))
    assert not any(step.name.startswith("pull") for step in setup.steps_before(facts))
    assert facts.container is not None
    assert facts.container.keeps
