"""A cluster on machines of one's own, over SSH: three hosts that have a Python and an sshd, and nothing of ours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clusterctl.cli import Cli, alive
from tests.polling import eventually
from tests.testbed.hosts import Host
from tests.testbed.sshd import BARE, USER, SshTestbed, missing, sessions

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here")

SPEC = """\
cluster_name: own
provider: {{type: ssh, head: {head}, workers: [{workers}]}}
auth: {{ssh_user: {user}, ssh_private_key: {key}}}
idle_timeout_minutes: 5
"""
PROGRAM = """
import socket
import runtime

runtime.init()

@runtime.remote(num_cpus=1)
def where():
    return socket.gethostname()

names = ["h1", "h2", "h3"]
nodes = {node["NodeManagerHostname"]: node["NodeID"] for node in runtime.nodes() if node["Alive"]}
strategies = runtime.util.scheduling_strategies
here = [
    where.options(scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(nodes[name], soft=False)).remote()
    for name in names
]
print("ran on", *runtime.get(here))
"""
CLIENT = """
import time
from runtime.job_submission import JobSubmissionClient

client = JobSubmissionClient()
job = client.submit_job(entrypoint="echo on $(hostname)")
while not client.get_job_status(job).is_terminal():
    time.sleep(0.05)
print(client.get_job_status(job).value, client.get_job_logs(job), end="")
"""

SLOW = """
import os, time
import runtime

runtime.init()
(there,) = [node["NodeID"] for node in runtime.nodes() if node["NodeManagerHostname"] == "h2"]
strategies = runtime.util.scheduling_strategies

@runtime.remote(num_cpus=1, scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(there, soft=False))
def slow():
    open("/tmp/begun", "w").close()
    while not os.path.exists("/tmp/enough"):
        time.sleep(0.02)
    return bytes(1 << 20)

print(len(runtime.get(slow.remote())))
"""


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshTestbed]:
    with SshTestbed(3, tmp_path_factory.mktemp("bed"), hidden=BARE) as bed, bed.inside():
        yield bed


def what_is_left(host: Host) -> str:
    """Processes of the user, files beyond those that the host began with, keys that it did not have, its crontab."""
    look = (
        f"pgrep -u {USER} -a | grep -v sshd: ; cd /home/{USER}; find /tmp . -mindepth 1 -newer /run/host_key "
        "! -path './.ssh*'; ls .ssh | grep -vx authorized_keys; grep -v testbed .ssh/authorized_keys; "
        f"crontab -u {USER} -l 2>/dev/null"
    )
    return host.run(["sh", "-c", f"{look}; true"])


def kill_head(host: Host) -> None:
    """Kills the head and its keeper so that neither can start the other again before it is killed itself."""
    keeper = ["sh", "-c", "pgrep -f 'clusterctl[.]head[.]keeper '; true"]
    assert eventually(lambda: host.run(keeper)), "the head starts it when it is up"
    for number, module in (("STOP", "head"), ("KILL", "head[.]keeper"), ("KILL", "head")):
        host.run(["pkill", f"-{number}", "-u", USER, "-f", f"clusterctl[.]{module} "])


def test_a_machine_is_set_up_in_few_round_trips(bed: SshTestbed, tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    head, worker, _ = bed.hosts
    spec = tmp_path / "own.yaml"
    spec.write_text(SPEC.format(head=head.address, workers=worker.address, user=USER, key=bed.key_file))
    before = [sessions(head), sessions(worker)]
    try:
        ran = cli.run("up", "-y", str(spec), timeout_s=170)
        assert ran.status == 0, ran.err
        of_head, of_worker = sessions(head) - before[0], sessions(worker) - before[1]
    finally:
        cli.run("down", "-y", str(spec))
    # Each question and each command has a session. The head is examined, taken, greeted, asked what it has, installed
    # and started; the worker is examined here, lets the head in, which asks what it is, takes it, greets it, looks,
    # installs and starts. A machine that is asked late is asked once more.
    assert of_head <= 6 + 2
    assert of_worker <= 8 + 2


def test_from_bare_machines_to_a_jobs_result_and_back(bed: SshTestbed, tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    head, *workers = bed.hosts
    spec = tmp_path / "own.yaml"
    names = ", ".join(host.address for host in workers)
    spec.write_text(SPEC.format(head=head.address, workers=names, user=USER, key=bed.key_file))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "value").write_text("42\n")
    with spec.open("a") as file:
        file.write(f"file_mounts: {{~/mounted/data: {tmp_path}/data}}\n")
    try:
        ran = cli.run("up", "-y", str(spec), timeout_s=170)
        assert ran.status == 0, ran.err
        assert len(alive(cli.status())) == 3
        ran = cli.run("submit", cli.script(PROGRAM), timeout_s=120)
        assert ran.status == 0, ran.err
        assert "ran on h1 h2 h3" in ran.out
        client = subprocess.run(
            [sys.executable, "-c", CLIENT], env=cli.env(), capture_output=True, text=True, timeout=60
        )
        assert client.stdout == "SUCCEEDED on h1\n", client.stderr
        ran = cli.run("up", "-y", str(spec))
        assert "nothing to do" in ran.out
        assert cli.run("exec", "hostname").out == "h1\n"
        assert cli.run("exec", "--all-nodes", "cat mounted/data/value").out.count("| 42\n") == 3
    finally:
        ran = cli.run("down", "-y", str(spec))
    assert ran.status == 0, ran.err
    hosts = bed.hosts
    assert eventually(lambda: [what_is_left(host) for host in hosts] == [""] * len(hosts))


def test_machines_are_exchanged_in_a_running_cluster(bed: SshTestbed, tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    head, one, two = bed.hosts
    spec = tmp_path / "own.yaml"

    def write(worker: Host) -> str:
        spec.write_text(SPEC.format(head=head.address, workers=worker.address, user=USER, key=bed.key_file))
        return str(spec)

    def workers(status: dict[str, Any]) -> list[str]:
        return [node["address"].partition(":")[0] for node in alive(status) if not node["is_head"]]

    try:
        ran = cli.run("up", "-y", write(one), timeout_s=170)
        assert ran.status == 0, ran.err
        assert workers(cli.status()) == [one.address]
        job = cli.start("submit", cli.script(SLOW))
        assert eventually(lambda: one.run(["sh", "-c", "ls /tmp/begun 2>/dev/null; true"]))
        ran = cli.run("up", "-y", write(two), timeout_s=170)
        assert ran.status == 0, ran.err
        status = cli.status()
        assert "DRAINING" in {node["state"] for node in status["nodes"]}
        assert workers(status) == [two.address], (
            "another has come meanwhile: the one that leaves does not count"
        )
        one.run(["touch", "/tmp/enough"])
        out, err = job.communicate(timeout=60)
        assert "1048576" in out, err
        assert cli.wait(lambda status: "DRAINING" not in {node["state"] for node in status["nodes"]})
    finally:
        one.run(["sh", "-c", "rm -f /tmp/begun /tmp/enough"])
        ran = cli.run("down", "-y", str(spec))
    assert ran.status == 0, ran.err
    hosts = bed.hosts
    assert eventually(lambda: [what_is_left(host) for host in hosts] == [""] * len(hosts))
