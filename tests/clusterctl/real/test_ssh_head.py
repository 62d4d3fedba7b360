"""Heads that cannot be reached, and heads that are dead, over SSH: only the machine proves which of the two it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clusterctl.cli import Cli, alive
from tests.clusterctl.real.test_ssh import SPEC, kill_head, what_is_left
from tests.polling import eventually
from tests.testbed.hosts import Host
from tests.testbed.sshd import BARE, USER, SshTestbed, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here")


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshTestbed]:
    with SshTestbed(2, tmp_path_factory.mktemp("bed"), hidden=BARE) as bed, bed.inside():
        yield bed


@pytest.fixture(scope="module")
def cli(bed: SshTestbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """With a cluster that is up, and `own.yaml`."""
    cli = Cli(tmp_path_factory.mktemp("cli"))
    head, worker = bed.hosts
    spec = SPEC.format(head=head.address, workers=worker.address, user=USER, key=bed.key_file)
    (cli.folder / "own.yaml").write_text(spec)
    ran = cli.run("up", "-y", "own.yaml", timeout_s=170)
    assert ran.status == 0, ran.err
    yield cli
    assert cli.run("down", "-y", "own.yaml", timeout_s=170).status == 0
    assert eventually(lambda: [what_is_left(host) for host in bed.hosts] == ["", ""])


def nodes(cli: Cli) -> set[str]:
    return {node["node_id"] for node in alive(cli.status())}


def again(bed: SshTestbed, host: Host, *options: str) -> None:
    bed.stop_sshd(host)
    bed.start_sshd(host, *options)


@pytest.mark.parametrize("setting", ["AllowTcpForwarding=no", "PermitOpen=none"])
def test_a_tunnel_that_is_refused_is_no_dead_head(bed: SshTestbed, cli: Cli, setting: str) -> None:
    head = bed.hosts[0]
    before = nodes(cli)
    assert len(before) == 2
    again(bed, head, setting)
    try:
        ran = cli.run("up", "-y", "own.yaml")
        looked = cli.run("status")
        examined = cli.run("doctor")
    finally:
        again(bed, head)
    assert ran.status == 1, ran.err
    assert "does not answer and may be alive: its daemon runs (process" in ran.err
    assert "its sshd opens no tunnel" in ran.err
    assert "nothing was touched" in ran.err
    assert looked.status == 5
    assert "its sshd opens no tunnel" in looked.err
    assert "its sshd opens no tunnel" in examined.out
    assert nodes(cli) == before, "nothing was ended"


def test_a_head_whose_daemons_were_killed_is_proved_dead_and_started_again(bed: SshTestbed, cli: Cli) -> None:
    """Without a keeper only `up` starts the head, and its cluster's nodes are new. (A head that its keeper restarts may
    keep its workers, see `test_head_restart.py`.)"""
    before = nodes(cli)
    kill_head(bed.hosts[0])
    asked = cli.run("up", "own.yaml")
    if asked.status:  # as long as the worker's node has not ended by itself
        assert "their nodes run or may still run" in asked.err
        ran = cli.run("up", "-y", "own.yaml", timeout_s=170)
        assert ran.status == 0, ran.err
    after = nodes(cli)
    assert len(after) == 2
    assert not after & before


def test_a_follower_is_told_of_the_heads_death(bed: SshTestbed, cli: Cli) -> None:
    job = cli.start("submit", cli.script("import time\nprint('waits', flush=True)\ntime.sleep(600)\n"))
    assert job.stdout is not None
    assert job.stdout.readline() == "waits\n"
    kill_head(bed.hosts[0])
    _, err = job.communicate(timeout=40)  # as long as a network may fail would be a minute
    assert job.returncode == 5
    assert "does not answer" in err
    assert cli.run("up", "-y", "own.yaml", timeout_s=170).status == 0


def test_a_worker_whose_processes_were_killed_is_replaced_on_its_machine(bed: SshTestbed, cli: Cli) -> None:
    before = nodes(cli)
    bed.hosts[1].run(
        ["sh", "-c", f"pkill -KILL -u {USER} -f 'clusterctl[.]head[.]join|runtime[.]_|zygote'; true"]
    )
    assert cli.wait(
        lambda status: len(alive(status)) == 2 and {n["node_id"] for n in alive(status)} != before
    )
    assert not [f for f in cli.status()["autoscaler"]["failures"] if "belongs to" in f["reason"]]
