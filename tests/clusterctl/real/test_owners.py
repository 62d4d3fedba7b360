"""Two operators of equal user id and home folder, and SSH hosts that both may enter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusterctl.cli import Cli, alive
from tests.clusterctl.real.test_ssh import SPEC, what_is_left
from tests.polling import eventually
from tests.testbed.sshd import BARE, USER, SshTestbed, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here")


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshTestbed]:
    with SshTestbed(2, tmp_path_factory.mktemp("bed"), hidden=BARE) as bed, bed.inside():
        yield bed


def of(folder: Path, bed: SshTestbed) -> Cli:
    folder.mkdir()
    head, worker = bed.hosts
    spec = SPEC.format(head=head.address, workers=worker.address, user=USER, key=bed.key_file)
    (folder / "own.yaml").write_text(spec)
    return Cli(folder)


def test_an_operator_ends_another_ones_cluster_only_by_name(bed: SshTestbed, tmp_path: Path) -> None:
    ann, bob = of(tmp_path / "ann", bed), of(tmp_path / "bob", bed)
    try:
        ran = ann.run("up", "-y", "own.yaml", timeout_s=170)
        assert ran.status == 0, ran.err
        record = json.loads((ann.folder / "home" / "clusters" / "own" / "cluster.json").read_text())
        cluster_id, owner = record["cluster_id"], record["provider_settings"]["owner_name"]
        before = {node["node_id"] for node in alive(ann.status())}
        assert len(before) == 2

        for command in (("down", "-y"), ("down", "-y", "--abandon"), ("up", "-y")):
            ran = bob.run(*command, "own.yaml", timeout_s=100)
            assert ran.status in (2, 6), (command, ran.err)
            assert f"{cluster_id}" in ran.err
            assert owner in ran.err
            assert "--adopt" in ran.err
        ran = bob.run("down", "own.yaml", "--adopt", cluster_id)
        assert ran.status == 1, "nobody is there to be asked"
        assert f"{cluster_id} of {owner}" in bob.run("down", "-y", "own.yaml", "--adopt", "own-0").err
        assert {node["node_id"] for node in alive(ann.status())} == before, "nothing was touched"

        ran = bob.run("down", "-y", "own.yaml", "--adopt", cluster_id, timeout_s=100)
        assert ran.status == 0, ran.err
        assert "2 machines ended" in ran.out
        assert eventually(lambda: [what_is_left(host) for host in bed.hosts] == ["", ""])
    finally:
        ann.run("down", "-y", "own.yaml", timeout_s=100)
    assert not list((bob.folder / "home" / "adopted").glob("*"))
