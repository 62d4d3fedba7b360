"""Whose a cluster on AWS is: the account and principal of the credentials, not the folder or the machine."""

from __future__ import annotations

from pathlib import Path

import boto3
import pytest

from autoscaler.provider import MachineTags
from clusterctl.providers.aws import clients, principal
from clusterctl.providers.aws.provider import AwsMachines
from clusterctl.providers.registry import make
from tests.clusterctl.providers.aws.cluster import Cluster, Make
from tests.testbed.aws import REGION, Aws

ROLE = "arn:aws:sts::123456789012:assumed-role/Admin"


@pytest.mark.parametrize(
    ("arn", "expected"),
    [
        ("arn:aws:iam::123456789012:user/ann", "arn:aws:iam::123456789012:user/ann"),
        (f"{ROLE}/ann@example.com", f"{ROLE}/ann@example.com"),
        (f"{ROLE}/botocore-session-1700000000", ROLE),
        (f"{ROLE}/i-0123456789abcdef0", ROLE),
        (f"{ROLE}/GitHubActions", ROLE),
        ("arn:aws:iam::123456789012:root", "arn:aws:iam::123456789012:root"),
    ],
)
def test_the_part_of_an_arn_that_stays(arn: str, expected: str) -> None:
    assert principal.stable(arn) == expected


@pytest.fixture
def people(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, str]]:
    """Two users of the account, with their keys."""
    iam = boto3.client("iam", endpoint_url=aws.url, region_name=REGION)
    keys = {}
    for name in ("ann", "bob"):
        iam.create_user(UserName=name)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        keys[name] = (key["AccessKeyId"], key["SecretAccessKey"])
    return keys


def as_(
    monkeypatch: pytest.MonkeyPatch, keys: tuple[str, str], one: Cluster, folder: Path, cluster_id: str
) -> AwsMachines:
    """The provider of a person whose state is in a folder."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys[1])
    monkeypatch.setattr(clients, "_SHARED", {})
    settings = {"owner_file": str(folder / "owner"), "folder": str(folder / "c")}
    found = make(one.spec, cluster_id, settings)
    assert isinstance(found, AwsMachines)
    return found


def test_people_do_not_meet_and_are_the_same_on_a_new_machine(
    cluster: Make, people: dict[str, tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, home = cluster(), tmp_path / "same"
    ann = as_(monkeypatch, people["ann"], one, home, "demo-1")
    ann.prepare(one.kinds)
    (machine,) = one.create("a", provider=ann).machines
    assert machine.tags["clusterctl-owner-name"] == "arn:aws:iam::123456789012:user/ann"
    head = ann.for_head().settings
    assert head["owner_name"].endswith("user/ann"), "the head's own principal is another"

    bob = as_(monkeypatch, people["bob"], one, home, "demo-1")
    assert bob.clusters("demo") == []
    (foreign,) = bob.foreign("demo")
    assert (foreign.cluster_id, foreign.machines) == ("demo-1", (machine.id,))
    assert str(foreign.owner) == "arn:aws:iam::123456789012:user/ann"

    elsewhere = as_(monkeypatch, people["ann"], one, tmp_path / "new laptop", "demo")
    assert elsewhere.clusters("demo") == ["demo-1"]
    assert elsewhere.foreign("demo") == []
    assert not (tmp_path / "new laptop" / "owner").exists()
    ours = as_(monkeypatch, people["ann"], one, tmp_path / "new laptop", "demo-1")
    assert [found.tags[MachineTags.CLUSTER_ID] for found in ours.list()] == ["demo-1"]
    assert ours.terminate([machine.id]) == {machine.id: None}
