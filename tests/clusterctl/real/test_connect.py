"""`clusterctl connect`: programs of the operator's machine drive a cluster on other hosts through its SSH tunnel."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusterctl.cli import Cli
from tests.testbed.sshd import BARE, USER, SshTestbed, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here")

SPEC = """\
cluster_name: far
provider: {{type: ssh, head: {head}, workers: [{worker}]}}
auth: {{ssh_user: {user}, ssh_private_key: {key}}}
"""
PROGRAM = """
import socket, sys
import runtime as ray

ray.init()

@ray.remote(num_cpus=1)
def where(data):
    return socket.gethostname(), len(data)

@ray.remote
class Counter:
    def __init__(self):
        self.count = 0
    def add(self, number):
        self.count += number
        return self.count

Affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
data = ray.put(bytes(5_000_000))
refs = [where.options(scheduling_strategy=Affinity(node, soft=False)).remote(data) for node in nodes]
print("hosts", sorted(ray.get(refs)))
counter = Counter.remote()
print("counted", ray.get([counter.add.remote(number) for number in range(5)])[-1])
sys.exit(7)
"""


@pytest.fixture
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshTestbed]:
    with SshTestbed(2, tmp_path_factory.mktemp("bed"), hidden=BARE) as bed, bed.inside():
        yield bed


def test_a_program_drives_a_cluster_on_other_hosts(bed: SshTestbed, tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    head, worker = (host.address for host in bed.hosts)
    (tmp_path / "far.yaml").write_text(SPEC.format(head=head, worker=worker, user=USER, key=bed.key_file))
    (tmp_path / "program.py").write_text(PROGRAM)
    ran = cli.run("up", "-y", "far.yaml", timeout_s=170)
    try:
        assert ran.status == 0, ran.err
        ran = cli.run("connect", "far", "--", sys.executable, "program.py", timeout_s=120)
        assert "hosts [('h1', 5000000), ('h2', 5000000)]" in ran.out, ran.out + ran.err
        assert "counted 10" in ran.out, ran.out + ran.err
        assert ran.status == 7, ran.err  # the command's own
        check_printed_variables(cli, tmp_path)
    finally:
        cli.run("down", "-y", "far", timeout_s=170)


def check_printed_variables(cli: Cli, folder: Path) -> None:
    """Without a command it prints what a program needs, works until Ctrl-C, and ends with it."""
    connect = cli.start("connect", "far")
    try:
        assert connect.stdout is not None
        lines = [connect.stdout.readline() for _ in range(2)]
        found = dict(re.findall(r"^export (\w+)=(\S+)$", "".join(lines), re.M))
        assert found.keys() == {"RAY_ADDRESS", "RAY_AUTH_TOKEN_PATH"}, lines
        program = subprocess.run(
            [sys.executable, "program.py"],
            cwd=folder,
            env={**cli.env(), **found},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert "counted 10" in program.stdout, program.stdout + program.stderr
    finally:
        connect.send_signal(signal.SIGINT)
        out, err = connect.communicate(timeout=60)
    assert connect.returncode == 0, out + err
