"""Arguments that are lost with their node, while making them again needs what their call holds."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import runtime as ray
from runtime import exceptions
from runtime.cluster_utils import Cluster
from runtime.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tests.polling import eventually


class Widgets:
    """One node has the only widget of the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.node = cluster.add_node(num_cpus=1, resources={"widget": 1})

    def lose(self) -> None:
        """Ends the node, with everything on it, and starts another."""
        self.cluster.remove_node(self.node, allow_graceful=False)
        self.node = self.cluster.add_node(num_cpus=1, resources={"widget": 1})


@pytest.fixture(scope="module")
def cluster(no_leaks: None) -> Iterator[Cluster]:
    """A head without CPUs for tasks."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def widgets(cluster: Cluster) -> Iterator[Widgets]:
    made = Widgets(cluster)
    yield made
    cluster.remove_node(made.node)


def finish(*refs: Any) -> None:
    """Waits without fetching: the only copies stay where they were made."""
    ready, _ = ray.wait(list(refs), num_returns=len(refs), timeout=60, fetch_local=False)
    assert len(ready) == len(refs)


@ray.remote(resources={"widget": 1})
def make(value: int) -> Any:
    return np.full(2**18, value)


@ray.remote(resources={"widget": 1})
def total(*arrays: Any) -> int:
    return sum(int(array[0]) for array in arrays)


@ray.remote(num_cpus=0, resources={"widget": 1}, max_restarts=-1, max_task_retries=-1)
class Holder:
    def __init__(self, array: Any, *_: Any) -> None:
        self.array = array

    def first(self) -> int:
        return int(self.array[0])


def test_a_task_goes_back_until_its_arguments_are_there(widgets: Widgets) -> None:
    refs = [make.remote(value) for value in (5, 6)]
    finish(*refs)
    widgets.lose()
    assert ray.get(total.remote(*refs), timeout=60) == 11


def test_many_tasks_that_need_the_same_argument(widgets: Widgets) -> None:
    ref = make.remote(5)
    finish(ref)
    widgets.lose()
    assert ray.get([total.remote(ref) for _ in range(20)], timeout=60) == [5] * 20


def test_a_task_whose_submitter_does_not_own_the_argument(widgets: Widgets) -> None:
    @ray.remote(num_cpus=0)
    def submit(refs: list[Any]) -> int:
        return int(ray.get(total.remote(refs[0])))

    ref = make.remote(5)
    finish(ref)
    widgets.lose()
    assert ray.get(submit.remote([ref]), timeout=60) == 5


def test_an_argument_that_contains_references(widgets: Widgets) -> None:
    @ray.remote(resources={"widget": 1})
    def pair(value: int) -> Any:
        return [np.full(2**18, value), ray.put(value)]

    @ray.remote(resources={"widget": 1})
    def read(both: Any) -> int:
        return int(both[0][0])

    ref = pair.remote(5)
    finish(ref)
    widgets.lose()
    assert ray.get(read.remote(ref), timeout=60) == 5


def test_an_argument_that_cannot_be_made_again(widgets: Widgets) -> None:
    ref = make.options(max_retries=0).remote(5)
    finish(ref)
    widgets.lose()
    with pytest.raises(exceptions.ObjectReconstructionFailedError):
        ray.get(total.remote(ref), timeout=60)
    assert ray.get(total.remote(), timeout=60) == 0  # nothing holds the widget


def test_a_task_that_went_back_can_be_cancelled(widgets: Widgets, tmp_path: pathlib.Path) -> None:
    began, go_on = tmp_path / "began", tmp_path / "go on"

    @ray.remote(resources={"widget": 1})
    def slow() -> Any:
        began.touch()
        while not go_on.exists():
            time.sleep(0.01)
        return np.ones(2**18)

    go_on.touch()
    ref = slow.remote()
    finish(ref)
    widgets.lose()
    began.unlink()
    go_on.unlink()
    waiting = total.remote(ref)
    assert eventually(began.exists)  # it is made again: the task has gone back
    ray.cancel(waiting)
    with pytest.raises(exceptions.TaskCancelledError):
        ray.get(waiting, timeout=60)
    go_on.touch()
    assert ray.get(ref, timeout=60)[0] == 1


def test_a_constructor_waits_without_the_resources_of_its_actor(widgets: Widgets) -> None:
    refs = [make.remote(value) for value in (5, 6)]
    finish(*refs)
    widgets.lose()
    actor = Holder.remote(*refs)
    assert ray.get(actor.first.remote(), timeout=60) == 5
    assert ray.available_resources().get("widget", 0) == 0


def test_an_actor_that_is_made_again_with_its_arguments(widgets: Widgets) -> None:
    actor = Holder.remote(make.remote(5))
    assert ray.get(actor.first.remote(), timeout=60) == 5
    widgets.lose()
    assert ray.get(actor.first.remote(), timeout=60) == 5


def test_a_constructor_whose_argument_cannot_be_made_again(widgets: Widgets) -> None:
    ref = make.options(max_retries=0).remote(5)
    finish(ref)
    widgets.lose()
    actor = Holder.remote(ref)
    with pytest.raises(exceptions.ActorDiedError, match="ObjectReconstructionFailedError"):
        ray.get(actor.first.remote(), timeout=60)
    assert ray.get(total.remote(), timeout=60) == 0


def test_an_actor_that_is_killed_while_its_constructor_waits(
    widgets: Widgets, tmp_path: pathlib.Path
) -> None:
    pids, go_on = tmp_path / "pids", tmp_path / "go on"
    pids.mkdir()

    @ray.remote(resources={"widget": 1})
    def slow() -> Any:
        (pids / str(os.getpid())).touch()
        while not go_on.exists():
            time.sleep(0.01)
        return np.ones(2**18)

    go_on.touch()
    ref = slow.remote()
    finish(ref)
    widgets.lose()
    go_on.unlink()
    actor = Holder.remote(ref)
    assert eventually(lambda: len(list(pids.iterdir())) == 2)
    ray.kill(actor)
    with pytest.raises(exceptions.ActorDiedError):
        ray.get(actor.first.remote(), timeout=60)
    go_on.touch()
    assert ray.get(ref, timeout=60)[0] == 1
    assert ray.get(total.remote(), timeout=60) == 0


def test_workers_whose_tasks_went_back_take_the_others(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """More workers than an owner searches one by one, so that each must be listed as free again."""
    workers = 12
    node = cluster.add_node(num_cpus=workers)
    there = NodeAffinitySchedulingStrategy(node.node_id, soft=False)  # all in one scheduling class
    widgets = Widgets(cluster)
    gate = tmp_path / "gate"
    gate.touch()

    @ray.remote(num_cpus=0, resources={"widget": 1})
    def gated() -> Any:
        eventually(gate.exists, 60)
        return np.ones(2**18)

    @ray.remote(num_cpus=1, scheduling_strategy=there)
    def work(_: Any, seconds: float, begun: str = "") -> int:
        if begun:
            pathlib.Path(begun).touch()
        time.sleep(seconds)  # long enough that each worker gets one at a time
        return 7

    try:
        ref = gated.remote()
        finish(ref)
        gate.unlink()
        ray.get([work.remote(0, 1.0) for _ in range(workers)], timeout=60)
        widgets.lose()
        marks = [tmp_path / str(number) for number in range(workers)]
        holding = [work.remote(0, 1.5, str(mark)) for mark in marks]
        assert eventually(lambda: all(mark.exists() for mark in marks))
        lost = [work.remote(ref, 0.1) for _ in range(workers)]
        others = [work.remote(number, 0.1) for number in range(5 * workers)]
        assert ray.get([*holding, *others], timeout=60) == [7] * (6 * workers)
        gate.touch()
        assert ray.get(lost, timeout=60) == [7] * workers
    finally:
        gate.touch()
        cluster.remove_node(widgets.node)
        cluster.remove_node(node)
