"""`util.state.get_log` and `list_logs` of another node than this process's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import runtime as ray
from runtime.cluster_utils import Cluster
from runtime.util.state import get_log, list_logs
from tests.polling import eventually


@pytest.fixture
def cluster(no_leaks: None) -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        made.add_node(num_cpus=1)
        ray.init(address=made.address)
        made.wait_for_nodes()
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def test_an_actor_and_the_agent_of_another_node(cluster: Cluster) -> None:
    @ray.remote
    class Speaker:
        def say(self, word: str) -> None:
            print(word, flush=True)

    speaker = Speaker.remote()
    ray.get(speaker.say.remote("from afar"))
    (node,) = cluster.worker_nodes
    assert eventually(lambda: "from afar" in "".join(get_log(actor_id=speaker._actor_id.hex())))
    names = list_logs(node_id=node.node_id)
    assert names["raylet"] == ["agent.log"]
    assert "".join(get_log(node_id=node.node_id, filename="agent.log"))
