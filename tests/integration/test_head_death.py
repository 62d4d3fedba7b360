"""The head is killed: whatever a driver does hears of it in time, and worker nodes shut themselves down."""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Iterator

import pytest

from runtime.cluster_utils import Cluster
from tests.integration.drivers import Driver
from tests.polling import eventually
from tests.processes import is_alive

BLOCKING = {
    "get": "ray.get(wait.remote(), timeout=60)",
    "wait": "ray.wait([wait.remote()], timeout=60)",
    "an awaited reference": """
        async def main():
            await asyncio.wait_for(wait.remote(), 60)
        asyncio.run(main())
    """,
    "a future": "wait.remote().future().result(60)",
    "a stream": """
        for ref in items.remote():
            ray.get(ref, timeout=60)
    """,
    "a stream of an async program": """
        async def main():
            async for ref in items.remote():
                await ref
        asyncio.run(main())
    """,
    "a call of an actor": "ray.get(Actor.remote().wait.remote(), timeout=60)",
    "an actor without a place": "ray.get(Actor.options(num_cpus=100).remote().wait.remote(), timeout=60)",
    "a placement group": "ray.util.placement_group([{'CPU': 100}]).wait(60)",
    "puts": """
        while True:
            ray.put(1)
            time.sleep(0.01)
    """,
    "large puts": """
        while True:
            ray.put(bytes(2_000_000))
    """,
    "submissions": """
        while True:
            quick.remote()
            time.sleep(0.01)
    """,
    "creations": """
        while True:
            Actor.options(name=os.urandom(8).hex()).remote()
            time.sleep(0.01)
    """,
}

PROGRAM = """
import asyncio, os, time
import runtime as ray
import runtime.util
ray.init(address={address!r}, log_to_driver=False)

@ray.remote(num_cpus=0)
def wait():
    time.sleep(1000)

@ray.remote(num_cpus=0)
def quick():
    pass

@ray.remote(num_cpus=0, num_returns="streaming")
def items():
    yield 1
    time.sleep(1000)

@ray.remote(num_cpus=0)
class Actor:
    def wait(self):
        time.sleep(1000)

print("ready", flush=True)
try:
{blocking}
except Exception as error:
    print("error", type(error).__name__, "head is gone" in str(error), flush=True)
else:
    print("error none", flush=True)
ray.shutdown()
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    quick = {"gcs_rpc_server_reconnect_timeout_s": 7}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "_system_config": quick})
    made.add_node(num_cpus=4)
    yield made
    made.shutdown()


def start(cluster: Cluster, blocking: str) -> Driver:
    body = textwrap.indent(textwrap.dedent(blocking).strip(), "    ")
    return Driver(PROGRAM.format(address=cluster.address, blocking=body))


def test_every_driver_gets_an_error_and_the_nodes_end(cluster: Cluster) -> None:
    assert cluster.head_node is not None
    (worker,) = cluster.worker_nodes
    drivers = {what: start(cluster, blocking) for what, blocking in BLOCKING.items()}
    try:
        for driver in drivers.values():
            driver.line("ready")
        os.kill(cluster.control_pid, signal.SIGKILL)
        cluster.head_node.kill()
        heard = {what: driver.line("error ") for what, driver in drivers.items()}
        assert [what for what, error in heard.items() if error != "RaySystemError True"] == []
        assert [driver.process.wait(60) for driver in drivers.values()] == [0] * len(drivers)
    finally:
        for driver in drivers.values():
            driver.close()
    assert eventually(lambda: not is_alive(worker.pid), timeout_s=60)


def test_without_its_control_store_a_cluster_ends(cluster: Cluster) -> None:
    nodes = [node.pid for node in cluster.list_all_nodes()]
    driver = start(cluster, BLOCKING["get"])
    driver.line("ready")
    os.kill(cluster.control_pid, signal.SIGKILL)
    assert driver.line("error ") == "RaySystemError True"
    assert eventually(lambda: not any(map(is_alive, nodes)), timeout_s=60)
    driver.close()
