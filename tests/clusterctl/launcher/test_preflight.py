"""What would keep a spec from working, found before anything is made."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import pytest

from autoscaler.provider import ON_DEMAND, Capabilities, NodeType, Offer, Problem
from autoscaler.simulation import SimulatedProvider
from clusterctl.artefacts.target import NoRuntime, Target
from clusterctl.launcher.costs import costs, estimate
from clusterctl.launcher.node_types import node_types
from clusterctl.launcher.preflight import problems, unlike, unoffered
from clusterctl.providers.local.provider import LocalMachines
from clusterctl.providers.ownership import Owner
from clusterctl.spec.load import load_text

TEXT = """
cluster_name: c
provider: {type: local}
head_node_type: head
budgets: {max_hourly_price: 1}
available_node_types: {head: {}, cpu: {min_workers: 1, max_workers: 2}}
"""


def test_files_that_are_missing_here_are_found_offline_too(tmp_path: pathlib.Path) -> None:
    spec = load_text(TEXT + f"file_mounts: {{/a: {tmp_path}/none, /b: {tmp_path}}}\n")
    for offline in (True, False):
        found = problems(spec, LocalMachines("c", Owner("owner")), node_types(spec, {}), fetched, offline)
        assert [problem.what for problem in found] == [f"file_mounts /a: there is no {tmp_path}/none"]
        assert found[0].fatal


def test_a_type_that_nobody_offers_is_fatal_where_it_is_needed_from_the_start() -> None:
    kinds = [NodeType("head"), NodeType("cpu", min_workers=1, max_workers=1), NodeType("gpu", max_workers=1)]
    found = unoffered(costs(kinds, "head", 2, None, {"head": [Offer("a", ON_DEMAND, 1.0)]}))
    assert [("'cpu'" in problem.what, problem.fatal) for problem in found] == [(True, True), (False, False)]


def test_prices_come_from_the_providers_offers_and_the_specs_limits() -> None:
    spec = load_text(TEXT)
    offers = {"head": (Offer("a", ON_DEMAND, 0.5),), "cpu": (Offer("a", ON_DEMAND, 2.0),)}
    found = estimate(spec, SimulatedProvider("id", offers=offers), node_types(spec, {}))
    assert (found.now, found.most) == (2.5, 2.5), (
        "the budget allows no second worker, and not less than the first"
    )
    assert estimate(spec, SimulatedProvider("id"), node_types(spec, {})).is_free


def test_a_problem_reads_as_what_it_is_and_what_to_do() -> None:
    assert str(Problem("the disk is full", "Make room.")) == "the disk is full. Make room."
    assert str(Problem("changed", "")) == "changed"


CLOUDS = """
cluster_name: c
provider: {{type: {provider}}}
head_node_type: head
available_node_types:
  head: {{node_config: {{{key}: {head}}}}}
  arm: {{max_workers: 1, node_config: {{{key}: {arm}}}}}
  unused: {{max_workers: 0, node_config: {{{key}: {arm}}}}}
"""
AWS = {"provider": "aws, region: eu-west-1", "key": "InstanceType", "head": "m5.large", "arm": "m7g.large"}
GCP = {
    "provider": "gcp, project_id: p, region: europe-west1",
    "key": "machineType",
    "head": "n1-standard-2",
    "arm": "t2a-standard-2",
}


@pytest.mark.parametrize("names", [AWS, GCP], ids=["aws", "gcp"])
def test_machines_of_another_architecture_than_the_heads_are_refused_before_money(
    names: dict[str, str],
) -> None:
    spec = load_text(CLOUDS.format(**names))
    [problem] = unlike(spec, node_types(spec, {}), {})
    assert problem.fatal
    assert f"type arm: its machines ({names['arm']}) have a CPU of kind aarch64" in problem.what
    assert "the head's x86_64" in problem.what
    alike = load_text(CLOUDS.format(**names | {"head": names["arm"]}))
    assert unlike(alike, node_types(alike, {}), {}) == []


def test_machines_with_another_python_than_the_heads_are_refused_before_money() -> None:
    spec = load_text(CLOUDS.format(**AWS | {"arm": "m5.large"}))
    known = {"head": Target((3, 12), "x86_64"), "arm": Target((3, 13), "x86_64")}
    [problem] = unlike(spec, node_types(spec, {}), known)
    assert "type arm: its machines have Python 3.13, the head's 3.12" in problem.what


class Shipping(SimulatedProvider):
    """A platform whose machines get the runtime from us."""

    head_extras = ()

    def targets(self, kinds: Sequence[NodeType]) -> dict[str, Target]:
        return {kind.name: Target((3, 99), "x86_64") for kind in kinds}

    def check(self, kinds: Sequence[NodeType]) -> list[Problem]:
        return []

    check_offline = check


class Joining(Shipping):
    """A platform whose workers join by themselves."""

    head_extras = None  # type: ignore[assignment]

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(machines_join=True)


def test_what_is_not_done_on_workers_that_join_by_themselves_is_said() -> None:
    spec = load_text(TEXT + "setup_commands: ['true']\nhead_setup_commands: ['true']\n")
    found = problems(spec, Joining("id"), node_types(spec, {}), lambda target: None)
    assert [(problem.what.partition(" ")[0], problem.fatal) for problem in found] == [
        ("setup_commands", False)
    ]
    assert problems(load_text(TEXT), Joining("id"), node_types(spec, {}), lambda target: None) == []


def test_a_runtime_that_is_not_to_be_had_is_a_problem_before_money() -> None:
    asked: list[Target] = []

    def obtain(target: Target) -> None:
        asked.append(target)
        raise NoRuntime("the package index cannot be reached", "Connect.")

    spec = load_text(TEXT)
    kinds = node_types(spec, {})
    assert problems(spec, Shipping("id"), kinds, obtain, offline=True) == []
    [problem] = problems(spec, Shipping("id"), kinds, obtain)
    assert (problem.what, problem.advice, problem.fatal) == (
        "the package index cannot be reached",
        "Connect.",
        True,
    )
    assert asked == [Target((3, 99), "x86_64")]
    alike = CLOUDS.format(**AWS | {"arm": "m5.large"})
    for other in (
        "docker: {image: i}\n",
        "runtime: {kind: ray}\n",
    ):  # an image has its own Python, Ray is not shipped
        assert problems(load_text(alike + other), Shipping("id"), kinds, obtain) == []


def fetched(target: Target) -> None:
    """Every runtime is to be had."""
