"""Machines that are listed, entered, stopped and ended."""

from __future__ import annotations

import pytest

from autoscaler.provider import (
    Machine,
    MachineState,
    NotFound,
    Transient,
)
from clusterctl.providers.registry import make
from tests.clusterctl.providers.aws.cluster import Make
from tests.polling import eventually
from tests.testbed.aws import Aws, Fault


def test_an_operator_is_patient(aws: Aws, cluster: Make) -> None:
    one = cluster()
    aws.world.faults = [Fault("", "RequestLimitExceeded", status=503, times=3)]
    one.provider.prepare(one.kinds)
    assert len(aws.leftovers()) == 4


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
    with pytest.raises(NotFound, match="does not run"):
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
