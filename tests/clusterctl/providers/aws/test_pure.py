"""Policies, images, prices, instance types and networks, as far as they only think."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest

from autoscaler.provider import Config, NodeType
from clusterctl.providers.aws import images, network, policies, prices, types


def described(name: str, vcpus: int = 4, gpus: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {
        "InstanceType": name,
        "VCpuInfo": {"DefaultVCpus": vcpus},
        "MemoryInfo": {"SizeInMiB": 16384},
        "ProcessorInfo": {"SupportedArchitectures": ["arm64" if "g." in name else "x86_64"]},
        **({"GpuInfo": {"Gpus": gpus}} if gpus else {}),
    }


def test_what_a_machine_of_a_type_brings() -> None:
    plain = types.read(described("m6g.xlarge"))
    assert plain.resources["CPU"] == 4
    assert 0.6 * 2**34 < plain.resources["memory"] < 0.7 * 2**34
    assert (plain.architecture, plain.has_gpus) == ("arm64", False)
    gpus = types.read(described("p4d.24xlarge", 96, [{"Manufacturer": "NVIDIA", "Name": "A100", "Count": 8}]))
    assert gpus.resources["GPU"] == 8
    assert gpus.resources["accelerator_type:A100"] == 1
    assert gpus.has_gpus
    assert not types.read(
        described("g4ad.xlarge", 4, [{"Manufacturer": "AMD", "Name": "V520", "Count": 1}])
    ).has_gpus


@pytest.mark.parametrize(
    ("name", "on_demand", "spot"),
    [
        ("m5.large", "L-1216C47A", "L-34B43A08"),
        ("t3.micro", "L-1216C47A", "L-34B43A08"),
        ("im4gn.large", "L-1216C47A", "L-34B43A08"),
        ("g5.xlarge", "L-DB2E81BA", "L-3819A6DF"),
        ("p4d.24xlarge", "L-417A185B", "L-7212CCBC"),
        ("trn1.2xlarge", "L-2C3B7624", "L-6B0D517C"),
        ("u-6tb1.metal", "", ""),
    ],
)
def test_the_quota_of_a_type(name: str, on_demand: str, spot: str) -> None:
    kind = types.read(described(name))
    assert (kind.quota(False), kind.quota(True)) == (on_demand, spot)


def test_the_default_image_has_our_python() -> None:
    assert images.default_family((3, 11)) == "debian-12"
    assert images.default_family((3, 12)) == "ubuntu-24.04"
    assert images.default_family((3, 13)) == "debian-13"
    assert images.default_family((3, 12), gpus=True) == "dlami-ubuntu-24.04"
    assert images.default_family((3, 11), gpus=True) == "debian-12"
    with pytest.raises(Config, match=r"3\.9"):
        images.default_family((3, 9))


def test_families_have_other_names() -> None:
    assert images.family("latest_dlami") is images.FAMILIES["dlami-ubuntu-24.04"]
    assert images.family("windows") is None


@pytest.mark.parametrize(
    ("owner", "name", "user"),
    [
        ("136693071363", "debian-12-amd64-20260101", "admin"),
        ("099720109477", "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20260101", "ubuntu"),
        ("898082745236", "Deep Learning Base GPU AMI (Ubuntu 24.04) 20260101", "ubuntu"),
        ("898082745236", "Deep Learning Base GPU AMI (Amazon Linux 2023) 20260101", "ec2-user"),
        ("137112412989", "al2023-ami-2023.6.20260101-kernel-6.1-x86_64", "ec2-user"),
        ("123456789012", "rocky-9", "rocky"),
        ("123456789012", "our-own-image", ""),
    ],
)
def test_whom_one_is_on_an_image(owner: str, name: str, user: str) -> None:
    assert images.login_user({"OwnerId": owner, "Name": name}) == user


def test_the_table_of_prices_knows_its_age() -> None:
    table = prices.table()
    assert table.on_demand["us-east-1"]["m5.large"] == pytest.approx(0.096)
    assert all(price > 0 for price in table.on_demand["us-east-1"].values())
    day = datetime.date.fromisoformat(table.as_of) + datetime.timedelta(days=40)
    assert "(40 days old)" in prices.says(table, "us-east-1", day)


def test_a_price_of_the_price_list() -> None:
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": "0.0960000000"}}
    entry = {"terms": {"OnDemand": {"a.b": {"priceDimensions": {"a.b.c": dimension}}}}}
    assert prices.of_product(json.dumps(entry)) == pytest.approx(0.096)
    assert prices.of_product("{}") == 0.0


def test_the_latest_spot_price_of_each_zone() -> None:
    history = [
        {"AvailabilityZone": zone, "Timestamp": at, "SpotPrice": price}
        for zone, at, price in (("a", 1, "0.3"), ("a", 3, "0.2"), ("a", 2, "0.9"), ("b", 1, "0.5"))
    ]
    assert prices.latest(history) == {"a": 0.2, "b": 0.5}


def test_the_roomiest_subnet_of_a_zone_comes_first() -> None:
    subnets = [
        {"SubnetId": name, "AvailabilityZone": zone, "AvailableIpAddressCount": free}
        for name, zone, free in (("s1", "a", 5), ("s2", "a", 50), ("s3", "b", 1))
    ]
    assert network.by_zone(subnets) == {"a": ("s2", "s1"), "b": ("s3",)}


def test_public_subnets_have_a_way_to_a_gateway() -> None:
    out = {"Routes": [{"GatewayId": "igw-1"}], "Associations": [{"Main": False, "SubnetId": "s1"}]}
    main = {"Routes": [{"GatewayId": "local"}], "Associations": [{"Main": True}]}
    subnets = [{"SubnetId": "s1"}, {"SubnetId": "s2"}]
    assert network.public(subnets, [main, out]) == [{"SubnetId": "s1"}]
    main["Routes"].append({"GatewayId": "igw-1"})
    assert network.public(subnets, [main, out]) == subnets


def test_who_may_come_in() -> None:
    wanted = network.ingress("sg-1", ["203.0.113.0/24", "2001:db8::/32"])
    assert wanted == {
        network.Rule("tcp", 22, 22, "IpRanges", "203.0.113.0/24"),
        network.Rule("tcp", 22, 22, "Ipv6Ranges", "2001:db8::/32"),
        network.Rule("-1", -1, -1, "UserIdGroupPairs", "sg-1"),
    }
    assert network.rules(rule.permission() for rule in wanted) == wanted
    everybody = network.Rule("tcp", 22, 22, "IpRanges", "0.0.0.0/0")
    assert everybody in network.ingress("sg-1", [])
    assert everybody.is_ssh
    with pytest.raises(Config, match="ssh_cidr_blocks"):
        network.ingress("sg-1", ["home"])
    # As EC2 writes them, or they would be taken for rules of before.
    assert network.ingress("sg-1", ["203.0.113.5", "2001:DB8::/32"]) == network.ingress(
        "sg-1", ["203.0.113.5/32", "2001:db8::/32"]
    )


def test_further_permissions_are_taken_one_by_one() -> None:
    ranges = [{"CidrIp": "10.0.0.0/8", "Description": "us"}, {"CidrIp": "192.0.2.0/24"}]
    ports = {"IpProtocol": "tcp", "FromPort": 80, "ToPort": 90}
    assert network.singly([{**ports, "IpRanges": ranges}]) == [{**ports, "IpRanges": [one]} for one in ranges]


def test_the_heads_role_ends_only_its_own_machines() -> None:
    policy = policies.of_head("aws", "us-east-1", "c-1", ["arn:aws:iam::1:role/r"], spot=True)
    by_name = {statement["Sid"]: statement for statement in policy["Statement"]}
    assert by_name["EndOnlyOurs"]["Condition"] == {
        "StringEquals": {"aws:ResourceTag/clusterctl-cluster-id": "c-1"}
    }
    made = by_name["MakeOnlyWhatIsTaggedOurs"]
    assert made["Condition"] == {"StringEquals": {"aws:RequestTag/clusterctl-cluster-id": "c-1"}}
    assert by_name["GiveWorkersTheirRole"]["Resource"] == ["arn:aws:iam::1:role/r"]
    assert all(
        action.startswith("ec2:Describe") or action == "pricing:GetProducts"
        for action in by_name["Look"]["Action"]
    )
    assert "FirstSpotMachineOfTheAccount" in by_name
    assert len(policies.of_head("aws", "us-east-1", "c-1")["Statement"]) == len(policy["Statement"]) - 2
    assert len(json.dumps(policy)) < 10_240  # what IAM takes


def test_names_of_roles_are_short_and_differ() -> None:
    assert policies.role_name("c-1") == "clusterctl-c-1"
    long = "x" * 63
    assert len(policies.role_name(f"{long}-1")) == 64
    assert policies.role_name(f"{long}-1") != policies.role_name(f"{long}-2")


def test_the_head_may_read_the_parameters_that_name_its_images() -> None:
    kinds = [
        NodeType("a", node_config={"ImageId": "ssm:/golden/ami"}),
        NodeType("b", node_config={"ImageId": "resolve:ssm:/aws/service/x"}),
        NodeType("c", node_config={"ImageId": "ami-1"}),
    ]
    assert images.own_parameters(kinds) == ["/golden/ami"]
    policy = policies.of_head("aws", "eu-west-1", "c-1", parameters=images.own_parameters(kinds))
    (find,) = (one for one in policy["Statement"] if one["Sid"] == "FindImages")
    assert "arn:aws:ssm:eu-west-1:*:parameter/golden/ami" in find["Resource"]
