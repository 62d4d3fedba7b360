"""The provider on the head, with nothing but its role."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest

from autoscaler.provider import (
    SPOT,
    Auth,
    Throttled,
    Transient,
)
from clusterctl.providers.aws import clients
from clusterctl.providers.protocol import Seat
from tests.clusterctl.providers.aws.cluster import Make
from tests.testbed.aws import ROLE_KEY, Aws, Fault


def test_the_head_leaves_patience_to_its_autoscaler(aws: Aws, cluster: Make) -> None:
    one = cluster()
    one.provider.prepare(one.kinds)
    head = one.provider_of("demo-1", seat=Seat.HEAD)
    head.offers(one.worker)
    head._catalog.image(one.worker)
    aws.world.faults = [Fault("RunInstances", "RequestLimitExceeded", status=503)]
    with pytest.raises(Throttled) as caught:
        one.create("a", provider=head)
    assert caught.value.retry_after_s > 0
    assert aws.calls["RunInstances"] == 1
    aws.world.faults = [Fault("DescribeInstances", "ServiceUnavailable", status=503)]
    with pytest.raises(Transient):
        head.list()


def test_the_heads_role_suffices_for_the_autoscaler(
    aws: Aws, cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call that the head makes is in its policy, and no other is allowed."""
    one = cluster(worker=", spot: true")
    one.provider.prepare(one.kinds)
    monkeypatch.setattr(clients, "_SHARED", {})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ROLE_KEY + b"clusterctl-demo-1".hex().upper())
    head = one.provider_of("demo-1", seat=Seat.HEAD)
    offers = head.offers(one.worker)
    made = [
        one.create(name, provider=head, offer=offer, token=name)
        for name, offer in zip("ab", offers, strict=False)
    ]
    assert [result.errors for result in made] == [(), ()]
    spot = next(machine for result in made for machine in result.machines if machine.market == SPOT)
    aws.warn(spot.id)
    assert any(machine.unwanted for machine in head.list())
    own = one.create("h", kind=one.head).machines[0]
    head.stop([own.id])  # as autostop does
    head.start([own.id])
    assert set(head.terminate([machine.id for result in made for machine in result.machines]).values()) == {
        None
    }
    with pytest.raises(Auth, match="may not ec2:DeleteSecurityGroup"):
        head._clients.ec2("delete_security_group", GroupId="sg-1")
    role = next(role for role in aws.iam.roles.values() if role.name == "clusterctl-demo-1")
    assert json.loads(role.assume_role_policy_document)["Statement"][0]["Principal"] == {
        "Service": "ec2.amazonaws.com"
    }


def test_credentials_that_come_late_are_found(
    aws: Aws, cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role is known to its machine some seconds after the machine has booted."""
    monkeypatch.setattr(clients, "_SHARED", {})
    head = cluster().provider_of("demo-1", seat=Seat.HEAD)
    with monkeypatch.context() as without:
        without.delenv("AWS_ACCESS_KEY_ID")
        without.delenv("AWS_SECRET_ACCESS_KEY")
        without.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
        with pytest.raises(Auth, match="no credentials"):
            head.list()
    assert head.list() == []


def test_credentials_that_come_while_a_client_is_made_are_found(
    aws: Aws, cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "_SHARED", {})
    head = cluster().provider_of("demo-1", seat=Seat.HEAD)
    make = boto3.session.Session.client
    with monkeypatch.context() as without:
        without.delenv("AWS_ACCESS_KEY_ID")
        without.delenv("AWS_SECRET_ACCESS_KEY")
        without.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")

        def made_before(session: Any, *names: Any, **settings: Any) -> Any:
            client = make(session, *names, **settings)
            without.undo()
            return client

        without.setattr(boto3.session.Session, "client", made_before)
        with pytest.raises(Auth, match="no credentials"):
            head.list()
    assert head.list() == []


def test_a_spot_machine_with_notice_is_to_be_given_up(aws: Aws, cluster: Make) -> None:
    one = cluster(worker=", spot: true")
    one.provider.prepare(one.kinds)
    made = {machine.instance_id: machine.id for machine in one.create("a", "b").machines}
    aws.warn(made["a"])
    head = one.provider_of("demo-1", seat=Seat.HEAD)
    unwanted = {machine.instance_id: bool(machine.unwanted) for machine in head.list()}
    assert unwanted == {"a": True, "b": False}
    assert not any(machine.unwanted for machine in one.provider.list())
    aws.world.faults = [Fault("DescribeSpotInstanceRequests", "UnauthorizedOperation", status=403)]
    for _ in range(3):
        assert len(head.list()) == 2
    assert aws.calls["DescribeSpotInstanceRequests"] == 2, "who may not ask does not"


def test_nobody_asks_for_notices_without_spot_machines(aws: Aws, cluster: Make) -> None:
    one = cluster()
    one.provider.prepare(one.kinds)
    assert one.create("a").machines
    assert len(one.provider_of("demo-1", seat=Seat.HEAD).list()) == 1
    assert aws.calls["DescribeSpotInstanceRequests"] == 0
