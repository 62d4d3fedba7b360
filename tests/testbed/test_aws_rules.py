"""The test bed refuses what EC2 refuses."""

from __future__ import annotations

import pytest

from tests.testbed.aws_rules import read, refused

PLAIN = {"Action": "RunInstances", "Version": "2016-11-15", "MinCount": "1", "MaxCount": "1"}


def test_parameters_have_the_names_of_boto3() -> None:
    flat = {
        "NetworkInterface.1.SecurityGroupId.1": "sg-1",
        "NetworkInterface.1.DeviceIndex": "0",
        "TagSpecification.1.Tag.1.Key": "a",
        "Odd.1": "x",
        "Placement.Odd": "x",
    }
    found, unknown = read("RunInstances", flat)
    assert found["NetworkInterfaces"] == [{"Groups": ["sg-1"], "DeviceIndex": "0"}]
    assert found["TagSpecifications"] == [{"Tags": [{"Key": "a"}]}]
    assert unknown == ["Odd", "Placement.Odd"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"Odd": "x"}, "Odd is not recognized"),
        ({"NetworkInterface.1.DeviceIndex": "0", "SecurityGroupId.1": "sg-1"}, "security groups"),
        ({"NetworkInterface.1.DeviceIndex": "0", "SubnetId": "subnet-1"}, "subnet"),
        ({"NetworkInterface.1.SubnetId": "subnet-1"}, "device index"),
        ({"InstanceMarketOptions.SpotOptions.MaxPrice": "1"}, "market type spot only"),
        ({"TagSpecification.1.ResourceType": "spot-instances-request"}, "taggable"),
        ({"TagSpecification.1.Tag.1.Key": "aws:x"}, "reserved"),
        ({"ClientToken": "x" * 65}, "64"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, str], words: str) -> None:
    assert refused("RunInstances", PLAIN) is None
    refusal = refused("RunInstances", PLAIN | given)
    assert refusal is not None
    assert words in refusal[1]


def test_a_launch_template_counts() -> None:
    asked = PLAIN | {"NetworkInterface.1.DeviceIndex": "0"}
    assert refused("RunInstances", asked, {"ImageId": "ami-1"}) is None
    refusal = refused("RunInstances", asked, {"SecurityGroupIds": ["sg-1"]})
    assert refusal is not None
    assert refusal[0] == "InvalidParameterCombination"
