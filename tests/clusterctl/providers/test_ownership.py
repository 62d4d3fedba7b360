"""Whose a cluster is, where no cloud tells: an id that a state folder keeps."""

from __future__ import annotations

import os
import pathlib
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from autoscaler.provider import Config, Machine, MachineState, MachineTags
from clusterctl.providers import ownership
from clusterctl.providers.ownership import ForeignCluster, Owner, Ownership


def machine(name: str, owner: Owner, cluster: str, state: MachineState = MachineState.RUNNING) -> Machine:
    return Machine(name, state, "w", {MachineTags.CLUSTER_ID: cluster, **owner.tags()})


def test_a_state_folder_has_one_id_that_only_its_user_reads(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "owner")
    with ThreadPoolExecutor(8) as pool:
        found = {owner.id for owner in pool.map(ownership.of_file, [path] * 32)}
    assert len(found) == 1
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(tmp_path) == ["owner"]
    assert ownership.of_file(str(tmp_path / "other")).id not in found, (
        "equal user and machine, another folder"
    )


def test_an_id_that_cannot_be_kept_is_told(tmp_path: pathlib.Path) -> None:
    with pytest.raises(Config, match="cannot be used"):
        ownership.of_file(str(tmp_path / "gone" / "owner"))
    (tmp_path / "owner").touch()
    with pytest.raises(Config, match="it is empty"):
        ownership.of_file(str(tmp_path / "owner"))


def test_a_principal_is_the_same_owner_everywhere(tmp_path: pathlib.Path) -> None:
    asked: list[None] = []

    def principal() -> str:
        asked.append(None)
        return "arn:aws:iam::1:user/Ann Lee"

    one = Ownership({"owner_file": str(tmp_path / "a")}, principal)
    assert one.owner == one.owner == Ownership({"owner_file": str(tmp_path / "b")}, principal).owner
    assert one.owner.name == "arn:aws:iam::1:user/Ann_Lee"
    assert len(asked) == 2
    assert os.listdir(tmp_path) == [], "no id was needed"


def test_what_is_remembered_is_not_asked_again(tmp_path: pathlib.Path) -> None:
    first = Ownership({"owner_file": str(tmp_path / "owner")}).owner
    assert Ownership(first.settings(), lambda: "another by now").owner == first
    assert Ownership({"owner": "0123"}).owner.tags() == {ownership.OWNER_TAG: "0123"}, "a former version's"


def test_clusters_of_others_are_named() -> None:
    me, bob, old = Owner("1", "me"), Owner("2", "bob@there"), Owner("3")
    listed = [
        machine("a", me, "c-1"),
        machine("c", bob, "c-2"),
        machine("b", bob, "c-2"),
        machine("d", bob, "c-2", MachineState.GONE),
        machine("e", old, "c-3", MachineState.STOPPED),
    ]
    found = ownership.foreign(listed, me)
    assert found == [ForeignCluster("c-2", bob, ("b", "c")), ForeignCluster("c-3", old, ("e",))]
    assert str(found[0]) == "c-2 of bob@there (2 machines: b, c)"
    assert "not known (tag 3)" in str(found[1])
