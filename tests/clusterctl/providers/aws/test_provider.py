"""The provider over boto3, against AWS as `tests.testbed.aws` plays it. Real hosts are elsewhere."""

from __future__ import annotations

import base64
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autoscaler.provider import (
    ON_DEMAND,
    SPOT,
    Auth,
    Capacity,
    Config,
    LaunchRequest,
    LaunchResult,
    Machine,
    MachineState,
    MachineTags,
    NodeType,
    NotFound,
    Offer,
    Problem,
    Quota,
    Throttled,
    Transient,
)
from clusterctl.launcher import node_types
from clusterctl.providers import make
from clusterctl.providers.aws import clients
from clusterctl.providers.aws import provider as module
from clusterctl.providers.aws.provider import AwsMachines
from clusterctl.spec.load import load_text
from tests.polling import eventually
from tests.testbed.aws import ROLE_KEY, Aws, Fault, as_a_person

SPEC = """\
cluster_name: demo
provider: {{type: aws, region: us-east-1, endpoint_url: "{url}"{provider}}}
{auth}
head_node_type: head
available_node_types:
  head: {{node_config: {{InstanceType: m5.large{head}}}}}
  worker: {{node_config: {{InstanceType: c5.xlarge{config}}}{worker}, min_workers: 1, max_workers: 8}}
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Aws]:
    with Aws() as aws:
        yield aws


@pytest.fixture
def aws(service: Aws, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    monkeypatch.setattr(module, "_PATIENCE_S", 2.0)
    monkeypatch.setattr(module, "_YOUNG_S", 1.0)
    monkeypatch.setattr(module, "_POLL_S", 0.02)
    service.reset()
    with as_a_person():
        yield service


class Cluster:
    """A spec, its node types and its provider."""

    def __init__(self, aws: Aws, folder: Path, **parts: str) -> None:
        filled = {name: parts.get(name, "") for name in ("provider", "auth", "head", "config", "worker")}
        self.spec = load_text(SPEC.format(url=aws.url, **filled))
        self.kinds = node_types.node_types(self.spec, {})
        self.head, self.worker = self.kinds
        self._folder = folder
        self.provider = self.provider_of("demo-1")

    def provider_of(self, cluster_id: str, **settings: str) -> AwsMachines:
        found = make(
            self.spec, cluster_id, {"owner": "me", "folder": str(self._folder / cluster_id), **settings}
        )
        assert isinstance(found, AwsMachines)
        return found

    def problems(self) -> list[Problem]:
        return self.provider.check(self.kinds)

    def create(
        self, *names: str, kind: NodeType | None = None, offer: Offer | None = None, **more: Any
    ) -> LaunchResult:
        kind = kind or self.worker
        role = MachineTags.HEAD if kind is self.head else MachineTags.WORKER
        offer = offer or self.provider.offers(kind)[0]
        tags = {MachineTags.CLUSTER_ID: "demo-1", MachineTags.ROLE: role}
        provider = more.get("provider", self.provider)
        return provider.create(LaunchRequest(more.get("token", "t"), kind, len(names), offer, tags, names))


Make = Callable[..., Cluster]


@pytest.fixture
def cluster(aws: Aws, tmp_path: Path) -> Make:
    return lambda **parts: Cluster(aws, tmp_path, **parts)


# ---------------------------------------------------------------- what is around the machines


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
    default = aws.ec2.get_default_vpc()
    for subnets in aws.ec2.subnets.values():
        subnets.clear()
    aws.ec2.vpcs.pop(default.id)
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


@pytest.mark.parametrize("after", [False, True], ids=["before it happens", "when it has happened"])
def test_an_interruption_at_any_call_is_made_good(
    aws: Aws, cluster: Make, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """The launcher loses AWS at every single call that changes something; doing it all again converges."""
    monkeypatch.setattr(module, "_PATIENCE_S", 0.0)
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


# ---------------------------------------------------------------- checks


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


def test_an_image_with_another_python_is_found(
    aws: Aws, cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 11, 7))
    words = "has Python 3.12, here is 3.11"
    config = ", ImageId: ubuntu-24.04"
    assert [words in problem.what for problem in cluster(config=config).problems()] == [True]
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


# ---------------------------------------------------------------- offers


def test_offers_have_prices_zones_and_resources(aws: Aws, cluster: Make) -> None:
    aws.world.prices = {"c5.xlarge": 0.19}
    one = cluster(worker=", zones: [us-east-1c, us-east-1a]")
    offers = one.provider.offers(one.worker)
    assert [(offer.zone, offer.market, offer.price) for offer in offers] == [
        ("us-east-1c", ON_DEMAND, 0.19),
        ("us-east-1a", ON_DEMAND, 0.19),
    ]
    assert offers[0].resources["CPU"] == 4
    assert one.provider.capabilities.price_source == "AWS's price list of today"


def test_the_table_serves_where_aws_may_not_be_asked(aws: Aws, cluster: Make) -> None:
    one = cluster()
    assert one.provider.offers(one.worker)[0].price == pytest.approx(0.17)
    one.provider.offers(one.head)
    assert aws.calls["GetProducts"] == 1, "who refused is left alone for a while"
    assert "days old" in one.provider.capabilities.price_source


def test_spot_comes_first_and_others_follow(aws: Aws, cluster: Make) -> None:
    aws.world.spot_price = 0.05
    one = cluster(worker=", spot: true, zones: [us-east-1a, us-east-1b]")
    found = [(offer.zone, offer.market, offer.price) for offer in one.provider.offers(one.worker)]
    assert found == [
        ("us-east-1a", SPOT, 0.05),
        ("us-east-1b", SPOT, 0.05),
        ("us-east-1a", ON_DEMAND, 0.17),
        ("us-east-1b", ON_DEMAND, 0.17),
    ]
    only = cluster(config=", InstanceMarketOptions: {MarketType: spot}")
    assert {offer.market for offer in only.provider.offers(only.worker)} == {SPOT}


def test_dearer_offers_are_none(aws: Aws, cluster: Make) -> None:
    aws.world.spot_price = 0.05
    one = cluster(worker=", spot: true, max_price: 0.1")
    assert {offer.market for offer in one.provider.offers(one.worker)} == {SPOT}
    one.provider.prepare(one.kinds)
    made = one.create("a").machines[0]
    assert made.market == SPOT
    aws.world.spot_price = 0.2
    assert cluster(worker=", spot: true, max_price: 0.1").provider.offers(one.worker) == []


# ---------------------------------------------------------------- machines


def test_machines_have_what_was_asked_for(aws: Aws, cluster: Make) -> None:
    one = cluster(config=", BlockDeviceMappings: [{DeviceName: /dev/xvda, Ebs: {VolumeSize: 77}}]")
    one.provider.prepare(one.kinds)
    made = one.create("a", "b")
    assert made.errors == ()
    assert [machine.instance_id for machine in made.machines] == ["a", "b"]
    listed = {machine.instance_id: machine for machine in one.provider.list()}
    assert set(listed) == {"a", "b"}
    assert listed["a"].state is MachineState.RUNNING
    assert listed["a"].address.startswith("172.31.")
    assert listed["a"].public_address
    instance = aws.ec2.get_instance(listed["a"].id)
    assert instance.metadata_options.http_tokens == "required"
    assert instance.instance_initiated_shutdown_behavior == "terminate"
    sizes = {device.size for device in instance.block_device_mapping.values()}
    assert sizes == {77}
    assert instance.key_name == "clusterctl-demo-1"


def test_internal_machines_have_no_public_address(aws: Aws, cluster: Make) -> None:
    one = cluster(provider=", use_internal_ips: true")
    one.provider.prepare(one.kinds)
    one.create("a")
    assert one.provider.list()[0].public_address == ""


def test_a_lost_answer_makes_nothing_twice(aws: Aws, cluster: Make) -> None:
    one = cluster()
    one.provider.prepare(one.kinds)
    aws.world.faults = [Fault("RunInstances", "InternalError", status=500, times=1, after=True)]
    made = one.create("a", "b")
    assert len(made.machines) == 2
    assert len(aws.instances()) == 2


def test_the_same_token_with_another_image_finds_what_was_made(aws: Aws, cluster: Make) -> None:
    one = cluster()
    one.provider.prepare(one.kinds)
    first = one.create("a").machines
    newer = cluster(config=", ImageId: ubuntu-24.04")
    again = newer.create("a", offer=one.provider.offers(one.worker)[0])
    assert [machine.id for machine in again.machines] == [machine.id for machine in first]
    assert len(aws.instances()) == 1


def test_part_of_what_was_asked_for_is_part_of_the_answer(aws: Aws, cluster: Make) -> None:
    one = cluster()
    one.provider.prepare(one.kinds)
    aws.world.capacity = {("c5.xlarge", "us-east-1a", ON_DEMAND): 2}
    made = one.create("a", "b", "c")
    assert [machine.instance_id for machine in made.machines] == ["a", "b"]
    assert [type(error) for error in made.errors] == [Capacity]
    none = one.create("d", "e", token="u")
    assert none.machines == ()
    assert [type(error) for error in none.errors] == [Capacity, Capacity]
    other = next(offer for offer in one.provider.offers(one.worker) if offer.zone == "us-east-1b")
    assert len(one.create("d", token="u", offer=other).machines) == 1


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("VcpuLimitExceeded", 400, Quota),
        ("UnauthorizedOperation", 403, Auth),
        ("InvalidParameterValue", 400, Config),
    ],
)
def test_refusals_are_part_of_the_answer(aws: Aws, cluster: Make, code: str, status: int, kind: type) -> None:
    one = cluster()
    one.provider.prepare(one.kinds)
    aws.world.faults = [Fault("RunInstances", code, status=status)]
    made = one.create("a")
    assert [type(error) for error in made.errors] == [kind]


def test_the_head_leaves_patience_to_its_autoscaler(aws: Aws, cluster: Make) -> None:
    one = cluster()
    one.provider.prepare(one.kinds)
    head = one.provider_of("demo-1", on_head="yes")
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


def test_an_operator_is_patient(aws: Aws, cluster: Make) -> None:
    one = cluster()
    aws.world.faults = [Fault("", "RequestLimitExceeded", status=503, times=3)]
    one.provider.prepare(one.kinds)
    assert len(aws.leftovers()) == 4


def test_a_young_profile_is_waited_for(aws: Aws, cluster: Make) -> None:
    one = cluster()
    aws.world.profile_lag_s = 0.7
    one.provider.prepare(one.kinds)
    assert len(one.create("h", kind=one.head).machines) == 1
    assert aws.calls["RunInstances"] > 1


def test_a_machine_is_listed_from_its_launch_on(aws: Aws, cluster: Make) -> None:
    one = cluster()
    one.provider.prepare(one.kinds)
    aws.world.listing_lag_s = 60.0
    made = one.create("a").machines[0]
    assert cluster().provider.list() == [], "the listing lags"
    assert [machine.id for machine in one.provider.list()] == [made.id]
    aws.world.listing_lag_s = 0.0
    assert one.provider.list()[0].state is MachineState.RUNNING
    one.provider.terminate([made.id])
    assert [machine.state for machine in one.provider.list()] == [MachineState.GONE]


def test_a_machine_that_ec2_does_not_know_yet_is_not_taken_for_gone(aws: Aws, cluster: Make) -> None:
    one = cluster()
    one.provider.prepare(one.kinds)
    made = one.create("a").machines[0]
    aws.world.faults = [Fault("TerminateInstances", "InvalidInstanceID.NotFound", times=2)]
    assert isinstance(one.provider.terminate([made.id])[made.id], Transient)
    assert one.provider.terminate([made.id]) == {made.id: None}
    assert isinstance(one.provider.terminate([made.id])[made.id], NotFound)


def test_a_spot_machine_that_is_taken_back_is_listed_so(aws: Aws, cluster: Make) -> None:
    one = cluster(worker=", spot: true")
    one.provider.prepare(one.kinds)
    made = one.create("a").machines[0]
    aws.world.instant = False
    aws.interrupt(made.id)
    assert one.provider.list()[0].state is MachineState.STOPPING
    aws.move(aws.ec2.get_instance(made.id), "terminated")
    assert one.provider.list()[0].state is MachineState.GONE


def test_machines_are_stopped_and_started(aws: Aws, cluster: Make) -> None:
    one = cluster()
    one.provider.prepare(one.kinds)
    made = one.create("h", kind=one.head).machines[0]
    one.provider.stop([made.id])
    assert one.provider.list()[0].state is MachineState.STOPPED
    assert one.provider.clusters("demo") == ["demo-1"]
    one.provider.start([made.id])
    assert eventually(lambda: one.provider.list()[0].state is MachineState.RUNNING)


def test_a_machine_that_is_remembered_is_entered_without_asking(aws: Aws, cluster: Make) -> None:
    one = cluster()
    one.provider.prepare(one.kinds)
    one.create("h", kind=one.head)
    (head,) = one.provider.list()
    calls = aws.calls.total()
    assert str(cluster().provider.shell(head)._target) == f"admin@{head.public_address}:22"
    assert aws.calls.total() == calls
    bare = Machine(head.id, MachineState.RUNNING, "", {})
    assert str(one.provider.shell(bare)._target) == f"admin@{head.public_address}:22"
    one.provider.stop([head.id])
    with pytest.raises(NotFound, match="is stopped"):
        one.provider.shell(bare)
    one.provider.terminate([head.id])
    with pytest.raises(NotFound, match="there is no machine"):
        one.provider.shell(bare)


def test_a_listing_has_many_pages(aws: Aws, cluster: Make) -> None:
    one = cluster()
    one.provider.prepare(one.kinds)
    aws.world.page_size = 2
    for number in range(5):
        one.create(f"{number}a", f"{number}b", token=str(number))
    assert len({machine.instance_id for machine in one.provider.list()}) == 10
    assert aws.calls["DescribeInstances"] == 3


def test_what_is_left_of_a_forgotten_cluster_is_found(aws: Aws, cluster: Make) -> None:
    one = cluster()
    one.provider.prepare(one.kinds)
    assert one.provider.clusters("demo") == ["demo-1"]
    assert one.provider.clusters("other") == []
    strange = make(one.spec, "demo-1", {"owner": "somebody else", "folder": "/none"})
    assert strange.clusters("demo") == []
    one.provider.cleanup()
    assert one.provider.clusters("demo") == []


def test_the_heads_role_suffices_for_the_autoscaler(
    aws: Aws, cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call that the head makes is in its policy, and no other is allowed."""
    one = cluster(worker=", spot: true")
    one.provider.prepare(one.kinds)
    monkeypatch.setattr(clients, "_SHARED", {})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ROLE_KEY + b"clusterctl-demo-1".hex().upper())
    head = one.provider_of("demo-1", on_head="yes")
    offers = head.offers(one.worker)
    made = [
        one.create(name, provider=head, offer=offer, token=name)
        for name, offer in zip("ab", offers, strict=False)
    ]
    assert [result.errors for result in made] == [(), ()]
    head.list()
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
