"""What became of a cluster whose head does not answer."""

from __future__ import annotations

import pathlib

import pytest

from autoscaler.provider import Machine, MachineState, MachineTags
from clusterctl import home as homes
from clusterctl.home import ClusterRecord, Home
from clusterctl.launcher.notice import Fate, fate
from clusterctl.spec.load import load_text

SPEC = "cluster_name: c\nprovider: {type: local}\nhead_node_type: head\navailable_node_types: {head: {}}\n"


def record(tmp_path: pathlib.Path, stops_itself: bool = True) -> ClusterRecord:
    made = homes.new_record(Home(tmp_path), load_text(SPEC), "c.yaml")
    made.state, made.stops_itself = homes.UP, stops_itself
    return made


def head(state: MachineState) -> Machine:
    return Machine("m-1", state, "head", {MachineTags.ROLE: MachineTags.HEAD})


@pytest.mark.parametrize(
    ("listed", "became"),
    [
        ([], Fate.ENDED),
        ([head(MachineState.STOPPED)], Fate.STOPPED),
        ([head(MachineState.STOPPING)], Fate.STOPPED),
        ([head(MachineState.RUNNING)], Fate.UNKNOWN),
        ([Machine("w-1", MachineState.RUNNING, "worker", {})], Fate.UNKNOWN),
    ],
)
def test_of_a_cluster_that_ends_by_itself(
    tmp_path: pathlib.Path, listed: list[Machine], became: Fate
) -> None:
    assert fate(record(tmp_path), listed) is became


def test_of_another_cluster_nothing_is_concluded(tmp_path: pathlib.Path) -> None:
    assert fate(record(tmp_path, stops_itself=False), []) is Fate.UNKNOWN
