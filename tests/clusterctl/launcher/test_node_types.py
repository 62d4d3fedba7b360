"""Node types and hashes from a spec."""

from __future__ import annotations

import pytest

from clusterctl.launcher.node_types import autoscaler_config, head_hash, head_type, worker_hash
from clusterctl.spec.load import load_text

TEXT = """\
cluster_name: c
provider: {type: local}
head_node_type: head
idle_timeout_minutes: 2
available_node_types:
  head: {resources: {CPU: 1}}
  w: {resources: {CPU: 2}, min_workers: 1, max_workers: 3}
"""
DEFAULTS = {"CPU": 8.0, "memory": 100.0}


def test_what_a_type_leaves_out_comes_from_the_machine() -> None:
    assert head_type(load_text(TEXT), DEFAULTS).resources == {"CPU": 1.0, "memory": 100.0}


def test_the_autoscaler_is_told_everything() -> None:
    config = autoscaler_config(load_text(TEXT), "id", DEFAULTS, "/logs")
    assert (config.head_type, config.max_workers, config.idle_timeout_s) == ("head", 3, 120.0)
    assert {kind.name: (kind.min_workers, kind.max_workers) for kind in config.node_types} == {
        "head": (0, 0),
        "w": (1, 3),
    }
    assert config.log_dir == "/logs"


@pytest.mark.parametrize(
    ("old", "new", "head_changes", "worker_changes"),
    [
        ("min_workers: 1", "min_workers: 2", False, False),
        ("max_workers: 3", "max_workers: 9", False, False),
        ("minutes: 2", "minutes: 3", False, False),
        ("head: {resources: {CPU: 1}}", "head: {resources: {CPU: 4}}", True, False),
        ("CPU: 2", "CPU: 3", False, True),
        ("cluster_name: c", "cluster_name: c\nsetup_commands: [x]", True, True),
        ("cluster_name: c", "cluster_name: c\nworker_setup_commands: [x]", False, True),
        ("cluster_name: c", "cluster_name: c\nhead_setup_commands: [x]", True, False),
        ("cluster_name: c", "cluster_name: c\nports: {api: 7}", True, False),
    ],
)
def test_hashes_change_with_what_makes_a_node(
    old: str, new: str, head_changes: bool, worker_changes: bool
) -> None:
    before, after = load_text(TEXT), load_text(TEXT.replace(old, new, 1))
    assert (head_hash(before) != head_hash(after)) is head_changes
    assert (worker_hash(before, "w") != worker_hash(after, "w")) is worker_changes
