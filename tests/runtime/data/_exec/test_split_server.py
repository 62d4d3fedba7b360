"""`streaming_split` on several nodes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from runtime.data._exec.split_server import SplitServer
from tests.under_test import NAME, ray


@pytest.fixture
def cluster(no_leaks: None) -> Iterator[Any]:
    made = importlib.import_module(f"{NAME}.cluster_utils").Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1}
    )
    try:
        made.add_node(num_cpus=1)
        ray.init(address=made.address)
        made.wait_for_nodes()
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def test_readers_get_the_blocks_of_their_nodes(cluster: Any) -> None:
    @ray.remote(scheduling_strategy="SPREAD")
    def block(number: int) -> pa.Table:
        return pa.table({"number": [number] * 100_000})

    nodes = sorted(node["NodeID"] for node in ray.nodes())
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    refs = [
        block.options(scheduling_strategy=affinity(node, soft=False)).remote(number)
        for number, node in enumerate(nodes)
    ]
    made = ray.data.from_arrow_refs(refs)
    for homes in (nodes, nodes[::-1]):
        server = SplitServer(made, 2, False, homes)
        found = [ray.get(server.next(part, 0)[0][0])["number"][0].as_py() for part in (0, 1)]
        assert [nodes[number] for number in found] == homes

    for is_ordered, homes in ((False, nodes), (False, nodes[::-1]), (True, nodes)):
        made.context.execution_options.preserve_order = is_ordered
        parts = made.streaming_split(2, equal=True, locality_hints=homes)
        read = [[row["number"] for row in part.iter_rows()] for part in parts]
        wanted = (
            [sorted([0, 1] * 50_000)] * 2 if is_ordered else [[nodes.index(home)] * 100_000 for home in homes]
        )
        assert read == wanted
