"""`streaming_split` on several nodes."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from runtime.data._exec.split_server import SplitServer, _used
from runtime.data.context import DataContext
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
    for equal, homes in itertools.product((False, True), (nodes, nodes[::-1])):
        server = SplitServer(made, 2, equal, homes)
        found = [
            server.next(part, 0) for part in (0, 1)
        ]  # not read here, or the driver's node would have them too
        assert found == [[(refs[nodes.index(home)], 0, 100_000)] for home in homes]
        assert [server.next(part, 0) for part in (0, 1)] == [[], []]


@pytest.mark.parametrize(
    ("homes", "equal", "is_ordered", "used"),
    [
        (["a", "b"], False, True, True),
        (["a", "b"], True, False, True),
        (["a", "b"], True, True, False),
        (["a", None], True, False, True),
        (["a", "a"], False, True, False),
        ([], False, False, False),
    ],
)
def test_which_hints_count(homes: list[str | None], equal: bool, is_ordered: bool, used: bool) -> None:
    context = DataContext()
    context.execution_options.preserve_order = is_ordered
    assert list(_used(homes, equal, context)) == (homes if used else [])
