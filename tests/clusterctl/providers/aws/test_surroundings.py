"""What is made around the machines, once, and removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoscaler.provider import (
    Auth,
    MachineTags,
)
from clusterctl.providers.protocol import Seat
from tests.clusterctl.providers.aws.cluster import Make, without_default_network
from tests.testbed.aws import Aws, Fault


def test_what_is_prepared_is_made_once_tagged_and_removed(aws: Aws, cluster: Make) -> None:
    one = cluster(provider=", tags: {team: x}")
    assert one.problems() == []
    assert aws.leftovers() == [], "checking makes nothing"
    prepared = one.provider.prepare(one.kinds)
    made = aws.leftovers()
    assert one.provider.prepare(one.kinds) == prepared
    assert aws.leftovers() == made
    assert len(made) == 4  # group, key pair, role, profile
    (group,) = aws.ec2.describe_security_groups(groupnames=["clusterctl-demo-1"])
    tags = {tag["key"]: tag["value"] for tag in group.get_tags()}
    assert tags[MachineTags.CLUSTER_ID] == "demo-1"
    assert tags["team"] == "x"
    (role,) = (role for role in aws.iam.roles.values() if role.name == "clusterctl-demo-1")
    assert {"Key": "team", "Value": "x"} in role.tags
    one.provider.cleanup()
    assert aws.leftovers() == []
    one.provider.cleanup()


def test_a_network_is_made_where_there_is_none(aws: Aws, cluster: Make) -> None:
    without_default_network(aws)
    one = cluster(provider=', availability_zone: "us-east-1b,us-east-1a"')
    assert one.problems() == []
    assert [offer.zone for offer in one.provider.offers(one.worker)] == ["us-east-1b", "us-east-1a"]
    one.provider.prepare(one.kinds)
    one.provider.prepare(one.kinds)
    made = one.create("a")
    assert made.machines[0].address.startswith("10.83.")
    one.provider.terminate([made.machines[0].id])
    one.provider.cleanup()
    assert aws.leftovers() == []


def test_of_two_networks_of_a_cluster_everybody_takes_the_same(aws: Aws, cluster: Make) -> None:
    """Two are made when AWS loses an answer and lists late."""
    without_default_network(aws)
    one = cluster()
    tags = [{"Key": MachineTags.CLUSTER_ID, "Value": "demo-1"}]
    spare, used = (aws.ec2.create_internet_gateway(tags) for _ in range(2))
    vpcs = sorted((aws.ec2.create_vpc("10.83.0.0/16", tags=tags) for _ in range(2)), key=lambda vpc: vpc.id)
    if spare.id > used.id:
        spare, used = used, spare
    aws.ec2.vpcs.clear()
    aws.ec2.vpcs.update({vpc.id: vpc for vpc in reversed(vpcs)})  # as they are listed
    aws.ec2.attach_internet_gateway(used.id, vpcs[0].id)
    assert one.provider.prepare(one.kinds).details["network"] == vpcs[0].id
    assert one.create("a", provider=one.provider_of("demo-1", seat=Seat.HEAD)).machines
    assert one.provider.prepare(one.kinds).details["network"] == vpcs[0].id
    (table,) = (table for table in aws.ec2.route_tables.values() if table.vpc_id == vpcs[0].id)
    assert [route.gateway.id for route in table.routes if route.gateway] == [used.id]
    one.provider.terminate([machine.id for machine in one.provider.list()])
    one.provider.cleanup()
    assert aws.leftovers() == []
    assert not aws.ec2.internet_gateways


def test_a_given_network_group_and_key_are_used_and_kept(aws: Aws, cluster: Make, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret")
    subnet = next(iter(aws.ec2.subnets["us-east-1c"].values()))
    group = aws.ec2.create_security_group("ours", "ours", subnet.vpc_id, {})
    aws.ec2.create_key_pair("mine", "ed25519", {})
    aws.iam.create_instance_profile("given", "/", [])
    before = aws.leftovers()
    one = cluster(
        provider=f", subnet_ids: [{subnet.id}], security_group: {{GroupName: ours}}, key_pair: {{key_name: mine}}",
        auth=f"auth: {{ssh_private_key: {tmp_path / 'key'}}}",
        head=", IamInstanceProfile: {Name: given}",
    )
    assert one.problems() == []
    one.provider.prepare(one.kinds)
    assert aws.leftovers() == before
    assert {offer.zone for offer in one.provider.offers(one.worker)} == {"us-east-1c"}
    made = one.create("a", kind=one.head).machines[0]
    instance = aws.ec2.get_instance(made.id)
    assert (instance.key_name, instance.subnet_id) == ("mine", subnet.id)
    assert [other.id for other in instance.nics[0].group_set] == [group.id]
    one.provider.terminate([made.id])
    one.provider.cleanup()
    assert aws.leftovers() == before


def test_what_another_account_lists_says_nothing(aws: Aws, cluster: Make) -> None:
    made = cluster()
    mine = made.provider_of("c-1", account=made.provider.settings()["account"])
    other = made.provider_of("c-1", account="999999999999")
    assert mine.list() == []
    for ask in (other.list, other.cleanup, lambda: other.clusters("cloud")):
        with pytest.raises(Auth, match="of the AWS account 999999999999"):
            ask()


def test_groups_in_use_are_waited_for(aws: Aws, cluster: Make) -> None:
    one = cluster()
    one.provider.prepare(one.kinds)
    aws.world.faults = [Fault("DeleteSecurityGroup", "DependencyViolation", times=3)]
    one.provider.cleanup()
    assert aws.leftovers() == []


def test_another_key_of_the_same_name_is_replaced(aws: Aws, cluster: Make, tmp_path: Path) -> None:
    one = cluster()
    one.provider.prepare(one.kinds)
    before = aws.ec2.key_pairs["clusterctl-demo-1"].public_key
    for file in (tmp_path / "demo-1").glob("ssh_key*"):
        file.unlink()
    one.provider_of("demo-1").prepare(one.kinds)
    assert aws.ec2.key_pairs["clusterctl-demo-1"].public_key != before


def test_who_may_enter_follows_the_spec(aws: Aws, cluster: Make) -> None:
    def blocks() -> set[str]:
        (group,) = aws.ec2.describe_security_groups(groupnames=["clusterctl-demo-1"])
        return {r["CidrIp"] for view in group.ip_permissions for r in view.ip_ranges}

    cluster().provider.prepare(cluster().kinds)
    assert blocks() == {"0.0.0.0/0"}
    for given in (["10.0.0.0/8"], ["10.0.0.0/8", "192.0.2.0/24"], ["192.0.2.0/24"]):
        one = cluster(provider=f", ssh_cidr_blocks: {json.dumps(given)}")
        one.provider.prepare(one.kinds)
        assert blocks() == set(given)
    further = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "198.51.100.0/24"}]}
    one = cluster(
        provider=f", security_group: {{IpPermissions: {json.dumps([further])}}}, ssh_cidr_blocks: [10.0.0.0/8]"
    )
    for _ in range(2):
        one.provider.prepare(one.kinds)
        assert blocks() == {"10.0.0.0/8", "198.51.100.0/24"}


def test_a_group_of_one_name_goes_with_the_last_cluster_that_uses_it(aws: Aws, cluster: Make) -> None:
    one = cluster(provider=", security_group: {GroupName: shared}")
    mine, theirs = one.provider, one.provider_of("demo-2", owner="you")
    mine.prepare(one.kinds)
    theirs.prepare(one.kinds)
    (ours,) = one.create("a", provider=mine).machines
    (other,) = one.create("b", provider=theirs, token="b", cluster_id="demo-2").machines
    mine.terminate([ours.id])
    mine.cleanup()
    assert mine.clusters("demo") == []
    assert "shared" in aws.leftovers(), "the other's machine needs it"
    theirs.terminate([other.id])
    theirs.cleanup()
    assert aws.leftovers() == []
