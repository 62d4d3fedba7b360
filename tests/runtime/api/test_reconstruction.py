"""Results that are lost with a node are made again, or the error says why not."""

from __future__ import annotations

import contextlib
import importlib
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.polling import eventually
from tests.under_test import NAME, OWN, exceptions, ray

Cluster: Any = importlib.import_module(f"{NAME}.cluster_utils").Cluster
SIZE = 2**18


@pytest.fixture(scope="module")
def cluster(no_leaks: None) -> Iterator[Any]:
    """A head without CPUs for tasks. Each test adds the nodes that it loses."""
    config = {"health_check_failure_threshold": 3, "health_check_period_ms": 300}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": config})
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


class Nodes:
    """The worker nodes of one test: one after the other."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.node = cluster.add_node(num_cpus=2)

    def lose(self) -> None:
        """Ends the node, with everything on it, and starts another."""
        self.cluster.remove_node(self.node, allow_graceful=False)
        self.node = self.cluster.add_node(num_cpus=2)


@pytest.fixture
def nodes(cluster: Any) -> Iterator[Nodes]:
    made = Nodes(cluster)
    yield made
    cluster.remove_node(made.node)


def finish(*refs: Any) -> None:
    """Waits without fetching: the only copies stay where they were made."""
    ready, _ = ray.wait(list(refs), num_returns=len(refs), timeout=60, fetch_local=False)
    assert len(ready) == len(refs)


@ray.remote
def make(value: int) -> Any:
    return np.full(SIZE, value)


@ray.remote
def add(array: Any, value: int) -> Any:
    return array + value


@ray.remote
def first(array: Any) -> int:
    return int(array[0])


def test_a_lost_result_is_made_again(nodes: Nodes) -> None:
    ref = make.remote(5)
    finish(ref)
    nodes.lose()
    assert ray.get(ref, timeout=60)[0] == 5


def test_it_is_made_again_for_a_task_that_needs_it(nodes: Nodes) -> None:
    ref = make.remote(5)
    finish(ref)
    nodes.lose()
    assert ray.get(first.remote(ref), timeout=60) == 5


def test_a_chain_is_made_again_from_its_beginning(nodes: Nodes) -> None:
    ref = make.remote(0)
    for _ in range(5):
        ref = add.remote(ref, 1)  # nobody holds what comes before
    finish(ref)
    nodes.lose()
    assert ray.get(ref, timeout=60)[0] == 5


def test_a_diamond(nodes: Nodes) -> None:
    @ray.remote
    def total(*arrays: Any) -> Any:
        return sum(arrays)

    top = make.remote(1)
    ref = total.remote(add.remote(top, 1), add.remote(top, 2))
    del top
    finish(ref)
    nodes.lose()
    assert ray.get(ref, timeout=60)[0] == 5


def test_several_results_of_one_task(nodes: Nodes) -> None:
    @ray.remote(num_returns=3)
    def make_three() -> list[Any]:
        return [np.full(SIZE, value) for value in range(3)]

    refs = make_three.remote()
    finish(*refs)
    assert ray.get(refs[0])[0] == 0  # now it is here, too
    nodes.lose()
    assert [int(array[0]) for array in ray.get(refs, timeout=60)] == [0, 1, 2]


def test_values_of_a_generator(nodes: Nodes) -> None:
    @ray.remote
    def count(until: int) -> Iterator[Any]:
        for value in range(until):
            yield np.full(SIZE, value)

    refs = list(count.remote(4))
    finish(*refs)
    del refs[1]
    nodes.lose()
    assert [int(ray.get(ref, timeout=60)[0]) for ref in refs] == [0, 2, 3]


def test_values_of_an_actors_generator(nodes: Nodes) -> None:
    @ray.remote(max_restarts=-1, max_task_retries=2)
    class Counting:
        def count(self, until: int) -> Iterator[Any]:
            for value in range(until):
                yield np.full(SIZE, value)

    counting = Counting.remote()
    refs = list(counting.count.remote(4))
    finish(*refs)
    nodes.lose()
    assert [int(ray.get(ref, timeout=60)[0]) for ref in refs] == [0, 1, 2, 3]


@pytest.mark.parametrize("second", [0, 3, 6])
def test_a_generator_that_gives_another_number_of_values_when_it_runs_again(
    nodes: Nodes, tmp_path: pathlib.Path, second: int
) -> None:
    @ray.remote
    def count(marker: pathlib.Path) -> Iterator[Any]:
        until = second if marker.exists() else 5
        marker.touch()
        for value in range(until):
            yield np.full(SIZE, value)

    refs = list(count.remote(tmp_path / "ran"))
    finish(*refs)
    nodes.lose()
    with contextlib.suppress(exceptions.StreamingGeneratorReplayInconsistentError):
        ray.get(refs[4], timeout=60)  # may come before the end that shows the difference
    for ref in refs[:4]:
        assert eventually(lambda ref=ref: differs(ref))


def differs(ref: Any) -> bool:
    try:
        ray.get(ref, timeout=60)
    except exceptions.StreamingGeneratorReplayInconsistentError:
        return True
    return False


def test_a_generator_that_fails_when_it_runs_again(nodes: Nodes, tmp_path: pathlib.Path) -> None:
    @ray.remote(max_retries=1)
    def count(marker: pathlib.Path) -> Iterator[Any]:
        runs_again = marker.exists()
        marker.touch()
        for value in range(3):
            if runs_again and value == 1:
                os._exit(1)
            yield np.full(SIZE, value)

    refs = list(count.remote(tmp_path / "ran"))
    finish(*refs)
    nodes.lose()
    for ref in reversed(refs):
        with pytest.raises(exceptions.WorkerCrashedError):
            ray.get(ref, timeout=60)


def test_a_task_that_gives_something_else_when_it_runs_again(nodes: Nodes) -> None:
    @ray.remote(num_cpus=0)
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def next(self) -> int:
            self.count += 1
            return self.count

    counter = Counter.options(resources={"node:__internal_head__": 0.001}).remote()

    @ray.remote(num_returns=2)
    def make_two(counter: Any) -> list[Any]:
        again = ray.get(counter.next.remote()) > 1
        return [np.full(SIZE, 1), "small" if again else np.full(SIZE, 2)]

    refs = make_two.remote(counter)
    finish(*refs)
    nodes.lose()
    assert ray.get(refs[0], timeout=60)[0] == 1
    assert ray.get(refs[1], timeout=60) == "small"


def test_references_inside_a_lost_result(nodes: Nodes) -> None:
    @ray.remote
    def nest() -> Any:
        return [make.remote(3), np.zeros(SIZE)]

    ref = nest.remote()
    finish(ref)
    nodes.lose()
    assert ray.get(ray.get(ref, timeout=60)[0], timeout=60)[0] == 3


def test_a_borrower_gets_what_was_lost(nodes: Nodes, cluster: Any) -> None:
    keeper_node = cluster.add_node(num_cpus=1, resources={"keeper": 1})

    @ray.remote(num_cpus=0, resources={"keeper": 1})
    class Keeper:
        def keep(self, refs: list[Any]) -> None:
            self.refs = refs

        def first(self) -> int:
            return int(ray.get(self.refs[0], timeout=60)[0])

    keeper = Keeper.remote()
    ref = make.remote(7)
    finish(ref)
    ray.get(keeper.keep.remote([ref]), timeout=60)
    nodes.lose()
    assert ray.get(keeper.first.remote(), timeout=60) == 7
    ray.kill(keeper)
    cluster.remove_node(keeper_node)


def test_retries_are_used_up_by_it(nodes: Nodes) -> None:
    ref = make.options(max_retries=1).remote(5)
    finish(ref)
    nodes.lose()
    assert ray.get(first.remote(ref), timeout=60) == 5  # there, not here
    nodes.lose()
    with pytest.raises(exceptions.ObjectReconstructionFailedError, match="MAX_ATTEMPTS_EXCEEDED"):
        ray.get(ref, timeout=60)


def test_without_retries_it_is_lost(nodes: Nodes) -> None:
    ref = make.options(max_retries=0).remote(5)
    dependent = first.options(max_retries=0)
    finish(ref)
    nodes.lose()
    with pytest.raises(exceptions.ObjectReconstructionFailedError, match="max_retries=0") as caught:
        ray.get(ref, timeout=60)
    assert isinstance(caught.value, exceptions.ObjectLostError)
    assert caught.value.object_ref_hex == ref.hex()
    with pytest.raises(exceptions.RayTaskError) as failed:
        ray.get(dependent.remote(ref), timeout=60)
    assert isinstance(failed.value, exceptions.ObjectLostError)


def test_what_a_cancelled_task_gave_is_not_made_again(nodes: Nodes) -> None:
    ref = make.remote(5)
    finish(ref)
    ray.cancel(ref)
    nodes.lose()
    words = "TASK_CANCELLED" if OWN else "TASK_CANCELLED|MAX_ATTEMPTS_EXCEEDED"
    with pytest.raises(exceptions.ObjectReconstructionFailedError, match=words):
        ray.get(ref, timeout=60)


def test_what_a_cancelled_generator_gave_is_not_made_again(nodes: Nodes) -> None:
    @ray.remote
    def count(until: int) -> Iterator[Any]:
        for value in range(until):
            yield np.full(SIZE, value)

    generator = count.remote(2)
    refs = list(generator)
    finish(*refs, generator.completed())
    ray.cancel(generator)
    nodes.lose()
    words = "TASK_CANCELLED" if OWN else "TASK_CANCELLED|MAX_ATTEMPTS_EXCEEDED"
    for ref in refs:
        with pytest.raises(exceptions.ObjectReconstructionFailedError, match=words):
            ray.get(ref, timeout=60)


def test_an_argument_that_was_put_is_kept_for_the_results_sake(nodes: Nodes) -> None:
    ref = add.remote(ray.put(np.zeros(SIZE)), 1)
    finish(ref)
    nodes.lose()
    assert ray.get(ref, timeout=60)[0] == 1


def test_a_result_of_an_actor_that_may_retry(nodes: Nodes) -> None:
    @ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)
    class Maker:
        def make(self, value: int) -> Any:
            return np.full(SIZE, value)

    maker = Maker.remote()
    ref = maker.make.remote(4)
    finish(ref)
    nodes.lose()
    assert ray.get(ref, timeout=60)[0] == 4


def test_a_result_of_an_actor_that_may_not(nodes: Nodes) -> None:
    @ray.remote(num_cpus=1)
    class Maker:
        def make(self, value: int) -> Any:
            return np.full(SIZE, value)

    maker = Maker.remote()
    ref = maker.make.remote(4)
    finish(ref)
    nodes.lose()
    with pytest.raises(exceptions.ObjectLostError):
        ray.get(ref, timeout=60)


def test_what_a_dead_process_owned(nodes: Nodes) -> None:
    @ray.remote(num_cpus=1)
    class Owner:
        def refs(self) -> list[Any]:
            return [ray.put(np.zeros(SIZE)), make.remote(1)]

    owner = Owner.remote()
    refs = ray.get(owner.refs.remote(), timeout=60)
    finish(*refs)
    nodes.lose()
    for ref in refs:
        with pytest.raises(exceptions.OwnerDiedError):
            ray.get(ref, timeout=60)
        with pytest.raises(exceptions.OwnerDiedError):
            ray.get(ref, timeout=60)


@pytest.mark.skipif(not OWN, reason="looks into the object store")
def test_a_long_chain_keeps_only_its_end(nodes: Nodes) -> None:
    from runtime._process.core_worker import current

    def is_empty() -> bool:
        name = "object_store_memory"
        return bool(ray.available_resources().get(name) == ray.cluster_resources()[name])

    assert eventually(is_empty)
    before = len(current().objects.table.entries)
    ref = make.remote(0)
    for _ in range(20):
        ref = add.remote(ref, 1)
    finish(ref)
    assert eventually(lambda: len(current().objects.table.entries) <= before + 1)
    assert len(current().lineage._kept) == 21
    del ref
    assert eventually(lambda: not current().lineage._kept)
    assert eventually(is_empty)


@pytest.mark.skipif(not OWN, reason="looks into the object store")
def test_lineage_is_bounded(nodes: Nodes) -> None:
    from runtime._process.core_worker import current

    lineage = current().lineage
    limit, lineage.limit_bytes = lineage.limit_bytes, 10_000
    try:
        refs = []
        for value in range(8):
            refs.append(make.remote(value))
            finish(refs[-1])
        nodes.lose()
        with pytest.raises(exceptions.ObjectReconstructionFailedError, match="LINEAGE_EVICTED"):
            ray.get(refs[0], timeout=60)  # the first that was made is the first that is dropped
    finally:
        lineage.limit_bytes = limit


@ray.remote
def stream(count: int) -> Any:
    for i in range(count):
        yield np.full(SIZE, i)


@pytest.mark.parametrize("taken", [2, 5])
def test_lost_items_of_a_generator_are_made_again(nodes: Nodes, taken: int) -> None:
    gen = stream.remote(5)
    finish(gen.completed())
    refs = [next(gen) for _ in range(taken)]
    del refs[0]
    nodes.lose()
    refs += gen
    assert [int(array[0]) for array in ray.get(refs, timeout=60)] == [1, 2, 3, 4]
    nodes.lose()
    assert ray.get(first.remote(refs[2]), timeout=60) == 3


def test_items_of_a_dynamic_generator_are_made_again(nodes: Nodes) -> None:
    refs = list(ray.get(stream.options(num_returns="dynamic").remote(3)))
    nodes.lose()
    assert [int(array[0]) for array in ray.get(refs, timeout=60)] == [0, 1, 2]


def test_lost_items_without_retries(nodes: Nodes) -> None:
    refs = list(stream.options(max_retries=0).remote(2))
    finish(*refs)
    nodes.lose()
    with pytest.raises(exceptions.ObjectLostError):
        ray.get(refs[1], timeout=60)


def test_an_item_lost_while_the_generator_is_paused(cluster: Any, nodes: Nodes) -> None:
    other = cluster.add_node(num_cpus=1, resources={"other": 1})

    @ray.remote(_generator_backpressure_num_objects=1, resources={"other": 0.5})
    def paused() -> Any:
        for i in range(4):
            yield ray.get(make.remote(i))

    gen = paused.remote()
    ref = next(gen)
    finish(ref)
    replacement = cluster.add_node(num_cpus=1, resources={"other": 1})
    cluster.remove_node(other, allow_graceful=False)
    try:
        assert ray.get(ref, timeout=60)[0] == 0
        assert [int(ray.get(item, timeout=60)[0]) for item in gen] == [1, 2, 3]
    finally:
        cluster.remove_node(replacement)
