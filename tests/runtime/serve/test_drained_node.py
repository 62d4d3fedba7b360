"""Replicas leave a node that is drained before it lets them go, and no request fails."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

import runtime as ray
from runtime._session.ask import ask_control
from runtime._wire.messages.control import DrainNode
from runtime.cluster_utils import Cluster
from tests.polling import eventually
from tests.runtime.serve.echo import Echo, deploy, serve, start
from tests.runtime.serve.steady_load import SteadyLoad

pytestmark = [pytest.mark.usefixtures("no_leaks"), pytest.mark.timeout(150)]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A head without CPUs, where the ingress is, and one node."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        made.add_node(num_cpus=2)
        ray.init(address=made.address)
        made.wait_for_nodes()
        yield made
        serve.shutdown()
    finally:
        ray.shutdown()
        made.shutdown()


def test_a_drained_node_fails_no_request(cluster: Cluster) -> None:
    url = start(proxy_location="HeadOnly")
    deploy(Echo)
    with SteadyLoad(url, 4) as load:
        assert eventually(lambda: len(load.answers()) == 2), load.failed
        old = set(load.answers())
        [drained] = cluster.worker_nodes
        cluster.add_node(num_cpus=2)
        secret = pathlib.Path(cluster._secret_file).read_bytes().strip()
        ask_control(cluster.address, secret, DrainNode(bytes.fromhex(drained.node_id), "maintenance", False))
        assert eventually(lambda: len(set(load.answers()) - old) >= 2), "no replicas on the other node"

        def only_new() -> bool:
            before = load.answers()
            assert eventually(lambda: load.since(before).total() >= 10)
            return not old & set(load.since(before))

        assert eventually(only_new), "the drained node still answers"
    assert load.failed == []
