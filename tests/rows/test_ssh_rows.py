"""Rows of docs/incumbents.md that need machines of their own: real hosts, entered by SSH."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clusterctl.cli import Cli, alive
from tests.polling import eventually, stays
from tests.testbed.hosts import Host
from tests.testbed.sshd import BARE, USER, SshTestbed, missing, new_key

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here")

SPEC = """\
cluster_name: {name}
provider: {{type: ssh, head: {head}, workers: [{workers}]{more}}}
auth: {{ssh_user: {user}, ssh_private_key: {key}}}
"""
PROGRAM = """
import socket
import runtime

runtime.init()
node_id = next(node["NodeID"] for node in runtime.nodes() if node["NodeManagerHostname"] == "h2")
there = runtime.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id, soft=False)
print("ran on", runtime.get(runtime.remote(lambda: socket.gethostname()).options(scheduling_strategy=there).remote()))
"""
OLD_PYTHON = """\
#!/bin/sh
echo "3.9 cpython-39-x86_64-linux-gnu glibc-2.36 99999999999 $(date +%s)"
"""


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshTestbed]:
    with SshTestbed(3, tmp_path_factory.mktemp("bed"), hidden=BARE) as bed, bed.inside():
        yield bed


@pytest.fixture(scope="module")
def cli(bed: SshTestbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A cluster of the first two hosts."""
    cli = Cli(tmp_path_factory.mktemp("cli"))
    file = spec(cli, bed, "rows", bed.hosts[0], bed.hosts[1])
    ran = cli.run("up", "-y", file, timeout_s=170)
    assert ran.status == 0, ran.err
    yield cli
    ran = cli.run("down", "-y", file)
    assert ran.status == 0, ran.err


def spec(
    cli: Cli, bed: SshTestbed, name: str, head: Host, *workers: Host, key: Path | None = None, **more: str
) -> str:
    path = cli.folder / f"{name}.yaml"
    names = ", ".join(host.address for host in workers)
    provider = "".join(f", {option}: {value}" for option, value in more.items())
    path.write_text(
        SPEC.format(
            name=name, head=head.address, workers=names, user=USER, key=key or bed.key_file, more=provider
        )
    )
    return str(path)


def on(host: Host, command: str) -> str:
    return host.run(["sh", "-c", command])


def said(process: subprocess.Popen[str]) -> str:
    """Why it failed."""
    _, err = process.communicate(timeout=120)
    assert process.returncode not in (0, None), err
    return err


def test_row_03_a_machine_that_cannot_be_entered_is_told_as_what_it_is(
    bed: SshTestbed, tmp_path: Path
) -> None:
    """It waited for SSH without end, and had the same words for a machine that boots, one behind a firewall and one
    that does not know the key."""
    refusing, silent, strange = bed.hosts
    other_key = tmp_path / "other"
    new_key(other_key)
    cli = Cli(tmp_path)
    bed.stop_sshd(refusing)
    try:
        with bed.mute(silent):
            ups = [
                cli.start("up", "-y", spec(cli, bed, "refusing", refusing)),
                cli.start("up", "-y", spec(cli, bed, "silent", silent)),
                cli.start("up", "-y", spec(cli, bed, "strange", strange, key=other_key)),
            ]
            words = [said(process) for process in ups]
    finally:
        bed.start_sshd(refusing)
    assert f"{refusing.address}:22 refuses the connection" in words[0]
    assert f"{silent.address}:22 does not answer" in words[1]
    assert f"{strange.address}:22 does not accept {other_key}" in words[2]


def test_row_10_a_python_that_is_too_old_is_refused_before_anything_is_installed(
    bed: SshTestbed, tmp_path: Path
) -> None:
    """Nodes with an unfit version of Python were set up at length, and failed at the first task."""
    host = bed.hosts[2]
    on(host, f"cat > /usr/local/python3.9 <<'END'\n{OLD_PYTHON}END\nchmod 755 /usr/local/python3.9")
    cli = Cli(tmp_path)
    ran = cli.run("up", "-y", spec(cli, bed, "old", host, python="/usr/local/python3.9"))
    assert ran.status == 2
    assert f"{host.address} has Python 3.9" in ran.err
    assert on(host, f"ls -A /home/{USER} | grep -v '^.bash\\|.profile\\|.ssh'; true") == ""


def drop_connections(host: Host) -> None:
    """Ends the sessions that there are."""
    on(host, f"pkill -u {USER} -x sshd; true")


def worker_of(cli: Cli) -> dict[str, Any]:
    (worker,) = (node for node in alive(cli.status()) if not node["is_head"])
    return dict(worker)


def test_row_16_a_node_that_cannot_be_entered_by_ssh_works_on(cli: Cli, bed: SshTestbed) -> None:
    """A connection that broke was taken for the machine's death, and the machine was replaced under its work."""
    host = bed.hosts[1]
    before = worker_of(cli)
    bed.stop_sshd(host)
    drop_connections(host)
    try:
        ran = cli.run("exec", "--node", before["instance_id"], "true")
        assert ran.status != 0
        looks = len(cli.status()["autoscaler"]["events"])
        assert stays(lambda: worker_of(cli)["node_id"] == before["node_id"], looks=10)
        ran = cli.run("submit", cli.script(PROGRAM), timeout_s=120)
        assert "ran on h2" in ran.out, ran.err
        assert len(cli.status()["autoscaler"]["events"]) == looks, "nothing was ended, nothing launched"
    finally:
        bed.start_sshd(host)
    assert eventually(lambda: cli.run("exec", "--node", before["instance_id"], "hostname").out == "h2\n")
    assert worker_of(cli)["node_id"] == before["node_id"]


def test_row_25_a_machine_that_shows_another_key_is_not_entered(cli: Cli, bed: SshTestbed) -> None:
    """Host keys were not looked at: whoever took a machine's address was given the cluster's secret."""
    host = bed.hosts[1]
    instance = worker_of(cli)["instance_id"]
    assert cli.run("exec", "--node", instance, "hostname").out == "h2\n"
    on(host, "cp /run/host_key /run/first_key; cp /run/host_key.pub /run/first_key.pub")
    bed.change_host_key(host)
    drop_connections(host)
    ran = cli.run("exec", "--node", instance, "echo entered")
    assert ran.status != 0
    assert "entered" not in ran.out
    assert "key" in ran.err
    bed.stop_sshd(host)
    on(host, "mv /run/first_key /run/host_key; mv /run/first_key.pub /run/host_key.pub")
    bed.start_sshd(host)
    assert cli.run("exec", "--node", instance, "hostname").out == "h2\n"
