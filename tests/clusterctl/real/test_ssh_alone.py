"""Machines of one's own whose operator is away: a connection breaks, the record is lost, nobody is there any more."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusterctl.cli import Cli, alive
from tests.clusterctl.real.test_ssh import SPEC, kill_head, what_is_left
from tests.polling import eventually
from tests.testbed.sshd import BARE, USER, SshTestbed, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here")

COUNTS = """
import os, sys, time
number = 0
while not os.path.exists(sys.argv[1]):
    print("line", number, flush=True)
    number += 1
    time.sleep(0.02)
print("the end", number, flush=True)
"""
BREAK = "pkill -KILL -f '^sshd: .*@notty'; true"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshTestbed]:
    with SshTestbed(2, tmp_path_factory.mktemp("bed"), hidden=BARE) as bed, bed.inside():
        yield bed


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    return Cli(tmp_path_factory.mktemp("cli"))


@pytest.fixture(scope="module")
def spec(bed: SshTestbed, cli: Cli) -> Iterator[str]:
    """A cluster of two hosts."""
    head, worker = bed.hosts
    file = cli.folder / "own.yaml"
    file.write_text(SPEC.format(head=head.address, workers=worker.address, user=USER, key=bed.key_file))
    ran = cli.run("up", "-y", str(file), timeout_s=170)
    assert ran.status == 0, ran.err
    yield str(file)
    cli.run("down", "-y", str(file))


def test_what_is_followed_goes_on_where_it_was_when_connections_broke(
    bed: SshTestbed, cli: Cli, spec: str
) -> None:
    follower = cli.start("submit", "--submission-id", "counts", cli.script(COUNTS), "/tmp/enough")
    assert follower.stdout is not None
    seen = [follower.stdout.readline() for _ in range(20)]
    watcher = cli.start("logs", "-f", "--file", "job-counts", "-n", "1000000")
    assert watcher.stdout is not None
    headline, *shown = [watcher.stdout.readline() for _ in range(21)]
    assert headline == "==> job-counts.log <==\n"
    for _ in range(2):
        bed.hosts[0].run(["sh", "-c", BREAK])
        seen += [follower.stdout.readline() for _ in range(20)]
        shown += [watcher.stdout.readline() for _ in range(20)]
    bed.hosts[0].run(["touch", "/tmp/enough"])
    seen += follower.stdout.readlines()  # `communicate` would lose what is buffered
    follower.communicate(timeout=60)
    while "the end" not in shown[-1]:
        shown.append(watcher.stdout.readline())
    cli.interrupt(watcher)
    bed.hosts[0].run(["rm", "/tmp/enough"])
    assert follower.returncode == 0
    lines = [f"line {number}\n" for number in range(len(seen) - 1)]
    assert seen == [*lines, f"the end {len(lines)}\n"]
    assert shown == seen


def test_commands_reach_the_workers_too(bed: SshTestbed, cli: Cli, spec: str) -> None:
    head, worker = bed.hosts
    ran = cli.run("exec", "--all-nodes", "hostname")
    assert sorted(line.split(" | ")[1] for line in ran.out.splitlines()) == ["h1", "h2"]
    assert cli.run("get-head-ip").out == f"{head.address}\n"
    assert cli.run("get-worker-ips").out == f"{worker.address}\n"
    assert cli.run("exec", "--node", worker.address, "hostname").out == "h2\n"


def test_the_doctor_says_why_machines_cannot_be_entered(bed: SshTestbed, cli: Cli, spec: str) -> None:
    head, worker = bed.hosts

    def findings() -> list[str]:
        found = [item["what"] for item in cli.run("doctor", "--json").json()["findings"]]
        # No cron runs on these hosts.
        return [what for what in found if what != "nothing starts the head after a reboot of its machine"]

    assert findings() == []
    bed.stop_sshd(worker)
    (found,) = findings()
    assert f"({worker.address}) refuses connections" in found
    worker.run(["sh", "-c", "mkdir /run/kept; cp /run/host_key* /run/kept"])
    bed.start_sshd(worker)
    bed.change_host_key(worker)
    (found,) = findings()
    assert f"({worker.address}) shows another host key than before" in found
    worker.run(["sh", "-c", "cp /run/kept/* /run; rm -r /run/kept"])
    bed.stop_sshd(worker)
    bed.start_sshd(worker)
    key = f"/home/{USER}/.ssh/authorized_keys"
    head.run(["mv", key, "/run/keys"])
    (found,) = findings()
    assert f"({head.address}) does not accept our key" in found
    head.run(["mv", "/run/keys", key])
    kill_head(head)
    assert any("the head's process has ended; the last that it wrote" in found for found in findings())


def test_a_cluster_is_found_again_by_its_tags_alone(bed: SshTestbed, cli: Cli, spec: str) -> None:
    shutil.rmtree(cli.folder / "home" / "clusters")
    ran = cli.run("down", "--dry-run", spec)
    assert ran.status == 0, ran.err
    assert ran.out.count("end ") == 2
    ran = cli.run("up", "-y", spec, timeout_s=170)
    assert ran.status == 0, ran.err
    assert len(alive(cli.status())) == 2
    shutil.rmtree(cli.folder / "home")  # with the id that tells whose clusters these are
    refused = cli.run("down", "-y", spec)
    assert refused.status == 6, refused.err
    cluster_id = refused.err.split("--adopt ")[1].split()[0]
    assert cli.run("down", "-y", spec, "--adopt", cluster_id).status == 0
    for host in bed.hosts:
        assert what_is_left(host) == ""


def test_machines_are_given_back_when_nobody_uses_them(bed: SshTestbed, cli: Cli, spec: str) -> None:
    Path(spec).write_text(Path(spec).read_text() + "autostop: {idle_minutes: 60, down: true}\n")
    ran = cli.run("up", "-y", spec, timeout_s=170)
    assert ran.status == 0, ran.err
    cli.run("autostop", "--idle-minutes", "0.03", "--down")
    head, worker = bed.hosts
    left = [
        "sh",
        "-c",
        f"ls -d /home/{USER}/.clusterctl-node 2>/dev/null; pgrep -u {USER} -f clusterctl; true",
    ]
    assert eventually(lambda: not head.run(left) and not worker.run(left))
    ran = cli.run("status")
    assert ran.status == 3
    assert "has ended by itself" in ran.err
    for host in bed.hosts:
        assert what_is_left(host) == ""


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_command_in_tmux_of_a_worker_takes_the_cluster_with_it(
    bed: SshTestbed, cli: Cli, spec: str
) -> None:
    ran = cli.run("up", "-y", spec, timeout_s=170)
    assert ran.status == 0, ran.err
    _, worker = bed.hosts
    ran = cli.run("exec", "--node", worker.address, "--tmux", "--down", "hostname | sudo tee /run/ran-on")
    assert ran.status == 0, ran.err
    left = ["sh", "-c", f"ls -d /home/{USER}/.clusterctl-node 2>/dev/null; true"]
    assert eventually(lambda: not any(host.run(left) for host in bed.hosts), 60.0)
    assert worker.run(["cat", "/run/ran-on"]) == "h2\n"
    assert cli.run("status").status == 3
