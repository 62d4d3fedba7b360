"""Node types and hashes from a spec."""

from __future__ import annotations

import re

import pytest

from autoscaler.config import AutoscalerConfig, Budgets, Cause, Consolidation
from clusterctl.errors import SpecError
from clusterctl.launcher.node_types import autoscaler_config, head_change, head_hash, head_type, worker_hash
from clusterctl.launcher.plan import Change
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
    assert (config.budgets, config.consolidation) == (Budgets(), None)


def test_budgets_and_consolidation_reach_the_autoscaler() -> None:
    text = """
budgets:
  max_hourly_price: 12.5
  max_disrupted: 4
  max_disrupted_by: {idle: 3, consolidation: 1}
consolidation: {after_minutes: 2}
"""
    config = autoscaler_config(load_text(TEXT + text), "id", DEFAULTS, "/logs")
    by_cause = {Cause.IDLE: 3, Cause.CONSOLIDATION: 1}
    assert config.budgets == Budgets(max_hourly_price=12.5, max_disrupted=4, max_disrupted_by=by_cause)
    assert config.consolidation == Consolidation(after_s=120.0, max_used=0.5)
    assert autoscaler_config(load_text(TEXT + "consolidation:\n"), "id", {}, "").consolidation is None
    assert AutoscalerConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("consolidation: {after: 2}", "9:17: consolidation.after: unknown key 'after'"),
        ("consolidation: {max_used: 1.5}", "9:27: consolidation.max_used: expected a number, at most 1"),
        ("consolidation: true", "9:16: consolidation: expected a mapping"),
        ("budgets: {max_disrupted_by: {idel: 1}}", "did you mean 'idle'?"),
        ("budgets: {max_disrupted: -1}", "budgets.max_disrupted: expected a whole number, at least 0"),
        ("max_disrupted: 1", "misplaced key 'max_disrupted'; it belongs in budgets"),
    ],
)
def test_mistakes_in_them_are_pointed_at(text: str, problem: str) -> None:
    with pytest.raises(SpecError, match=re.escape(problem)):
        load_text(TEXT + "\n" + text + "\n")


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


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("min_workers: 1", "min_workers: 2", Change.NOTHING),
        ("cluster_name: c", "cluster_name: c\nworker_setup_commands: [x]", Change.NOTHING),
        ("cluster_name: c", "cluster_name: c\nsetup_commands: [x]", Change.SETUP),
        ("cluster_name: c", "cluster_name: c\nfile_mounts: {/a: b}", Change.SETUP),
        ("cluster_name: c", "cluster_name: c\nports: {api: 7}\nsetup_commands: [x]", Change.RESTART),
        ("head: {resources: {CPU: 1}}", "head: {resources: {CPU: 4}}", Change.RESTART),
        ("head: {resources: {CPU: 1}}", "head: {node_config: {capacity: 4}}", Change.MACHINE),
        ("provider: {type: local}", "provider: {type: local, root: /tmp/elsewhere}", Change.MACHINE),
    ],
)
def test_what_a_change_means_for_the_head(old: str, new: str, change: Change) -> None:
    before, after = load_text(TEXT), load_text(TEXT.replace(old, new, 1))
    assert before != after
    assert head_change(before, after) is change
    assert head_change(before, before) is Change.NOTHING


def test_other_machines_of_ones_own_change_no_node() -> None:
    own = "cluster_name: c\nprovider: {type: ssh, head: h1, workers: [h2, h3]}\n"
    one, two = load_text(own), load_text(own.replace("h3", "h4"))
    assert head_hash(one) == head_hash(two)
    assert worker_hash(one, "worker") == worker_hash(two, "worker")
    moved = load_text(own.replace("h1", "h9"))
    assert head_hash(one) != head_hash(moved)
