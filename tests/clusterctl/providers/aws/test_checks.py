"""What is found before anything is made."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.provider import (
    NodeType,
)
from clusterctl.providers.aws import clients, images
from tests.clusterctl.providers.aws.cluster import Make
from tests.testbed.aws import Aws, Fault


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"config": ", ImageId: ami-00000000000000000"}, "no image ami-00000000000000000"),
        ({"config": ", ImageId: debian-99"}, "'debian-99' is no image"),
        ({"config": ", InstanceTyp: x"}, 'Unknown parameter in input: "InstanceTyp"'),
        ({"config": ", EbsOptimized: 7"}, "EbsOptimized"),
        ({"config": ", KeyName: none"}, "no key pair none"),
        ({"config": ", IamInstanceProfile: {Name: none}"}, "no instance profile none"),
        ({"config": ", SubnetIds: [subnet-1]"}, "a subnet that is named is not there"),
        ({"worker": ", zones: [us-east-1x]"}, "no subnet in us-east-1x"),
        ({"worker": ", max_price: 0.01"}, "max_price is 0.01"),
        ({"provider": ", ssh_cidr_blocks: [home]"}, "ssh_cidr_blocks"),
        (
            {
                "provider": ", security_group: {IpPermissions: [{FromPort: x, IpRanges: [{CidrIp: 10.0.0.0/8}]}]}"
            },
            "provider.security_group: Invalid type",
        ),
        ({"provider": ", vpc_id: vpc-1"}, "no subnet with a way to the internet"),
        ({"auth": "auth: {ssh_private_key: /none}"}, "there is no file /none"),
        ({"provider": ', tags: {note: "a & b"}'}, "'a & b' has other letters"),
        ({"provider": ", tags: {aws:x: y}"}, "are not the operator's: 'aws:x'"),
        ({"config": ", DisableApiTermination: true"}, "nobody could end the machine"),
    ],
)
def test_wrong_settings_are_found_before_anything_is_made(
    aws: Aws, cluster: Make, parts: dict[str, str], words: str
) -> None:
    found = [problem.what for problem in cluster(**parts).problems() if problem.fatal]
    assert any(words in text for text in found), found
    assert aws.leftovers() == []


def test_an_unknown_instance_type_is_found(aws: Aws, cluster: Make) -> None:
    one = cluster()
    kind = NodeType("odd", node_config={"InstanceType": "m5.gigantic"}, max_workers=1)
    (problem,) = one.provider.check([one.head, kind])
    assert "there is no instance type m5.gigantic in us-east-1" in problem.what
    assert one.provider.check([one.head, NodeType("plain", max_workers=1)]) == []


def test_an_image_of_another_architecture_is_found(aws: Aws, cluster: Make) -> None:
    one = cluster()
    arm = one.provider._catalog.image(
        NodeType("arm", node_config={"InstanceType": "m6g.large", "ImageId": "debian-12"})
    )
    assert arm.architecture == "arm64"
    kind = NodeType("odd", node_config={"InstanceType": "m5.large", "ImageId": arm.id}, max_workers=1)
    (problem,) = one.provider.check([one.head, kind])
    assert "is for arm64, m5.large is x86_64" in problem.what


@pytest.mark.parametrize("action", ["RunInstances", "CreateSecurityGroup", "ImportKeyPair"])
def test_a_missing_permission_is_named_with_what_aws_says_of_it(aws: Aws, cluster: Make, action: str) -> None:
    encoded = base64.urlsafe_b64encode(b"secret").decode().rstrip("=")
    aws.world.decoded = {encoded: {"action": f"ec2:{action}", "resource": "arn:aws:ec2:us-east-1:1:thing/*"}}
    words = f"You are not authorized. Encoded authorization failure message: {encoded}"
    aws.world.faults = [Fault(action, "UnauthorizedOperation", words, 403)]
    problems = [problem for problem in cluster().problems() if problem.fatal]
    assert len(problems) == 1
    assert f"allow ec2:{action} on arn:aws:ec2:us-east-1:1:thing/*" in problems[0].what


def test_without_credentials_there_is_one_problem(
    aws: Aws, cluster: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(clients, "_SHARED", {})
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    (problem,) = cluster().problems()
    assert "no credentials for AWS" in problem.what
    monkeypatch.setattr(clients, "_SHARED", {})
    monkeypatch.setenv("AWS_PROFILE", "none")
    (problem,) = cluster().problems()
    assert "settings for AWS are wrong" in problem.what


def test_expired_credentials_are_called_so(aws: Aws, cluster: Make) -> None:
    aws.world.faults = [Fault("GetCallerIdentity", "ExpiredToken", "The token is expired", 403)]
    (problem,) = cluster().problems()
    assert "have expired" in problem.what


def test_quotas_are_compared_with_what_the_cluster_may_have(aws: Aws, cluster: Make) -> None:
    one = cluster()  # at least 2 + 4 virtual CPUs, at most 2 + 8 * 4
    aws.world.quotas = {"L-1216C47A": 5}
    (problem,) = one.problems()
    assert problem.fatal
    assert "at least 6 virtual CPUs" in problem.what
    aws.world.quotas = {"L-1216C47A": 16}
    (problem,) = one.problems()
    assert not problem.fatal
    assert "up to 34 virtual CPUs" in problem.what
    aws.world.quotas = {"L-1216C47A": 34}
    assert one.problems() == []


def test_a_first_disk_that_is_none_is_found(aws: Aws, cluster: Make) -> None:
    config = ", BlockDeviceMappings: [{{DeviceName: {name}, Ebs: {{VolumeSize: 100}}}}]"
    (problem,) = cluster(config=config.format(name="/dev/sda1")).problems()
    assert "/dev/sda1 is not the first disk" in problem.what
    assert not problem.fatal
    assert cluster(config=config.format(name="/dev/xvda")).problems() == []
    assert cluster(config=config.format(name="/dev/sdf")).problems() == []


def test_an_image_whose_python_is_too_old_is_found(
    aws: Aws, cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "has Python 3.10, and nodes need 3.11 or newer"
    monkeypatch.setattr(images.default_family, "__defaults__", ((3, 11), False))
    config = ", ImageId: ubuntu-24.04"
    one = cluster(config=config)
    assert one.problems() == []
    assert {target.version for target in one.provider.targets(one.kinds).values()} == {"3.11", "3.12"}
    old = replace(images.FAMILIES["ubuntu-24.04"], python=(3, 10))
    monkeypatch.setattr(images, "FAMILIES", {**images.FAMILIES, "ubuntu-24.04": old})
    one = cluster(config=config)
    assert [words in problem.what for problem in one.problems()] == [True]
    assert {target.version for target in one.provider.targets(one.kinds).values()} == {"3.11"}
    assert cluster(config=config, provider=", python: /opt/python3.11/bin/python3").problems() == []
    assert cluster(config=config, auth="docker: {image: x}").problems() == []


def test_whom_one_is_is_the_image_s_unless_the_operator_names_an_image(aws: Aws, cluster: Make) -> None:
    auth = "auth: {ssh_user: ubuntu}"
    one = cluster(auth=auth)
    one.provider.prepare(one.kinds)
    assert one.create("a").machines[0].tags["clusterctl-ssh-user"] == "admin"
    assert any("one is admin" in problem.what and not problem.fatal for problem in one.problems())
    named = cluster(auth=auth, config=", ImageId: debian-12")
    assert named.create("b", token="u").machines[0].tags["clusterctl-ssh-user"] == "ubuntu"


def test_a_region_that_does_not_exist_is_named(aws: Aws, cluster: Make) -> None:
    one = cluster(region="us-easy-1", url="")
    (problem,) = one.problems()
    assert "no region us-easy-1" in problem.what


def test_keys_that_aws_does_not_know_are_called_so(aws: Aws, cluster: Make) -> None:
    aws.world.faults = [Fault("GetCallerIdentity", "SignatureDoesNotMatch", "Signature expired", 403)]
    (problem,) = cluster().problems()
    assert "does not accept the credentials" in problem.what
    assert "clock" in problem.what
