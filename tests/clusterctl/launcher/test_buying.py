"""Workers that `up` itself buys, on AWS as `tests.testbed.aws` plays it: nothing is bought twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from autoscaler.provider import LaunchRequest, LaunchResult, Machine
from clusterctl.errors import CliError
from clusterctl.home import ClusterRecord, Home, new_record
from clusterctl.launcher import buying, node_types
from clusterctl.launcher.buying import Buyer
from clusterctl.launcher.runtimes import ray_nodes
from clusterctl.providers import registry
from clusterctl.providers.protocol import OperatorProvider
from clusterctl.spec.load import load_text
from tests.testbed.aws import Aws, Fault, as_a_person

SPEC = """\
cluster_name: rays
provider: {{type: aws, region: us-east-1, availability_zone: "us-east-1a,us-east-1b", endpoint_url: "{url}"}}
runtime: {{kind: ray}}
head_node_type: head
available_node_types:
  head: {{node_config: {{InstanceType: m5.large}}}}
  worker: {{node_config: {{InstanceType: c5.xlarge}}, min_workers: 3}}
"""
HIDDEN_S = 3600.0


class Killed(BaseException):
    """The process is gone, as far as what it had in memory goes."""


@pytest.fixture(scope="module")
def service() -> Iterator[Aws]:
    with Aws() as aws:
        yield aws


@pytest.fixture
def aws(service: Aws) -> Iterator[Aws]:
    service.reset()
    with as_a_person():
        yield service


class Run:
    """What one `up` after the other has in common: a home on the disk, and a spec."""

    def __init__(self, aws: Aws, folder: Path) -> None:
        self.spec = load_text(SPEC.format(url=aws.url))
        self.kind = next(kind for kind in node_types.node_types(self.spec, {}) if kind.name == "worker")
        (folder / "home").mkdir()
        self.home = Home.find({"CLUSTERCTL_HOME": str(folder / "home")})
        self.home.write(new_record(self.home, self.spec, "rays.yaml"))
        self.provider().prepare([self.kind])

    def record(self) -> ClusterRecord:
        found = self.home.read("rays")
        assert found is not None
        return found

    def provider(self) -> OperatorProvider:
        record = self.record()
        return registry.make(self.spec, record.cluster_id, record.provider_settings)

    def buyer(self, provider: OperatorProvider | None = None) -> Buyer:
        """Of a new process."""
        return Buyer(self.home, self.record(), provider or self.provider())

    def tags(self) -> Mapping[str, str]:
        return node_types.tags(self.spec, self.record().cluster_id, "worker")

    def buy(self, buyer: Buyer, count: int = 3) -> list[Machine]:
        return buyer.buy(self.kind, count, self.tags())

    def missing(self, buyer: Buyer) -> Mapping[str, int]:
        return ray_nodes.workers(self.spec, buyer.existing()).missing


@pytest.fixture
def run(aws: Aws, tmp_path: Path) -> Run:
    return Run(aws, tmp_path)


def killed(monkeypatch: pytest.MonkeyPatch, run: Run, carried_out: bool = True) -> None:
    """An `up` that buys its workers and is killed before it has the answer, or before the platform has the question."""
    provider = run.provider()
    create = provider.create

    def create_and_die(request: LaunchRequest) -> LaunchResult:
        if carried_out:
            create(request)
        raise Killed

    monkeypatch.setattr(provider, "create", create_and_die)
    with pytest.raises(Killed):
        run.buy(run.buyer(provider))


def test_what_no_listing_shows_yet_is_not_bought_twice(
    aws: Aws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.world.listing_lag_s = HIDDEN_S
    killed(monkeypatch, run)
    assert len(aws.instances()) == 3
    assert run.provider().list() == [], "the listing lags behind"
    assert run.missing(run.buyer()) == {}
    assert run.missing(run.buyer()) == {}, "also when that one was killed"
    assert len(aws.instances()) == 3


def test_what_was_not_carried_out_is_made(aws: Aws, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(monkeypatch, run, carried_out=False)
    assert aws.instances() == []
    assert run.missing(run.buyer()) == {}
    assert len(aws.instances()) == 3


def test_what_cannot_be_had_any_more_is_missing(aws: Aws, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(monkeypatch, run, carried_out=False)
    aws.world.faults = [Fault("RunInstances", "UnauthorizedOperation", status=403)]
    assert run.missing(run.buyer()) == {"worker": 3}


def test_machines_that_are_told_of_are_not_asked_for_again(
    aws: Aws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(monkeypatch, run)
    aws.forget_tokens()
    assert run.missing(run.buyer()) == {}
    (first, *_) = aws.instances()
    run.provider().terminate([first.id])
    assert run.missing(run.buyer()) == {"worker": 1}, "one that has ended is told of as well"
    assert len(aws.instances()) == 2


def test_after_a_while_the_listing_counts_alone(aws: Aws, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    aws.world.listing_lag_s = HIDDEN_S
    killed(monkeypatch, run)
    calls = aws.calls["RunInstances"]
    monkeypatch.setattr(buying, "_HIDDEN_S", 0.0)
    assert run.missing(run.buyer()) == {"worker": 3}
    assert aws.calls["RunInstances"] == calls


def test_an_up_that_comes_to_its_end_forgets_its_launches(aws: Aws, run: Run) -> None:
    buyer = run.buyer()
    run.buy(buyer)
    assert [one.request.count for one in run.record().launches] == [3]
    buyer.finish()
    assert run.record().launches == []


def test_a_launch_that_brought_nothing_is_forgotten(aws: Aws, run: Run) -> None:
    aws.world.capacity = {("c5.xlarge", "us-east-1a", "on-demand"): 0}
    made = run.buy(run.buyer())
    assert {machine.zone for machine in made} == {"us-east-1b"}
    assert [one.request.offer.zone for one in run.record().launches] == ["us-east-1b"]


def test_more_than_fit_into_one_call_come_from_one_offer(
    aws: Aws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterctl.providers.cloud.Cloud.MOST_AT_ONCE", 2)
    made = run.buy(run.buyer(), 5)
    assert [machine.zone for machine in made] == ["us-east-1a"] * 5
    assert len({machine.instance_id for machine in made}) == 5


def test_too_few_are_said(aws: Aws, run: Run) -> None:
    places = [("c5.xlarge", f"us-east-1{letter}", "on-demand") for letter in "ab"]
    aws.world.capacity = {places[0]: 1, places[1]: 1}
    with pytest.raises(CliError, match="of 2 machines in us-east-1b"):
        run.buy(run.buyer())
    assert run.missing(run.buyer()) == {"worker": 1}, "those that there are stay"
