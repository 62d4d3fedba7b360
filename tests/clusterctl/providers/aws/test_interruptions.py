"""Answers of AWS that are lost at any moment."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from autoscaler.provider import (
    Auth,
    Transient,
)
from clusterctl.providers import retries
from clusterctl.providers.aws import provider as module
from tests.clusterctl.providers.aws.cluster import Make, without_default_network
from tests.testbed.aws import Aws, Fault


@pytest.mark.parametrize("after", [False, True], ids=["before it happens", "when it has happened"])
def test_an_interruption_at_any_call_is_made_good(
    aws: Aws, cluster: Make, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """The launcher loses AWS at every single call that changes something; doing it all again converges."""
    monkeypatch.setattr(retries, "OPERATORS_PATIENCE_S", 0.0)
    for stage in ("up", "clean up"):
        for number in range(1000):
            one = cluster()
            if stage == "clean up":
                one.provider.prepare(one.kinds)
            calls = itertools.count()

            def is_the_one(asked: dict[str, str], calls: Iterator[int] = calls, number: int = number) -> bool:
                changes = not asked.get("Action", "Get").startswith(("Describe", "Get"))
                return changes and next(calls) == number

            broken = Fault("", "InternalError", status=500, times=1, after=after, when=is_the_one)
            aws.world.faults = [broken]
            try:
                if stage == "up":
                    one.provider.prepare(one.kinds)
                    one.create("h", kind=one.head)
                else:
                    one.provider.cleanup()
            except Transient:
                pass
            aws.world.faults = []
            if stage == "up":
                one.provider.prepare(one.kinds)
                assert len(one.create("h", kind=one.head).machines) == 1
                assert len(aws.instances()) == 1
                one.provider.terminate([machine.id for machine in one.provider.list()])
            one.provider.cleanup()
            assert aws.leftovers() == []
            aws.forget_tokens()
            if broken.times:  # there are no more calls
                break
        assert number > 5


@pytest.mark.parametrize(
    "action",
    [
        "CreateVpc",
        "CreateInternetGateway",
        "AttachInternetGateway",
        "CreateRoute",
        "CreateSubnet",
        "CreateSecurityGroup",
    ],
)
def test_a_network_whose_making_is_not_confirmed_is_made_once(aws: Aws, cluster: Make, action: str) -> None:
    without_default_network(aws)
    one = cluster()
    aws.world.faults = [Fault(action, "InternalError", status=500, times=1, after=True)]
    one.provider.prepare(one.kinds)
    assert len(aws.ec2.vpcs) == 1
    assert len(aws.ec2.internet_gateways) == 1
    one.provider.cleanup()
    assert aws.leftovers() == []
    assert not aws.ec2.internet_gateways


def test_a_network_that_an_interrupted_clean_up_left_leads_out_again(aws: Aws, cluster: Make) -> None:
    without_default_network(aws)
    one = cluster()
    one.provider.prepare(one.kinds)
    aws.world.faults = [Fault("DeleteVpc", "UnauthorizedOperation", status=403, times=1)]
    with pytest.raises(Auth):
        one.provider.cleanup()
    one.provider.prepare(one.kinds)
    (gateway,) = aws.ec2.internet_gateways
    (table,) = (table for table in aws.ec2.route_tables.values() if table.vpc_id in aws.ec2.vpcs)
    assert [route.gateway.id for route in table.routes if route.gateway] == [gateway]
    one.provider.cleanup()
    assert aws.leftovers() == []


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ("AuthorizeSecurityGroupIngress", "InvalidGroup.NotFound"),
        ("ModifyVpcAttribute", "InvalidVpcID.NotFound"),
        ("AttachInternetGateway", "InvalidInternetGatewayID.NotFound"),
        ("CreateSubnet", "InvalidVpcID.NotFound"),
        ("PutRolePolicy", "NoSuchEntity"),
        ("GetInstanceProfile", "NoSuchEntity"),
    ],
)
def test_what_was_made_just_now_may_not_be_known_yet(aws: Aws, cluster: Make, action: str, code: str) -> None:
    without_default_network(aws)
    one = cluster()
    aws.world.faults = [Fault(action, code, times=3)]
    one.provider.prepare(one.kinds)
    assert aws.world.faults[0].times == 0


def test_what_is_in_use_keeps_nothing_else(aws: Aws, cluster: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = cluster()
    one.provider.prepare(one.kinds)
    monkeypatch.setattr(module, "_CLEAN_S", 0.1)
    aws.world.faults = [Fault("DeleteSecurityGroup", "DependencyViolation")]
    with pytest.raises(Transient, match="DependencyViolation"):
        one.provider.cleanup()
    assert aws.leftovers() == ["clusterctl-demo-1"]
    assert one.provider.clusters("demo") == ["demo-1"], "the next `down` finds it"


@pytest.mark.parametrize(
    "action", ["DescribeKeyPairs", "RemoveRoleFromInstanceProfile", "DescribeSecurityGroups"]
)
def test_what_cannot_be_removed_keeps_nothing_else(aws: Aws, cluster: Make, action: str) -> None:
    """An operator may have no way to IAM at all, where nothing was made."""
    one = cluster()
    one.provider.prepare(one.kinds)
    aws.world.faults = [Fault(action, "AuthFailure", status=401)]
    with pytest.raises(Auth):
        one.provider.cleanup()
    assert len(aws.leftovers()) == (2 if action == "RemoveRoleFromInstanceProfile" else 1)
    aws.world.faults = []
    one.provider.cleanup()
    assert aws.leftovers() == []


def test_machines_that_show_up_late_end_the_wait_for_their_group(aws: Aws, cluster: Make) -> None:
    one = cluster()
    one.provider.prepare(one.kinds)
    aws.world.listing_lag_s = 600.0
    assert one.create("a").machines
    late = cluster()  # another process, which cannot know
    assert late.provider.list() == []

    def shows_up(_: dict[str, str]) -> bool:
        aws.world.listing_lag_s = 0.0
        return False

    aws.world.faults = [Fault("DeleteSecurityGroup", "none", when=shows_up)]
    with pytest.raises(Transient, match="DependencyViolation"):
        late.provider.cleanup()
    assert [machine.instance_id for machine in late.provider.list()] == ["a"]
