"""The head is killed: drivers hear of it in time, and worker nodes shut themselves down."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from runtime.cluster_utils import Cluster
from tests.integration.drivers import Driver, is_alive
from tests.polling import eventually

PROGRAM = """
import time
import runtime as ray
ray.init(address={address!r})

@ray.remote
def wait():
    time.sleep(1000)

ref = wait.remote()
print("ready", flush=True)
try:
    ray.get(ref, timeout=60)
except Exception as error:
    print("error", type(error).__name__, flush=True)
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.add_node(num_cpus=1)
    yield made
    made.shutdown()


def test_the_driver_gets_an_error_and_the_nodes_end(cluster: Cluster) -> None:
    assert cluster.head_node is not None
    (worker,) = cluster.worker_nodes
    driver = Driver(PROGRAM.format(address=cluster.address))
    driver.line("ready")
    os.kill(cluster.control_pid, signal.SIGKILL)
    cluster.head_node.kill()
    assert driver.line("error ") != "GetTimeoutError"
    assert eventually(lambda: not is_alive(worker.pid), timeout_s=60)
    driver.close()
