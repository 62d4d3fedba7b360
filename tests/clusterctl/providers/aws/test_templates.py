"""Node types that name a launch template."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.provider import ON_DEMAND, SPOT, Config, NodeType
from clusterctl.providers.protocol import Seat
from tests.clusterctl.providers.aws.cluster import Make
from tests.testbed.aws import Aws

NAMED = ", LaunchTemplate: {LaunchTemplateName: ours}"


def template(aws: Aws, **data: Any) -> None:
    aws.ec2.create_launch_template("ours", "", data, {})


def test_groups_and_interfaces_of_a_template_are_kept(aws: Aws, cluster: Make) -> None:
    subnet = next(iter(aws.ec2.subnets["us-east-1b"].values()))
    group = aws.ec2.create_security_group("theirs", "theirs", subnet.vpc_id, {})
    template(aws, SecurityGroupIds=[group.id])
    one = cluster(config=NAMED)
    assert one.problems() == []
    one.provider.prepare(one.kinds)
    (made,) = one.create("a").machines
    assert {other.id for nic in aws.ec2.get_instance(made.id).nics.values() for other in nic.group_set} == {
        group.id
    }

    aws.ec2.delete_launch_template("ours", None)
    template(aws, NetworkInterfaces=[{"DeviceIndex": 0, "SubnetId": subnet.id, "Groups": [group.id]}])
    one = cluster(config=NAMED)
    assert one.problems() == []
    assert {offer.zone for offer in one.provider.offers(one.worker)} == {"us-east-1b"}
    (made,) = one.create("b", token="b").machines
    assert aws.ec2.get_instance(made.id).subnet_id == subnet.id


def test_a_mixture_is_found_before_anything_is_made(aws: Aws, cluster: Make) -> None:
    template(aws, SecurityGroupIds=["sg-1"])
    one = cluster(config=f"{NAMED}, NetworkInterfaces: [{{DeviceIndex: 0}}]")
    (problem,) = one.problems()
    assert "EC2 refuses together" in problem.what


def test_a_template_that_is_not_there_is_found(cluster: Make) -> None:
    (problem,) = cluster(config=NAMED).problems()
    assert "node type worker: node_config.LaunchTemplate" in problem.what


def test_a_template_that_cannot_be_read_stops_its_own_type_only(aws: Aws, cluster: Make) -> None:
    subnet = next(iter(aws.ec2.subnets["us-east-1b"].values()))
    interface = {"DeviceIndex": 0, "SubnetId": subnet.id}
    template(aws, NetworkInterfaces=[interface])
    one = cluster(config=NAMED)
    one.provider.prepare(one.kinds)
    offer = one.provider.offers(one.worker)[0]
    aws.ec2.delete_launch_template("ours", None)
    head = one.provider_of("demo-1", seat=Seat.HEAD)
    other = NodeType("other", node_config={"InstanceType": "m5.large"})
    assert one.create("a", kind=other, provider=head, offer=head.offers(other)[0]).machines
    with pytest.raises(Config, match=r"node type worker: node_config\.LaunchTemplate"):
        head.offers(one.worker)
    template(aws, NetworkInterfaces=[interface])
    assert head.offers(one.worker) == [offer], "somebody has made it anew"


def test_a_market_of_a_template_is_what_machines_are_offered_on(aws: Aws, cluster: Make) -> None:
    template(aws, InstanceMarketOptions={"MarketType": "spot"})
    one = cluster(config=NAMED, worker=", spot: true")
    assert {offer.market for offer in one.provider.offers(one.worker)} == {SPOT}
    aws.ec2.delete_launch_template("ours", None)
    template(aws, InstanceMarketOptions={"MarketType": "capacity-block"})
    one = cluster(config=NAMED)
    offers = one.provider.offers(one.worker)
    assert {(offer.market, offer.price) for offer in offers} == {(ON_DEMAND, 0.0)}, "nobody knows that price"
    (problem,) = cluster(config=NAMED, worker=", spot: true").problems()
    assert "capacity-block" in problem.what


def test_a_template_without_a_market_leaves_the_way_back_from_spot(aws: Aws, cluster: Make) -> None:
    template(aws, InstanceType="c5.xlarge")
    one = cluster(
        config=f"{NAMED}, InstanceMarketOptions: {{MarketType: spot}}", worker=", spot: true, max_price: 9"
    )
    one.provider.prepare(one.kinds)
    offers = {offer.market: offer for offer in one.provider.offers(one.worker)}
    assert set(offers) == {SPOT, ON_DEMAND}
    (made,) = one.create("a", offer=offers[ON_DEMAND]).machines
    assert made.market == ON_DEMAND


def test_the_head_may_give_workers_the_role_of_their_template(aws: Aws, cluster: Make) -> None:
    aws.iam.create_role("r", "{}", "/", None, "", {}, "3600")
    profile = aws.iam.create_instance_profile("given", "/", [])
    aws.iam.add_role_to_instance_profile(profile.name, "r")
    template(aws, IamInstanceProfile={"Name": "given"})
    one = cluster(config=NAMED)
    assert one.problems() == []
    one.provider.prepare(one.kinds)
    head = next(role for role in aws.iam.roles.values() if role.name == "clusterctl-demo-1")
    assert "role/r" in "".join(head.policies.values())
    own = cluster(head=NAMED)
    own.provider.prepare(own.kinds)
    assert own.create("h", kind=own.head).machines, "a template's profile is given to the head, too"
