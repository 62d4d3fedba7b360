"""What EC2 is asked for a machine."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.provider import SPOT, Config, LaunchRequest, MachineTags, NodeType, Offer
from clusterctl.providers.aws import launches, tagging

PLACE = launches.Place("ami-1", "admin", "subnet-1", ("sg-1",), "key", public=True)
OWNER = {MachineTags.CLUSTER_ID: "c-1", MachineTags.CLUSTER_NAME: "c", "team": "x"}


def asked(config: dict[str, Any], role: str = MachineTags.WORKER, **more: Any) -> dict[str, Any]:
    offer = more.pop("offer", Offer("us-east-1a"))
    place = more.pop("place", PLACE)
    names = more.pop("names", ("i1", "i2"))
    request = LaunchRequest(
        "token",
        NodeType("worker", node_config=config, **more),
        len(names),
        offer,
        {MachineTags.ROLE: role},
        names,
    )
    return launches.parameters(request, place, OWNER)


def test_settings_are_passed_on_under_their_names() -> None:
    disks = [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 200}}]
    config = {
        "InstanceType": "m5.large",
        "BlockDeviceMappings": disks,
        "Placement": {"GroupName": "near"},
        "LaunchTemplate": {"LaunchTemplateName": "t"},
        "EbsOptimized": True,
    }
    out = asked(config)
    assert {key: out[key] for key in config} == config
    assert (out["MinCount"], out["MaxCount"]) == (1, 2)
    assert out["ImageId"] == "ami-1"
    assert out["KeyName"] == "key"


def test_metadata_are_served_by_version_two_only() -> None:
    assert asked({})["MetadataOptions"]["HttpTokens"] == "required"
    given = {"MetadataOptions": {"HttpTokens": "optional", "HttpPutResponseHopLimit": 1}}
    assert asked(given)["MetadataOptions"] == {
        "HttpEndpoint": "enabled",
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 1,
    }


def test_a_worker_that_shuts_down_is_gone_and_a_head_is_kept() -> None:
    assert asked({})["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert asked({}, MachineTags.HEAD)["InstanceInitiatedShutdownBehavior"] == "stop"


def test_one_interface_has_the_subnet_the_groups_and_the_public_address() -> None:
    (interface,) = asked({"SubnetIds": ["subnet-1"]})["NetworkInterfaces"]
    assert interface == {
        "DeviceIndex": 0,
        "DeleteOnTermination": True,
        "SubnetId": "subnet-1",
        "Groups": ["sg-1"],
        "AssociatePublicIpAddress": True,
    }
    out = asked({"SecurityGroupIds": ["sg-9"], "SubnetId": "subnet-1"})
    assert out["NetworkInterfaces"][0]["Groups"] == ["sg-9"]
    assert not {"SecurityGroupIds", "SubnetId", "SubnetIds"} & set(out)


def test_efa_interfaces_are_completed() -> None:
    cards = [{"NetworkCardIndex": card, "InterfaceType": "efa"} for card in range(4)]
    interfaces = asked({"NetworkInterfaces": cards})["NetworkInterfaces"]
    assert [one["DeviceIndex"] for one in interfaces] == [0, 1, 1, 1]
    assert all(one["InterfaceType"] == "efa" and one["SubnetId"] == "subnet-1" for one in interfaces)
    assert not any("AssociatePublicIpAddress" in one for one in interfaces)  # EC2 refuses it with several


def test_an_interface_that_exists_is_left_as_it_is() -> None:
    given = {"NetworkInterfaces": [{"NetworkInterfaceId": "eni-1"}]}
    assert asked(given)["NetworkInterfaces"] == [{"DeviceIndex": 0, "NetworkInterfaceId": "eni-1"}]


def test_groups_by_name_are_refused() -> None:
    with pytest.raises(Config, match="SecurityGroupIds"):
        asked({"SecurityGroups": ["default"]})


def test_spot_machines_have_their_limit() -> None:
    out = asked({}, offer=Offer("us-east-1a", SPOT), spot=True, max_price=0.25)
    assert out["InstanceMarketOptions"] == {
        "MarketType": "spot",
        "SpotOptions": {"SpotInstanceType": "one-time", "MaxPrice": "0.25"},
    }
    given: dict[str, Any] = {
        "InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.1"}}
    }
    assert asked(given, offer=Offer("z", SPOT))["InstanceMarketOptions"]["SpotOptions"]["MaxPrice"] == "0.1"
    assert "InstanceMarketOptions" not in asked(given | {}, offer=Offer("z"), spot=True)
    given["InstanceMarketOptions"]["SpotOptions"]["SpotInstanceType"] = "persistent"
    with pytest.raises(Config, match="one-time"):
        asked(given, offer=Offer("z", SPOT))


@pytest.mark.parametrize(
    ("spot", "config", "expected"),
    [
        (False, {}, (False, True)),
        (True, {}, (True, True)),
        (False, {"InstanceMarketOptions": {"MarketType": "spot"}}, (True, False)),
        (True, {"InstanceMarketOptions": {"MarketType": "spot"}}, (True, True)),
    ],
)
def test_where_a_type_is_bought(spot: bool, config: dict[str, Any], expected: tuple[bool, bool]) -> None:
    assert launches.spot_of(NodeType("t", spot=spot, node_config=config)) == expected


def test_everything_that_is_made_is_tagged() -> None:
    given = {"TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "own", "Value": "1"}]}]}
    specs = {one["ResourceType"]: tagging.read(one["Tags"]) for one in asked(given)["TagSpecifications"]}
    assert set(specs) == {"instance", "volume", "network-interface"}
    assert all(tags[MachineTags.CLUSTER_ID] == "c-1" and tags["team"] == "x" for tags in specs.values())
    assert specs["instance"]["own"] == "1"
    assert specs["instance"]["Name"] == "c worker"
    assert specs["instance"][tagging.USER] == "admin"
    assert "own" not in specs["volume"]


def test_the_token_is_that_of_the_request_and_the_offer() -> None:
    one = asked({})["ClientToken"]
    assert one == asked({})["ClientToken"]
    assert len(one) <= 64
    assert one != asked({}, offer=Offer("us-east-1b"))["ClientToken"]
    assert one != asked({}, names=("i1",))["ClientToken"]


def test_each_machine_finds_its_name() -> None:
    names = [f"{number:010x}" for number in range(50)]
    tags = {**tagging.names(names), "other": "x"}
    assert all(len(value) <= 256 for value in tags.values())
    for index, name in enumerate(names):
        assert tagging.of_machine(tags, index) == {"other": "x", MachineTags.INSTANCE_ID: name}
    assert tagging.of_machine({"other": "x"}, 0) == {"other": "x"}
