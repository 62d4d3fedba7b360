"""What EC2 is asked for a machine."""

from __future__ import annotations

import base64
import dataclasses
from typing import Any

import botocore.session
import pytest
from botocore.serialize import create_serializer

from autoscaler.provider import ON_DEMAND, SPOT, Config, LaunchRequest, MachineTags, NodeType, Offer
from clusterctl.providers import first_boot
from clusterctl.providers.aws import launches, tagging
from tests.testbed import aws_rules
from tests.testbed.cloud_hosts import scripts_of

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
    config = {
        "InstanceType": "m5.large",
        "Placement": {"GroupName": "near"},
        "LaunchTemplate": {"LaunchTemplateName": "t"},
        "EbsOptimized": True,
    }
    out = asked(config)
    assert {key: out[key] for key in config} == config
    assert (out["MinCount"], out["MaxCount"]) == (1, 2)
    assert out["ImageId"] == "ami-1"
    assert out["KeyName"] == "key"


def test_disks_end_with_their_machine_unless_they_say_otherwise() -> None:
    given = [
        {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 200}},
        {"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 9, "DeleteOnTermination": False}},
        {"DeviceName": "/dev/sdb", "VirtualName": "ephemeral0"},
    ]
    whole, kept, local = asked({"BlockDeviceMappings": given})["BlockDeviceMappings"]
    assert whole["Ebs"] == {"VolumeSize": 200, "DeleteOnTermination": True}
    assert [kept, local] == given[1:]


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
    spot = asked({}, MachineTags.HEAD, offer=Offer("us-east-1a", SPOT), spot=True)
    assert spot["InstanceInitiatedShutdownBehavior"] == "terminate", "EC2 stops no one-time spot machine"


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


def test_interfaces_of_one_card_are_numbered() -> None:
    three = asked({"NetworkInterfaces": [{}, {"NetworkCardIndex": 1}, {}, {}]})["NetworkInterfaces"]
    assert [one["DeviceIndex"] for one in three] == [0, 1, 1, 2]


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
        (False, {"InstanceMarketOptions": {"MarketType": "capacity-block"}}, (False, True)),
    ],
)
def test_where_a_type_is_bought(spot: bool, config: dict[str, Any], expected: tuple[bool, bool]) -> None:
    kind = NodeType("t", spot=spot, node_config=config)
    found = launches.markets(kind, {})
    assert (SPOT in found, ON_DEMAND in found) == expected


@pytest.mark.parametrize("market", ["capacity-block", "interruptible-capacity-reservation", "on-demand"])
def test_other_markets_are_passed_on(market: str) -> None:
    target = {"CapacityReservationTarget": {"CapacityReservationId": "cr-1"}}
    given = {"InstanceMarketOptions": {"MarketType": market}, "CapacityReservationSpecification": target}
    assert {key: asked(given)[key] for key in given} == given
    kind = NodeType("t", spot=True, node_config=given)
    assert market in launches.contradiction(kind), "it cannot be spot, too"
    assert launches.contradiction(NodeType("t", node_config=given)) == ""
    assert launches.has_list_price(kind) == (market == "on-demand")


INTERFACE = {"DeviceIndex": 0, "Groups": ["sg-7"], "SubnetId": "subnet-7"}
TEMPLATES: dict[str, dict[str, Any]] = {
    "none": {},
    "groups": {"SecurityGroupIds": ["sg-8"]},
    "names of groups": {"SecurityGroups": ["default"]},
    "interface": {"NetworkInterfaces": [INTERFACE]},
    "interfaces": {"NetworkInterfaces": [INTERFACE, {"DeviceIndex": 1}]},
    "spot": {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.2"}}},
    "more": {"InstanceType": "m5.large", "UserData": "IyEvYmluL3NoCg==", "KeyName": "theirs"},
}
CONFIGS: dict[str, dict[str, Any]] = {
    "none": {},
    "groups": {"SecurityGroupIds": ["sg-9"]},
    "subnet": {"SubnetId": "subnet-1"},
    "addresses": {"Ipv6AddressCount": 1, "EnablePrimaryIpv6": True},
    "interfaces": {"NetworkInterfaces": [{"NetworkCardIndex": card} for card in range(2)]},
}


def sent(parameters: dict[str, Any]) -> dict[str, str]:
    """The parameters as they travel."""
    model = botocore.session.get_session().get_service_model("ec2").operation_model("RunInstances")
    body = create_serializer("ec2").serialize_to_request(parameters, model)["body"]
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in body.items()}


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("market", [SPOT, ON_DEMAND])
def test_a_request_fits_its_launch_template(template: str, config: str, market: str) -> None:
    says, given = TEMPLATES[template], CONFIGS[config]
    place = dataclasses.replace(PLACE, template=says)
    if "groups" in template and "interfaces" in config:
        with pytest.raises(Config, match="refuses together"):
            asked(given, place=place)
        return
    out = asked(given, place=place, offer=Offer("us-east-1a", market), spot=market == SPOT)
    assert aws_rules.refused("RunInstances", sent(out), says) is None


def test_what_a_template_says_is_kept() -> None:
    def with_template(name: str, **config: Any) -> dict[str, Any]:
        return asked(config, place=dataclasses.replace(PLACE, template=TEMPLATES[name]))

    groups = with_template("groups")
    assert "NetworkInterfaces" not in groups
    assert groups["SubnetId"] == "subnet-1"
    assert with_template("groups", SecurityGroupIds=["sg-9"])["SecurityGroupIds"] == ["sg-9"]
    (interface,) = with_template("interface")["NetworkInterfaces"]
    assert interface.items() >= INTERFACE.items()
    more = with_template("more")
    assert "InstanceType" not in more
    assert more["KeyName"] == "key", "by which we enter"
    assert "UserData" in with_template("groups"), "nobody may ever come"


def test_a_head_of_a_worker_s_template_does_not_shut_itself_down() -> None:
    def script(of: str, role: str) -> str | None:
        says = {"UserData": base64.b64encode(of.encode()).decode()}
        return asked({}, role, place=dataclasses.replace(PLACE, template=says)).get("UserData")

    assert script(first_boot.script(), MachineTags.HEAD) == "#!/bin/sh\n"
    assert script(first_boot.script(), MachineTags.WORKER) == first_boot.script()
    assert script("theirs", MachineTags.HEAD) is None


def test_own_user_data_keeps_the_script_that_ends_a_machine_that_nobody_enters() -> None:
    own = "#!/bin/bash\necho mine\n"
    template = {"UserData": base64.b64encode(own.encode()).decode()}
    for made in (
        asked({"UserData": own})["UserData"],
        asked({}, place=dataclasses.replace(PLACE, template=template))["UserData"],
    ):
        assert scripts_of(made) == [own, first_boot.script()]
    assert asked({"UserData": own}, MachineTags.HEAD)["UserData"] == own


def test_user_data_that_cannot_be_completed_is_refused() -> None:
    with pytest.raises(Config, match="no form that cloud-init reads"):
        asked({"UserData": "H4sIAAAA"})
    with pytest.raises(Config, match="16384 bytes at most"):
        asked({"UserData": "#!/bin/sh\n" + "x" * 16384})


def test_workers_let_in_the_key_of_the_cluster_beside_that_of_the_pair() -> None:
    place = dataclasses.replace(PLACE, workers_key="ssh-ed25519 AAAA c-1")
    assert "ssh-ed25519 AAAA c-1" in asked({}, place=place)["UserData"]
    assert "UserData" not in asked({}, MachineTags.HEAD, place=place)


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
