"""A cluster of Google Compute Engine from nothing to nothing: Google's SDK against a pretended platform whose instances
are real hosts, entered by SSH with the key in their metadata."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clusterctl.cli import Cli, alive
from tests.polling import eventually
from tests.testbed.gcp.server import Cloud
from tests.testbed.sshd import missing

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here"),
    pytest.mark.timeout(400),
]

SPEC = """\
cluster_name: Google_1
provider:
  type: gcp
  region: us-west1
  availability_zone: us-west1-a, us-west1-b
  project_id: a-project
  endpoint: {endpoint}
auth: {{ssh_user: someone}}
max_workers: 2
head_node_type: head
available_node_types:
  head:
    resources: {{CPU: 0}}
    node_config: {{machineType: e2-standard-2}}
  worker:
    min_workers: 1
    max_workers: 2
    spot: true
    resources: {{CPU: 1}}
    node_config: {{machineType: n1-standard-2}}
"""
PROGRAM = """
import runtime

runtime.init()

@runtime.remote(num_cpus=1)
class Here:
    def labels(self):
        (node,) = [n for n in runtime.nodes() if n["NodeID"] == runtime.get_runtime_context().get_node_id()]
        return node["Labels"]

two = [Here.remote(), Here.remote()]
for labels in runtime.get([one.labels.remote() for one in two]):
    print("ran in", labels["ray.io/availability-zone"], labels["ray.io/market-type"])
"""


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with Cloud(with_hosts=True) as cloud, cloud.inside():
        yield cloud


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """One for all tests: the archives of what is installed here are made once."""
    return Cli(tmp_path_factory.mktemp("cli"))


def workers(status: dict[str, Any]) -> list[str]:
    return [node["address"].partition(":")[0] for node in alive(status) if not node["is_head"]]


def test_from_nothing_to_a_jobs_result_and_back_to_nothing(cloud: Cloud, cli: Cli, tmp_path: Path) -> None:
    spec = tmp_path / "google.yaml"
    spec.write_text(SPEC.format(endpoint=cloud.endpoint))
    compute = cloud.compute
    compute.faults.stockouts.add(("us-west1-a", "spot"))
    try:
        ran = cli.run("up", "-y", str(spec), timeout_s=300)
        assert ran.status == 0, ran.err
        assert len(workers(cli.status())) == 1
        ran = cli.run("up", "-y", str(spec))
        assert "nothing to do" in ran.out

        # Without its head the worker would shut its machine down.
        ran = cli.run(
            "exec", "--all-nodes", "pgrep -f '[l]ease_guard.py' >/dev/null && echo guarded || echo free"
        )
        assert sorted(line.split(" | ")[1] for line in ran.out.splitlines()) == ["free", "guarded"]

        # One machine more for the job; where there are no spot machines, none is looked for twice.
        ran = cli.run("submit", cli.script(PROGRAM), timeout_s=200)
        assert ran.status == 0, ran.err
        assert ran.out.count("ran in us-west1-b spot") == 2

        # The platform takes a machine back: another one takes its place.
        lost = next(
            i for i in compute.all() if i["networkInterfaces"][0]["networkIP"] in workers(cli.status())
        )
        compute.preempt(lost["name"])
        address = lost["networkInterfaces"][0]["networkIP"]
        assert cli.wait(lambda status: workers(status) and address not in workers(status), 200)

        # Nobody uses it: the head ends the worker and stops itself. It keeps its disk; its public address is
        # another one afterwards.
        assert cli.run("autostop", "--idle-minutes", "0.05").status == 0
        assert eventually(lambda: [i["status"] for i in compute.all()] == ["TERMINATED"], 150)
        ran = cli.run("status")
        assert ran.status == 5
        assert "has stopped by itself" in ran.err
        ran = cli.run("up", "-y", str(spec), timeout_s=300)
        assert ran.status == 0, ran.err
        assert cli.wait(lambda status: len(workers(status)) == 1, 200)
    finally:
        ran = cli.run("down", "-y", str(spec), timeout_s=150)
    assert ran.status == 0, ran.err
    expect_nothing(cloud, cli)


def test_what_is_killed_on_the_way_goes_on_though_the_platform_fails_now_and_then(
    cloud: Cloud, cli: Cli, tmp_path: Path
) -> None:
    spec = tmp_path / "google.yaml"
    spec.write_text(SPEC.format(endpoint=cloud.endpoint))
    compute = cloud.compute
    compute.faults.stockouts.clear()
    failing = [
        compute.faults.add("", 503, every=7, times=None),
        compute.faults.add("POST|DELETE", 0, every=5, is_done=True, times=None),
    ]
    try:
        first = cli.start("up", "-y", str(spec))
        assert eventually(lambda: compute.all())
        cli.interrupt(first, signal.SIGKILL)
        ran = cli.run("up", "-y", str(spec), timeout_s=300)
        assert ran.status == 0, ran.err
        assert len(workers(cli.status())) == 1
        assert len(compute.all()) == 2, "nothing was made twice"
        first = cli.start("down", "-y", str(spec))
        assert eventually(lambda: any(i["status"] == "STOPPING" for i in compute.all()))
        cli.interrupt(first, signal.SIGKILL)
    finally:
        ran = cli.run("down", "-y", str(spec), timeout_s=150)
        for fault in failing:
            compute.faults.remove(fault)
    assert ran.status == 0, ran.err
    expect_nothing(cloud, cli)


def expect_nothing(cloud: Cloud, cli: Cli) -> None:
    """Nothing of the cluster is left on the platform or here."""
    assert cloud.compute.all() == []
    assert cloud.compute.firewalls == {}
    assert cloud.hosts is not None
    assert eventually(lambda: not cloud.hosts.names())
    assert not (cli.folder / "home" / "clusters" / "Google_1").exists()
