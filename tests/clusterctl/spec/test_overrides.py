"""What options of the command line make of a spec."""

from __future__ import annotations

import pytest

from clusterctl.errors import UsageProblem
from clusterctl.spec.load import cluster_limit, load_text, worker_limit
from clusterctl.spec.overrides import renamed, resized

SPEC = load_text(
    """
cluster_name: small
provider: {type: local}
head_node_type: head
available_node_types:
  head: {resources: {CPU: 1}}
  cpu: {resources: {CPU: 4}, min_workers: 2, max_workers: 5}
  gpu: {resources: {CPU: 4, GPU: 1}, max_workers: 3}
"""
)
ONE = load_text(
    """
cluster_name: one
provider: {type: local}
max_workers: 4
head_node_type: head
available_node_types: {head: {}, worker: {}}
"""
)


def test_a_types_limit_changes_the_clusters_where_that_is_the_sum() -> None:
    larger = resized(SPEC, ["cpu=40"])
    assert (worker_limit(larger, "cpu"), cluster_limit(larger)) == (40, 43)
    both = resized(SPEC, ["cpu=40", "10"])
    assert (worker_limit(both, "cpu"), cluster_limit(both)) == (40, 10)
    assert resized(SPEC, []) == SPEC


def test_a_minimum_gives_way_to_its_types_maximum_only() -> None:
    assert resized(SPEC, ["cpu=1"]).available_node_types["cpu"].min_workers == 1
    with pytest.raises(UsageProblem, match="min_workers are 2 together"):
        resized(SPEC, ["1"])


@pytest.mark.parametrize("limit", ["many", "cpu=", "1.5", "cpu=-1", "inf", "tpu=1"])
def test_limits_that_mean_nothing(limit: str) -> None:
    with pytest.raises(UsageProblem, match="--max-workers"):
        resized(SPEC, [limit])


def test_a_minimum_is_of_a_type_and_of_the_only_one_where_none_is_named() -> None:
    assert resized(SPEC, (), ["gpu=3"]).available_node_types["gpu"].min_workers == 3
    assert resized(ONE, (), ["3"]).available_node_types["worker"].min_workers == 3
    assert resized(ONE, ["9"], ["9"]).available_node_types["worker"].min_workers == 9


@pytest.mark.parametrize(
    ("spec", "most", "least", "words"),
    [
        (SPEC, [], ["1"], "which type"),
        (SPEC, [], ["cpu=6"], "--max-workers cpu=6"),
        (ONE, [], ["5"], "--max-workers"),
        (ONE, ["3"], ["worker=4"], "--max-workers"),
        (ONE, [], ["few"], "cannot be read"),
        (SPEC, ["4"], ["gpu=3"], "--max-workers 5"),
        (SPEC, [], ["tpu=3"], "no node type"),
    ],
)
def test_minima_that_contradict_a_limit(spec, most, least, words) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageProblem) as caught:
        resized(spec, most, least)
    assert words in str(caught.value)


def test_another_name() -> None:
    assert renamed(SPEC, "other").cluster_name == "other"
    assert renamed(SPEC, None) is SPEC
    assert renamed(SPEC, "other").available_node_types == SPEC.available_node_types
    with pytest.raises(UsageProblem, match="no name"):
        renamed(SPEC, "not a name")
