"""A cluster of Google Compute Engine from nothing to nothing: Google's SDK against a pretended platform whose instances
are real hosts, entered by SSH with the key in their metadata."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clusterctl.cli import Cli, alive
from tests.clusterctl.real.kept_jobs import assert_kept, what_a_stop_keeps
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


def workers(status: dict[str, Any]) -> list[str]:
    return [node["address"].partition(":")[0] for node in alive(status) if not node["is_head"]]


def test_from_nothing_to_a_jobs_result_and_back_to_nothing_on_a_platform_that_fails_now_and_then(
    cloud: Cloud, tmp_path: Path
) -> None:
    cli = Cli(tmp_path)
    spec = tmp_path / "google.yaml"
    spec.write_text(SPEC.format(endpoint=cloud.endpoint))
    compute = cloud.compute
    compute.faults.stockouts.add(("us-west1-a", "spot"))
    compute.faults.add("", 503, every=7, times=None)
    compute.faults.add("POST|DELETE", 0, every=5, is_done=True, times=None)  # done, and nobody is told
    try:
        # Killed as soon as there is a machine, `up` goes on with it.
        killed = cli.start("up", "-y", str(spec))
        assert eventually(lambda: compute.all())
        cli.interrupt(killed, signal.SIGKILL)
        ran = cli.run("up", "-y", str(spec), timeout_s=300)
        assert ran.status == 0, ran.err
        assert len(workers(cli.status())) == 1
        assert len(compute.all()) == 2, "nothing was made twice"
        ran = cli.run("up", "-y", str(spec))
        assert "nothing to do" in ran.out

        # Without its head the worker would shut its machine down.
        ran = cli.run(
            "exec", "--all-nodes", "pgrep -f '[l]ease_guard.py' >/dev/null && echo guarded || echo free"
        )
        assert sorted(line.split(" | ")[1] for line in ran.out.splitlines()) == ["free", "guarded"]

        # One machine more for the job, where there are spot machines.
        ran = cli.run("submit", cli.script(PROGRAM), timeout_s=200)
        assert ran.status == 0, ran.err
        assert ran.out.count("ran in us-west1-b spot") == 2

        # The platform takes a machine back: another one takes its place.
        running = workers(cli.status())
        lost = next(i for i in compute.all() if i["networkInterfaces"][0]["networkIP"] in running)
        address = lost["networkInterfaces"][0]["networkIP"]
        compute.preempt(lost["name"])
        assert cli.wait(lambda status: workers(status) and address not in workers(status), 200)

        kept = what_a_stop_keeps(cli)
        # Nobody uses it: the head ends the worker and stops itself. It keeps its disk; its public address is
        # another one afterwards.
        assert cli.run("autostop", "--idle-minutes", "0.05").status == 0
        assert eventually(lambda: [i["status"] for i in compute.all()] == ["TERMINATED"], 150)
        ran = cli.run("status")
        assert ran.status == 5
        assert "has stopped by itself" in ran.err
        ran = cli.run("up", "-y", str(spec), timeout_s=300)
        assert ran.status == 0, ran.err
        assert len(workers(cli.status())) == 1
        assert_kept(cli, kept)

        # Killed in the middle, `down` does the rest when it is run again.
        compute.faults.delete_s = 5.0
        killed = cli.start("down", "-y", str(spec))
        assert eventually(lambda: any(i["status"] == "STOPPING" for i in compute.all()))
        cli.interrupt(killed, signal.SIGKILL)
    finally:
        ran = cli.run("down", "-y", str(spec), timeout_s=150)
    assert ran.status == 0, ran.err
    assert compute.all() == []
    assert compute.firewalls == {}
    assert cloud.hosts is not None
    assert eventually(lambda: not cloud.hosts.names())
    assert not (tmp_path / "home" / "clusters" / "Google_1").exists()
