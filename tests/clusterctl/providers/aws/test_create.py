"""Machines that are made, or are not."""

from __future__ import annotations

import pytest

from autoscaler.provider import (
    ON_DEMAND,
    Auth,
    Capacity,
    Config,
    MachineState,
    Quota,
)
from tests.clusterctl.providers.aws.cluster import Make
from tests.testbed.aws import Aws, Fault


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


def test_a_young_profile_is_waited_for(aws: Aws, cluster: Make) -> None:
    one = cluster()
    aws.world.profile_lag_s = 0.7
    one.provider.prepare(one.kinds)
    assert len(one.create("h", kind=one.head).machines) == 1
    assert aws.calls["RunInstances"] > 1
