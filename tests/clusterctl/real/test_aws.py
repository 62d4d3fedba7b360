"""A cluster on AWS: moto behind boto3, with instances that are real hosts. The head has no other credentials than those
of its instance profile, and may do no more than its role's policy says."""

from __future__ import annotations

import itertools
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clusterctl.cli import Cli, alive
from tests.clusterctl.real.kept_jobs import assert_kept, what_a_stop_keeps
from tests.polling import eventually
from tests.testbed.aws import Fault
from tests.testbed.aws_hosts import AwsCloud
from tests.testbed.sshd import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here")

SPEC = """\
cluster_name: cloud
provider: {{type: aws, region: us-east-1, endpoint_url: "{url}", tags: {{team: x}}}}
max_workers: 3
idle_timeout_minutes: 5
head_node_type: head
available_node_types:
  head:
    node_config: {{InstanceType: t3.medium}}
    resources: {{CPU: 0}}
  worker:
    node_config: {{InstanceType: t3.medium}}
    resources: {{CPU: 1}}
    spot: true
    zones: [us-east-1a, us-east-1b]
    min_workers: 1
"""
PROGRAM = """
import os
import socket
import time
import runtime

runtime.init()

@runtime.remote(num_cpus=1)
def where():
    time.sleep(1)
    return socket.gethostname()

print("ran on", len(set(runtime.get([where.remote() for _ in range({count})]))), "hosts")
"""
GUARDS = "pgrep -fc '[l]ease_guard.py .*/head_address 10$'; true"
# The guard of the lease, with seconds of patience instead of minutes.
SOONER = """
cd /home/admin/.clusterctl-node
pkill -f '[l]ease_guard.py .*head_address 10$'
su admin -c 'setsid python3 -I lease_guard.py head_address 0.02 </dev/null >/dev/null 2>&1 &'
"""


@pytest.fixture(scope="module")
def cloud() -> Iterator[AwsCloud]:
    with AwsCloud() as cloud, cloud.inside():
        yield cloud


def workers(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [node for node in alive(status) if not node["is_head"]]


@pytest.fixture
def cluster(cloud: AwsCloud, tmp_path: Path) -> Iterator[tuple[Cli, str]]:
    """An empty account, and a command line with a spec. In the end the cluster is taken down, and nothing is left."""
    cloud.reset()
    cli = Cli(tmp_path)
    spec = tmp_path / "cloud.yaml"
    spec.write_text(SPEC.format(url=cloud.aws.url))
    try:
        yield cli, str(spec)
    finally:
        ran = cli.run("down", "-y", str(spec), timeout_s=120)
    assert ran.status == 0, ran.err
    assert cloud.aws.leftovers() == []
    assert eventually(lambda: cloud.hosts.names() == [])


def test_from_an_empty_account_to_a_jobs_result(cloud: AwsCloud, cluster: tuple[Cli, str]) -> None:
    (cli, spec), aws = cluster, cloud.aws
    aws.world.capacity = {("t3.medium", "us-east-1a", "spot"): 0}
    aws.world.listing_lag_s = 1.0
    aws.world.profile_lag_s = 1.0
    ran = cli.run("up", "-y", spec, timeout_s=170)
    assert ran.status == 0, ran.err
    assert "prices: a table of" in ran.err, "moto's price list may not be asked"
    (head,) = (one for one in aws.instances("running") if not one.lifecycle)
    assert {one.availability_zone for one in aws.instances("running") if one.lifecycle} == {"us-east-1b"}
    assert not cloud.host(head.id).run(["find", "/home", "-name", ".aws"]), (
        "the head has its role and nothing else"
    )

    ran = cli.run("submit", cli.script(PROGRAM.format(count=6)), timeout_s=120)
    assert ran.status == 0, ran.err
    assert "ran on" in ran.out
    assert cli.wait(lambda status: len(workers(status)) >= 2), "work brings machines"

    # AWS gives notice to one machine, which is drained and ended before it is taken; another goes without a word.
    warned = next(one for one in aws.instances("running") if one.lifecycle)
    aws.warn(warned.id)
    assert eventually(lambda: warned.state != "running", 60.0)
    assert cli.wait(lambda status: len(workers(status)) >= 1)
    taken = next(one for one in aws.instances("running") if one.lifecycle)
    aws.interrupt(taken.id)
    assert cli.wait(lambda status: taken.private_ip not in str(workers(status)))
    assert cli.wait(lambda status: len(workers(status)) >= 1), "what is wanted is there"


def test_a_cluster_is_stopped_and_goes_on(cloud: AwsCloud, cluster: tuple[Cli, str]) -> None:
    (cli, spec), aws = cluster, cloud.aws
    aws.world.faults = [Fault("", "RequestLimitExceeded", status=503, times=3)]
    ran = cli.run("up", "-y", spec, timeout_s=170)
    assert ran.status == 0, ran.err
    before = aws.asked_by_people.total()
    ran = cli.run("up", "-y", spec)
    assert "nothing to do" in ran.out
    assert aws.asked_by_people.total() == before, "AWS need not be asked for that"
    (head,) = (one for one in aws.instances("running") if not one.lifecycle)
    kept = what_a_stop_keeps(cli)
    ran = cli.run("stop", "-y", timeout_s=120)
    assert ran.status == 0, ran.err
    assert {one.id: one.state for one in aws.instances()} == {head.id: "stopped"}
    ran = cli.run("up", "-y", spec, timeout_s=170)
    assert ran.status == 0, ran.err
    assert head.id in {one.id for one in aws.instances("running")}
    assert len(workers(cli.status())) >= 1
    assert cloud.host(head.id).run(["sh", "-c", "find /tmp -type f ! -path '*/nodes/*'"]) == "", (
        "sockets only"
    )
    assert_kept(cli, kept)

    # The head's machine is lost, and with it whoever would end the worker: its machine ends itself.
    (worker,) = (one for one in aws.instances("running") if one.lifecycle)
    host = cloud.host(worker.id)
    assert eventually(lambda: host.run(["sh", "-c", GUARDS]) == "1\n")
    aws.move(head, "shutting-down")
    host.run(["sh", "-c", SOONER])
    assert eventually(lambda: aws.instances() == [], 60.0)


def test_what_is_killed_on_the_way_goes_on(cloud: AwsCloud, cluster: tuple[Cli, str]) -> None:
    (cli, spec), aws = cluster, cloud.aws
    text = Path(spec).read_text()
    Path(spec).write_text(text.replace("min_workers: 1", "min_workers: 0"))
    first = cli.start("up", "-y", spec)
    assert eventually(lambda: aws.instances(), 60.0)
    cli.interrupt(first, signal.SIGKILL)
    calls = itertools.count()
    aws.world.faults = [Fault("", "InternalError", status=500, when=lambda _: next(calls) % 7 == 0)]
    ran = cli.run("up", "-y", spec, timeout_s=170)
    assert ran.status == 0, ran.err
    assert len(aws.instances()) == 1, "nothing was made twice"

    # Nobody uses it: the head ends its own machine, and what was around it goes with the next command.
    aws.world.faults = []
    assert cli.run("autostop", "--idle-minutes", "0.05", "--down").status == 0
    assert eventually(lambda: aws.instances() == [], 150.0)
    ran = cli.run("status")
    assert ran.status == 3
    assert "has ended by itself" in ran.err
    assert aws.leftovers() == []
    ran = cli.run("up", "-y", spec, timeout_s=170)
    assert ran.status == 0, ran.err

    aws.world.faults = [Fault("DeleteSecurityGroup", "DependencyViolation")]
    first = cli.start("down", "-y", spec)
    assert eventually(lambda: aws.calls["DeleteSecurityGroup"] > 0, 60.0)
    cli.interrupt(first, signal.SIGKILL)
    aws.world.faults = []  # and `down` once more


@pytest.mark.parametrize("is_named", [False, True], ids=["imported", "key pair of the account"])
def test_the_operators_key_stays_on_the_operators_machine(
    cloud: AwsCloud, tmp_path: Path, is_named: bool
) -> None:
    """The head enters its workers by the cluster's key, also where a type brings user data of its own."""
    cloud.reset()
    cli, spec, aws = Cli(tmp_path), str(tmp_path / "cloud.yaml"), cloud.aws
    key = cli.folder / "own"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    config = "InstanceType: t3.medium"
    if is_named:
        with aws.locked():
            aws.ec2.import_key_pair("mine", Path(f"{key}.pub").read_bytes(), {})
        config += ", KeyName: mine"
    own = f'{config}, UserData: "#!/bin/sh\\ntouch /tmp/own\\n"'
    text = SPEC.format(url=aws.url).replace("InstanceType: t3.medium", own if is_named else config)
    Path(spec).write_text(f"auth: {{ssh_private_key: {key}}}\n{text}")
    try:
        ran = cli.run("up", "-y", spec, timeout_s=170)
        assert ran.status == 0, ran.err
        assert cli.wait(lambda status: len(workers(status)) == 1)
        (head,) = (one for one in aws.instances("running") if not one.lifecycle)
        (worker,) = (one for one in aws.instances("running") if one.lifecycle)
        secret = key.read_text().splitlines()[2]
        assert cloud.host(head.id).run(["sh", "-c", f"grep -rlF -e '{secret}' /home /tmp /root; true"]) == ""
        ran = cli.run("exec", "--node", worker.id, "hostname; [ ! -e /tmp/own ] || echo own")
        assert ran.status == 0, ran.err
        assert ran.out.endswith("own\n") is is_named
    finally:
        down = cli.run("down", "-y", spec, timeout_s=120)
    assert down.status == 0, down.err
    assert aws.leftovers() == (["mine"] if is_named else [])
    assert eventually(lambda: cloud.hosts.names() == [])
