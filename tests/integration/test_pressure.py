"""Much at once: objects, references, drivers, nesting."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import runtime as ray
from runtime.cluster_utils import Cluster
from tests.integration.drivers import Driver
from tests.polling import eventually


@pytest.fixture(scope="module")
def cluster(no_leaks: None) -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "object_store_memory": 400 * 2**20})
    ray.init(address=made.address)
    yield made
    ray.shutdown()
    made.shutdown()


pytestmark = pytest.mark.usefixtures("cluster")


@ray.remote
def identity(value: Any) -> Any:
    return value


@ray.remote
def tree(depth: int) -> int:
    if depth == 0:
        return 1
    return sum(ray.get([tree.remote(depth - 1) for _ in range(2)]))


def test_a_tree_of_tasks_deeper_than_there_are_cpus() -> None:
    assert ray.get(tree.remote(5), timeout=150) == 32


def test_nested_calls_from_actors_that_hold_every_cpu() -> None:
    @ray.remote(num_cpus=1)
    class Asker:
        def ask(self) -> int:
            return ray.get(identity.options(num_cpus=0).remote(1))

    askers = [Asker.remote() for _ in range(4)]
    assert ray.get([asker.ask.remote() for asker in askers], timeout=60) == [1] * 4
    for asker in askers:
        ray.kill(asker)
    assert eventually(lambda: ray.available_resources().get("CPU") == 4)


def test_a_thousand_tasks_with_a_large_argument() -> None:
    ref = ray.put(np.arange(2**20))

    @ray.remote
    def pick(array: Any, index: int) -> int:
        return int(array[index])

    assert ray.get([pick.remote(ref, i) for i in range(1000)], timeout=150) == list(range(1000))


def test_more_data_than_the_store_holds_passes_through() -> None:
    total = 0
    for i in range(30):
        array = ray.get(identity.remote(np.full(2**22, i % 100, dtype=np.uint8 if i % 2 else np.int64)))
        total += int(array[0])
        del array
    assert total == sum(range(30))


def test_ten_thousand_references_as_one_argument() -> None:
    refs = [ray.put(i) for i in range(10_000)]

    @ray.remote
    def count(refs: list[Any]) -> int:
        return sum(ray.get(refs))

    assert ray.get(count.remote(refs), timeout=150) == sum(range(10_000))


def test_a_thousand_reference_arguments() -> None:
    refs = [identity.remote(i) for i in range(1000)]

    @ray.remote
    def count(*values: int) -> int:
        return sum(values)

    assert ray.get(count.remote(*refs), timeout=150) == sum(range(1000))


def test_threads_share_one_driver() -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(10):
                numbers = [rng.randrange(1000) for _ in range(20)]
                assert ray.get([identity.remote(n) for n in numbers], timeout=150) == numbers
                ref = ray.put(numbers)
                assert ray.get(identity.remote(ref), timeout=150) == numbers
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(170)
    assert failures == []


def test_several_drivers_at_once(cluster: Cluster) -> None:
    program = f"""
    import runtime as ray
    ray.init(address={cluster.address!r}, log_to_driver=False)
    square = ray.remote(lambda x: x * x)
    print("sum", sum(ray.get([square.remote(i) for i in range(200)])), flush=True)
    """
    drivers = [Driver(program) for _ in range(4)]
    expected = str(sum(i * i for i in range(200)))
    assert [driver.line("sum ") for driver in drivers] == [expected] * 4
    assert [driver.process.wait(60) for driver in drivers] == [0] * 4
    for driver in drivers:
        driver.close()


def test_random_graphs_of_tasks_and_references() -> None:
    """Tasks over random earlier results, some dropped at once; the values are known from a plain run."""
    rng = random.Random(7)

    @ray.remote
    def combine(left: int, right: list[Any]) -> int:
        return (left * 31 + ray.get(right[0])) % 1_000_003

    refs, values = [ray.put(1)], [1]
    # Few enough: a task that began before the one it waits for costs a further worker, and these come ever more slowly.
    for _ in range(100):
        a, b = rng.randrange(len(refs)), rng.randrange(len(refs))
        refs.append(combine.remote(refs[a], [refs[b]]))
        values.append((values[a] * 31 + values[b]) % 1_000_003)
        if len(refs) > 20:
            victim = rng.randrange(len(refs))
            del refs[victim], values[victim]
    assert ray.get(refs, timeout=150) == values
