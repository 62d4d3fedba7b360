"""Which machines `down` ends."""

from __future__ import annotations

from autoscaler.provider import Machine, MachineState, MachineTags
from clusterctl.launcher.down import without_minimum, workers_to_end
from clusterctl.spec.load import load_text

SPEC = load_text(
    "cluster_name: c\nprovider: {type: local}\nhead_node_type: head\n"
    "available_node_types: {head: {}, a: {min_workers: 2, max_workers: 3}}\n"
)


def machine(name: str, kind: str, launched_s: float, role: str = MachineTags.WORKER) -> Machine:
    tags = {MachineTags.ROLE: role}
    return Machine(name, MachineState.RUNNING, kind, tags, launched_s=launched_s)


LISTED = [
    machine("h", "head", 0.0, MachineTags.HEAD),
    machine("a3", "a", 3.0),
    machine("a1", "a", 1.0),
    machine("a2", "a", 2.0),
    machine("b1", "b", 1.0),
]


def test_the_head_is_no_worker() -> None:
    assert workers_to_end(LISTED, {}) == ["a1", "b1", "a2", "a3"]


def test_of_each_type_the_longest_lived_are_kept() -> None:
    assert workers_to_end(LISTED, {"a": 2}) == ["b1", "a3"]
    assert workers_to_end(LISTED, {"a": 9, "b": 1}) == []


def test_a_spec_without_minimum_keeps_all_limits() -> None:
    less = without_minimum(SPEC)
    assert [kind.min_workers for kind in less.available_node_types.values()] == [0, 0]
    assert less.available_node_types["a"].max_workers == 3
