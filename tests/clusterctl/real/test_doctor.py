"""`clusterctl doctor` on real clusters that were broken on purpose."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clusterctl.cli import Cli
from tests.polling import eventually
from tests.stalls import suspend


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A cluster of a head and one worker."""
    cli = Cli(tmp_path_factory.mktemp("cli"))
    ran = cli.run("up", "-y", cli.spec("ill", least=1))
    assert ran.status == 0, ran.err
    yield cli
    for name in ("ill", "wrong"):
        cli.run("down", "-y", str(cli.folder / f"{name}.yaml"))


def findings(cli: Cli, *words: str) -> list[dict[str, Any]]:
    ran = cli.run("doctor", "--json", *words)
    found = ran.json()["findings"]
    assert ran.status == (1 if any(item["severity"] == "error" for item in found) else 0)
    return list(found)


def test_a_cluster_that_is_well(cli: Cli) -> None:
    assert findings(cli) == []
    ran = cli.run("doctor", str(cli.folder / "ill.yaml"))
    assert (ran.status, ran.out) == (0, "cluster 'ill' is well: 2 machines looked at, the head answers\n")


def test_a_secret_that_others_may_read_or_that_is_another(cli: Cli) -> None:
    path = cli.folder / "home" / "clusters" / "ill" / "secret"
    right = path.read_bytes()
    path.chmod(0o644)
    try:
        (found,) = findings(cli)
        assert found["advice"] == f"Run: chmod 600 {path}"
        path.chmod(0o600)
        path.write_bytes(b"0" * 64)
        (found,) = findings(cli)
        assert "does not accept this machine's secret" in found["what"]
    finally:
        path.write_bytes(right)
        path.chmod(0o600)


def test_a_head_that_hangs(cli: Cli) -> None:
    pid = cli.run("exec", "cat $CLUSTERCTL_SESSION_DIR/daemon.json").json()["pid"]
    suspend(pid)
    try:
        (found,) = findings(cli)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "does not answer in time" in found["what"]
    assert eventually(lambda: findings(cli) == [])


def test_a_record_that_is_damaged_or_lost(cli: Cli) -> None:
    path = cli.folder / "home" / "clusters" / "ill" / "cluster.json"
    right = path.read_bytes()
    path.write_text("{")
    damaged, lost = findings(cli, str(cli.folder / "ill.yaml"))
    path.write_bytes(right)
    assert "is damaged" in damaged["what"]
    assert "nobody remembers here" in lost["what"]


def test_a_node_that_cannot_be_made(cli: Cli) -> None:
    extra = "worker_setup_commands: ['echo the disk is full >&2; exit 28']\n"
    assert cli.run("up", "-y", cli.spec("wrong", least=1, extra=extra)).status == 1
    found = findings(cli, "wrong")
    failed = [item for item in found if "failed at step" in item["what"]]
    assert "at step 'worker_setup_commands[0]'" in failed[0]["what"]
    assert "the disk is full" in failed[0]["what"]
    assert "clusterctl logs --node" in failed[0]["advice"]
    assert cli.run("down", "-y", "wrong").status == 0


def test_a_head_that_died(cli: Cli) -> None:
    pid = cli.run("exec", "--cluster", "ill", "cat $CLUSTERCTL_SESSION_DIR/daemon.json").json()["pid"]
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: "the head's machine does not run" in str(findings(cli, "ill")))
    shutil.rmtree(cli.folder / "home" / "clusters")
    (found,) = findings(cli, str(cli.folder / "ill.yaml"))
    assert "nobody remembers here" in found["what"]
    assert "clusterctl down" in found["advice"]
