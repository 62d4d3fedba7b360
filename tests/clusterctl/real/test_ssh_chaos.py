"""Bad luck in the middle of `up` and `down` over SSH: the launcher is killed at any of its steps, a host is cut off,
crashes or fills up. One more `up` or `down` puts it right, and leaves nothing.

LAUNCHER_CHAOS=all kills at every step instead of at some, LAUNCHER_CHAOS=NUMBER chooses others.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusterctl.cli import Cli, Ran, alive
from tests.clusterctl.real.test_ssh import SPEC, what_is_left
from tests.polling import eventually
from tests.testbed.hosts import Host
from tests.testbed.sshd import BARE, USER, SshTestbed, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here")

CHOICE = os.environ.get("LAUNCHER_CHAOS", "7")
HOME = f"/home/{USER}"
UP_STEPS = (
    "creating the head",
    "setting up the head",
    "  head (head): set up: wait for the shell",
    "  head (head): set up: install the runtime",
    "  head (head): set up: start",
    "  head (head): joined",
    "waiting for 1 worker",
    " (worker): set up: ",
)
DOWN_STEPS = (
    "it has begun",
    "a machine was given back",
    "all machines were given back",
    "the keys are taken back",
)
"""Told by what can be seen on the hosts."""


def chosen(steps: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Some of the steps, or all."""
    if CHOICE == "all":
        return steps
    return tuple(random.Random(f"{CHOICE} {steps[0]}").sample(steps, count))


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshTestbed]:
    with SshTestbed(2, tmp_path_factory.mktemp("bed"), hidden=BARE) as bed, bed.inside():
        yield bed


@pytest.fixture
def cli(tmp_path: Path, bed: SshTestbed) -> Iterator[Cli]:
    """With `own.yaml` of both hosts. At the end nothing must be left of any cluster, here or there."""
    cli = Cli(tmp_path)
    head, worker = bed.hosts
    spec = SPEC.format(head=head.address, workers=worker.address, user=USER, key=bed.key_file)
    (tmp_path / "own.yaml").write_text(spec)
    yield cli
    assert down(cli).status in (0, 3)
    assert [what_is_left(host) for host in bed.hosts] == ["", ""]
    assert [*(tmp_path / "home" / "clusters").glob("*/cluster.json")] == []
    assert not (tmp_path / "home" / "clusters" / "own" / "machines").exists()


def up(cli: Cli) -> Ran:
    return cli.run("up", "-y", "own.yaml", timeout_s=170)


def down(cli: Cli) -> Ran:
    return cli.run("down", "-y", "own.yaml", timeout_s=170)


def begun(cli: Cli, step: str) -> subprocess.Popen[str]:
    """An `up` that has come to a step; or to its end, where a worker has joined before anybody looked."""
    process = cli.start("up", "-y", "own.yaml")
    assert process.stderr is not None
    seen = []
    while line := process.stderr.readline():
        seen.append(line)
        if step in line:
            return process
    process.communicate()
    if process.returncode == 0 and "worker" in step:
        return process
    raise AssertionError(f"`up` never said {step!r}: {''.join(seen)}")


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)


def is_given_back(host: Host) -> bool:
    return host.run(["sh", "-c", f"ls -d {HOME}/.clusterctl-node 2>/dev/null; true"]) == ""


def has_come_to(step: str, bed: SshTestbed) -> bool:
    """Whether what `down` does can be seen to have come so far."""
    back = [is_given_back(host) for host in bed.hosts]
    if step == "it has begun":
        return True
    if step == "a machine was given back":
        return any(back)
    if step == "all machines were given back":
        return all(back)
    return all(back) and USER_KEY not in bed.hosts[1].run(["cat", f"{HOME}/.ssh/authorized_keys"])


USER_KEY = "clusterctl:"
"""In the comment of a cluster's key."""


@pytest.mark.parametrize(
    ("going_up", "going_down"), [*zip(chosen(UP_STEPS, 1), chosen(DOWN_STEPS, 1) * 5, strict=False)]
)
def test_a_killed_launcher_is_gone_on_with(bed: SshTestbed, cli: Cli, going_up: str, going_down: str) -> None:
    kill(begun(cli, going_up))
    ran = up(cli)
    assert ran.status == 0, ran.err
    assert len(alive(cli.status())) == 2
    process = cli.start("down", "-y", "own.yaml")
    eventually(lambda: process.poll() is not None or has_come_to(going_down, bed))
    kill(process)
    ran = down(cli)
    assert ran.status in (0, 3), ran.err  # 3: it was killed when all was done


def test_a_killed_launcher_leaves_what_one_down_ends(bed: SshTestbed, cli: Cli) -> None:
    for step in chosen(UP_STEPS[::-1], 1):
        kill(begun(cli, step))
        ran = down(cli)
        assert ran.status == 0, ran.err
        assert [what_is_left(host) for host in bed.hosts] == ["", ""]


def test_a_host_that_is_cut_off_comes_later_and_is_ended_later(bed: SshTestbed, cli: Cli) -> None:
    worker = bed.hosts[1]
    process = begun(cli, " (worker): set up: ")
    bed.cut_off(worker)
    kill(process)
    bed.plug_in(worker)
    ran = up(cli)
    assert ran.status == 0, ran.err
    assert len(alive(cli.status())) == 2
    bed.cut_off(worker)
    try:
        ran = down(cli)
    finally:
        bed.plug_in(worker)
    assert ran.status not in (0, 3)
    assert worker.address in ran.err
    assert "clusterctl down" in ran.err, "it says what to do"
    assert what_is_left(bed.hosts[0]) == ""
    agents = ["sh", "-c", f"pgrep -u {USER} -f clusterctl; true"]
    assert eventually(lambda: worker.run(agents) == ""), "a node ends by itself without its head"
    ran = down(cli)
    assert ran.status == 0, ran.err


@pytest.mark.parametrize("role", [0, 1], ids=["head", "worker"])
def test_a_host_that_crashes_is_set_up_again(bed: SshTestbed, cli: Cli, role: int) -> None:
    """A reboot, as it looks from outside: every process is gone, /tmp is empty, and the disk is as it was."""
    host = bed.hosts[role]
    process = begun(cli, "  head (head): set up: start" if role == 0 else " (worker): set up: ")
    bed.stop_sshd(host)
    host.run(["sh", "-c", f"pkill -KILL -u {USER}; pkill -KILL '^sshd'; rm -rf /tmp/*; true"])
    kill(process)
    bed.start_sshd(host)
    ran = up(cli)
    assert ran.status == 0, ran.err
    assert len(alive(cli.status())) == 2


def test_a_host_without_room_is_named_and_keeps_nothing(bed: SshTestbed, cli: Cli) -> None:
    head = bed.hosts[0]
    own = "mkdir /run/kept && cp -a {0}/. /run/kept && mount -t tmpfs -o size=2g,mode=700 home {0}"
    head.run(["sh", "-c", f"{own} && cp -a /run/kept/. {{0}} && chown {USER}: {{0}}".format(HOME)])
    try:
        process = begun(cli, "setting up the head")
        head.run(["mount", "-o", "remount,size=8m", HOME])
        _, err = process.communicate(timeout=170)
        assert process.returncode == 1
        assert "step 'install the runtime'" in err
        assert "is full" in err
        assert is_given_back(head)
        head.run(["mount", "-o", "remount,size=2g", HOME])
        ran = up(cli)
        assert ran.status == 0, ran.err
        assert down(cli).status == 0
    finally:
        head.run(["sh", "-c", f"umount -l {HOME}; rm -rf /run/kept"])
