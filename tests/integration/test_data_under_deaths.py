"""Data sets whose workers and nodes are killed in the middle: the same rows, each once."""

from __future__ import annotations

import os
import pathlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import runtime as ray
import runtime.data
from runtime.cluster_utils import Cluster, ClusterNode
from runtime.data.context import DataContext
from runtime.data.dataset import Dataset
from tests.polling import eventually

MIB = 1 << 20
BLOCKS, ROWS = 24, 24 * 1000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head with a CPU, where the driver is, and one more node for each test, which kills it."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100 * MIB})
    limits = DataContext.get_current().execution_options.resource_limits
    try:
        ray.init(address=made.address)
        limits.object_store_memory = 16 * MIB
        yield made
    finally:
        limits.object_store_memory = None
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def victim(cluster: Cluster) -> Iterator[ClusterNode]:
    node = cluster.add_node(num_cpus=1, object_store_memory=100 * MIB)
    yield node
    assert eventually(lambda: node.node_id not in [each["NodeID"] for each in ray.nodes() if each["Alive"]])


class Killer:
    """Kills in a thread as soon as functions have left so many marks."""

    def __init__(self, folder: pathlib.Path, after: int, kill: Callable[[], None]) -> None:
        self.folder = folder
        self._after = after
        self._kill = kill
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        assert eventually(lambda: len(os.listdir(self.folder)) >= self._after)
        self._kill()


def wide(folder: pathlib.Path) -> Callable[[Any], Any]:
    """Rows of 256 bytes, so that blocks lie in the object store; leaves a mark for each block."""

    def widen(batch: Any) -> Any:
        ids = batch["id"]
        (folder / f"{os.getpid()}-{ids[0]}").touch()
        return {"id": ids, "k": ids * 7919 % ROWS, "x": np.broadcast_to(ids[:, None], (len(ids), 30))}

    return widen


class Model:
    """Doubles the ids."""

    def __call__(self, batch: Any) -> Any:
        return {**batch, "y": batch["id"] * 2}


def source(folder: pathlib.Path) -> Dataset:
    return runtime.data.range(ROWS, override_num_blocks=BLOCKS).map_batches(wide(folder))


def column(dataset: Dataset, name: str) -> list[int]:
    batches = dataset.iter_batches(batch_size=None, prefetch_batches=0)
    return [int(value) for batch in batches for value in batch[name]]


def test_what_maps_of_a_sort_have_made_on_a_node_is_made_again(
    tmp_path: pathlib.Path, victim: ClusterNode
) -> None:
    with Killer(tmp_path, BLOCKS // 2, victim.kill):
        assert column(source(tmp_path).sort("k"), "k") == list(range(ROWS))


def test_a_pool_of_actors_goes_on_without_a_node(tmp_path: pathlib.Path, victim: ClusterNode) -> None:
    with Killer(tmp_path, BLOCKS // 2, victim.kill):
        made = source(tmp_path).map_batches(Model, concurrency=2)
        assert column(made, "y") == list(range(0, 2 * ROWS, 2))


def test_groups_are_whole_though_a_worker_and_a_node_die(tmp_path: pathlib.Path, victim: ClusterNode) -> None:
    def kill() -> None:
        os.kill(int(min(os.listdir(tmp_path)).partition("-")[0]), signal.SIGKILL)
        victim.kill()

    made = source(tmp_path).map_batches(lambda batch: {"g": batch["id"] % 10, "id": batch["id"]})
    with Killer(tmp_path, BLOCKS // 2, kill):
        sums = {row["g"]: row["sum(id)"] for row in made.groupby("g").sum("id").take_all()}
    assert sums == {g: sum(range(g, ROWS, 10)) for g in range(10)}
