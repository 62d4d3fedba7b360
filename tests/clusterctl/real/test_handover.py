"""A cluster that one state folder made and another takes over."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterctl import exports
from tests.clusterctl.cli import Cli, alive
from tests.clusterctl.real.test_ssh import SPEC, what_is_left
from tests.polling import eventually
from tests.testbed.sshd import BARE, USER, SshTestbed, missing

pytestmark = pytest.mark.timeout(600)


def folder(path: Path) -> Cli:
    path.mkdir()
    return Cli(path)


def test_a_cluster_of_this_host_is_handed_over(tmp_path: Path) -> None:
    ann, bob = folder(tmp_path / "ann"), folder(tmp_path / "bob")
    file = str(tmp_path / "passed.cluster")
    try:
        ran = ann.run("up", "-y", ann.spec("passed"))
        assert ran.status == 0, ran.err
        ran = ann.run("cluster", "export", "passed", file)
        assert ran.status == 0, ran.err
        assert "anyone who has this file controls the cluster" in ran.err
        assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
        before = Path(file).read_bytes()
        ran = ann.run("cluster", "export", "passed", file)
        assert (ran.status, "exists already" in ran.err) == (2, True)
        assert Path(file).read_bytes() == before

        ran = bob.run("cluster", "import", file)
        assert ran.status == 0, ran.err
        assert [node["is_head"] for node in alive(bob.status())] == [True]
        assert bob.run("exec", "exit 3").status == 3
        ran = bob.run("up", "-y", "passed")
        assert (ran.status, "nothing to do" in ran.out) == (0, True), ran.err
        ran = bob.run("cluster", "import", file)
        assert (ran.status, "it is known here" in ran.err) == (2, True)
        ran = bob.run("cluster", "ssh-config")
        assert (ran.status, "are not entered by SSH" in ran.err) == (2, True)
        assert bob.run("down", "-y", "passed").status == 0
        assert ann.status()["nodes"] == []
    finally:
        ran = ann.run("down", "-y", ann.spec("passed"))
    assert ran.status in (0, 3), ran.err


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshTestbed]:
    if reason := missing():
        pytest.skip(reason)
    with SshTestbed(2, tmp_path_factory.mktemp("bed"), hidden=BARE) as bed, bed.inside():
        yield bed


def ssh(cli: Cli, host: str, command: str) -> str:
    """What a command prints that the real `ssh` runs on a machine of the cluster, by the entries for it."""
    ran = cli.run("cluster", "ssh-config", "own")
    assert ran.status == 0, ran.err
    file = cli.folder / "ssh_config"
    file.write_text(ran.out)
    words = ["ssh", "-F", str(file), "-o", "BatchMode=yes", host, command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_ssh_hosts_are_handed_over_without_the_operators_key(bed: SshTestbed, tmp_path: Path) -> None:
    ann, bob = folder(tmp_path / "ann"), folder(tmp_path / "bob")
    head, worker = bed.hosts
    spec = ann.folder / "own.yaml"
    spec.write_text(SPEC.format(head=head.address, workers=worker.address, user=USER, key=bed.key_file))
    file = tmp_path / "own.cluster"
    try:
        ran = ann.run("up", "-y", "--ssh-config", str(spec), timeout_s=170)
        assert ran.status == 0, ran.err
        assert "has entries for `ssh own` and 1 worker" in ran.err
        workers = [node["instance_id"] for node in alive(ann.status()) if not node["is_head"]]
        assert ssh(ann, "own", "hostname") == "h1"
        assert ssh(ann, f"own-{workers[0]}", "hostname") == "h2", "a machine that Ann has not entered before"

        ran = ann.run("cluster", "export", "own", str(file))
        assert ran.status == 0, ran.err
        assert f"{bed.key_file}, which is not in the file" in ran.err
        private = bed.key_file.read_bytes().splitlines()[1]
        assert not any(private in data for data in exports.read(str(file)).files.values())

        ran = bob.run("cluster", "import", str(file))
        assert ran.status == 0, ran.err
        assert len(alive(bob.status())) == 2
        assert ssh(bob, "own", "hostname") == "h1"
        ran = bob.run("exec", "--node", workers[0], "hostname")
        assert (ran.status, ran.out) == (0, "h2\n"), ran.err
        ran = bob.run("up", "-y", "own", timeout_s=100)
        assert (ran.status, "nothing to do" in ran.out) == (0, True), ran.err
        ran = bob.run("down", "-y", "own", timeout_s=100)
        assert ran.status == 0, ran.err
        assert eventually(lambda: [what_is_left(host) for host in bed.hosts] == ["", ""])
    finally:
        ann.run("down", "-y", str(spec), timeout_s=100)
