"""A head whose machine reboots comes back by itself, with its jobs; one that is told to end does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusterctl.cli import Cli, alive
from tests.clusterctl.real.test_ssh import what_is_left
from tests.polling import eventually
from tests.testbed.gcp.server import Cloud
from tests.testbed.hosts import Host
from tests.testbed.sshd import BARE, USER, SshTestbed, has_cron, missing, start_cron

REASON = missing() or ("" if has_cron() else "cron of Debian's package cron is missing")
pytestmark = [
    pytest.mark.skipif(bool(REASON), reason=REASON or "there can be hosts here"),
    pytest.mark.timeout(400),
]

CLOUD = """\
cluster_name: boots
provider: {{type: gcp, region: us-west1, availability_zone: us-west1-a, project_id: a-project, endpoint: "{endpoint}"}}
auth: {{ssh_user: someone}}
head_node_type: head
available_node_types:
  head: {{resources: {{CPU: 1}}, node_config: {{machineType: e2-standard-2}}}}
  worker: {{min_workers: 1, max_workers: 1, resources: {{CPU: 1}}, node_config: {{machineType: n1-standard-2}}}}
"""
OWN = """\
cluster_name: boots
provider: {{type: ssh, head: {head}}}
auth: {{ssh_user: {user}, ssh_private_key: {key}}}
"""
BOOT = "cat /proc/sys/kernel/random/boot_id"
STOP = '"$CLUSTERCTL_PYTHON" -m clusterctl start --stop'
SLEEPS = "import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(600)\n"
OTHERS = "# of the person\n@yearly true\n"


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with Cloud(with_hosts=True) as cloud, cloud.inside():
        yield cloud


def crontab(host: Host, user: str) -> str:
    return host.run(["sh", "-c", f"crontab -u {user} -l 2>/dev/null || true"])


def by_hand(cloud: Cloud, name: str, act: str) -> None:
    """Somebody starts or stops a machine in the cloud's console."""
    zone, instance = name.split("/")
    path = f"projects/a-project/zones/{zone}/instances/{instance}/{act}"
    assert cloud.compute.call("POST", path, {}, None)[0] == 200


def test_a_head_comes_back_after_a_reboot_with_its_jobs(cloud: Cloud, tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    spec = tmp_path / "boots.yaml"
    spec.write_text(CLOUD.format(endpoint=cloud.endpoint))
    hosts = cloud.hosts
    assert hosts is not None
    try:
        ran = cli.run("up", "-y", str(spec), timeout_s=300)
        assert ran.status == 0, ran.err
        assert "reboot" not in ran.err
        (name,) = (name for name in hosts.names() if "-head-" in name)

        def host() -> Host:
            assert eventually(lambda: hosts.host(name))
            found = hosts.host(name)
            assert found is not None
            return found

        ours = crontab(host(), "someone")
        assert (ours.startswith("@reboot "), ours.count("\n")) == (True, 1)
        host().run(["sh", "-c", f"printf '{OTHERS}{ours}' | crontab -u someone -"])
        assert cli.run("submit", "--submission-id", "done", cli.script("print('said before')\n")).status == 0
        assert cli.run("submit", "--submission-id", "runs", "--no-wait", cli.script(SLEEPS)).status == 0
        assert eventually(lambda: "pid" in cli.run("job", "logs", "runs").out)
        assert cli.run("autostop", "--idle-minutes", "50", "--down").status == 0
        boot = cli.run("exec", BOOT).out

        hosts.reboot(name)
        assert eventually(lambda: cli.run("exec", BOOT).out not in ("", boot), 60.0)
        assert eventually(lambda: cli.run("job", "list").status == 0, 60.0)
        jobs = {job["submission_id"]: job for job in cli.run("job", "list", "--json").json()}
        assert jobs["done"]["status"] == "SUCCEEDED"
        assert (jobs["runs"]["status"], "restarted" in jobs["runs"]["message"]) == ("FAILED", True)
        assert "said before" in cli.run("job", "logs", "done").out
        assert cli.run("autostop", "--json").json()["idle_minutes"] == 50
        assert cli.wait(lambda status: len(alive(status)) == 2, 120.0), "the worker is there again"
        assert cli.run("exec", "pgrep -fc '[c]lusterctl.head '").out == "1\n"
        ran = cli.run("up", "-y", str(spec))
        assert "nothing to do" in ran.out
        ran = cli.run("submit", cli.script("print('said after')\n"), timeout_s=120)
        assert "said after" in ran.out

        # An operator who stopped the machine in the cloud's console and runs `up` gets one head, with the new spec.
        spec.write_text(f"{CLOUD.format(endpoint=cloud.endpoint)}idle_timeout_minutes: 7\n")
        by_hand(cloud, name, "stop")
        assert eventually(lambda: "TERMINATED" in [instance["status"] for instance in cloud.compute.all()])
        refused = (
            "does not answer and may be alive"  # until the kept connection to the machine counts as broken
        )
        assert eventually(lambda: refused not in cli.run("up", "-y", str(spec), timeout_s=300).err, 90.0)
        assert cli.run("exec", "pgrep -fc '[c]lusterctl.head '").out == "1\n"
        assert cli.run("exec", "grep -c 'idle_timeout_minutes\":7' ~/.clusterctl-node/head.json").out == "1\n"
        assert crontab(host(), "someone") == f"{OTHERS}{ours}"

        # `stop` leaves nothing that would start the head.
        assert cli.run("stop", "-y", timeout_s=120).status == 0
        by_hand(cloud, name, "start")
        assert crontab(host(), "someone") == OTHERS
        assert host().run(["sh", "-c", "pgrep -f '[c]lusterctl.head' || true"]) == ""
    finally:
        ran = cli.run("down", "-y", str(spec), timeout_s=150)
    assert ran.status == 0, ran.err
    assert eventually(lambda: not hosts.names())


def test_nothing_of_it_stays_on_a_machine_that_is_given_back(tmp_path: Path) -> None:
    with SshTestbed(1, tmp_path, hidden=BARE) as bed, bed.inside():
        (head,) = bed.hosts
        cli = Cli(tmp_path)
        spec = tmp_path / "own.yaml"
        spec.write_text(OWN.format(head=head.address, user=USER, key=bed.key_file))
        for others in ("", OTHERS):
            try:
                ran = cli.run("up", "-y", str(spec), timeout_s=170)
                assert ran.status == 0, ran.err
                if not others:
                    assert "does not survive a reboot" in ran.err
                    assert "nothing starts the head after a reboot" in cli.run("doctor").out
                    assert crontab(head, USER) == ""
                    start_cron(head)
                    assert cli.run("exec", STOP).status == 0
                    ran = cli.run("up", "-y", str(spec), timeout_s=170)
                    assert "does not survive a reboot" not in ran.err
                assert crontab(head, USER).startswith(f"{others}@reboot ")
                assert "reboot" not in cli.run("doctor").out
                assert cli.run("exec", STOP).status == 0
                assert crontab(head, USER) == others
                assert cli.run("up", "-y", str(spec), timeout_s=170).status == 0
                assert "@reboot" in what_is_left(head)
            finally:
                ran = cli.run("down", "-y", str(spec), timeout_s=120)
            assert ran.status == 0, ran.err
            assert what_is_left(head) == others
            head.run(["sh", "-c", f"printf '{OTHERS}' | crontab -u {USER} -"])
