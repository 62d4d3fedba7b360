"""What the cluster has, what is free of it, and who holds how much."""

from __future__ import annotations

import importlib
import os
import pathlib
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.polling import eventually
from tests.under_test import NAME, init, ray

accelerators: Any = importlib.import_module(f"{NAME}.util.accelerators")


@pytest.fixture(scope="module", autouse=True)
def session(no_leaks: None) -> Iterator[None]:
    init(
        num_cpus=4,
        resources={"widget": 2, "accelerator_type:A100": 1},
        _memory=10**9,
        object_store_memory=100 * 2**20,
    )
    yield
    ray.shutdown()


@ray.remote
def hold(folder: str) -> dict[str, float]:
    """Keeps what it has until all who share `folder` may go."""
    fd, _ = tempfile.mkstemp(dir=folder)
    os.close(fd)
    while not os.path.exists(f"{folder}/go"):
        time.sleep(0.01)
    held: dict[str, float] = ray.get_runtime_context().get_assigned_resources()
    return held


@ray.remote
def held() -> dict[str, float]:
    amounts: dict[str, float] = ray.get_runtime_context().get_assigned_resources()
    return amounts


@ray.remote
class Actor:
    def held(self) -> dict[str, float]:
        held: dict[str, float] = ray.get_runtime_context().get_assigned_resources()
        return held


def free(*names: str) -> list[float]:
    found = ray.available_resources()
    return [found.get(name, 0) for name in names]


def test_what_a_node_has() -> None:
    found = ray.cluster_resources()
    assert found["CPU"] == 4
    assert found["widget"] == 2
    assert found["memory"] == 10**9
    assert found["object_store_memory"] == 100 * 2**20
    assert found["node:__internal_head__"] == 1
    (address,) = (info["NodeManagerAddress"] for info in ray.nodes())
    assert found[f"node:{address}"] == 1
    assert ray.nodes()[0]["Resources"] == found


def test_work_can_be_tied_to_an_address() -> None:
    (address,) = (info["NodeManagerAddress"] for info in ray.nodes())
    for name in (f"node:{address}", "node:__internal_head__"):
        held = ray.get(Actor.options(resources={name: 0.01}).remote().held.remote())
        assert held[name] == 0.01


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ({}, {"CPU": 1}),
        ({"num_cpus": 2}, {"CPU": 2}),
        ({"num_cpus": 0}, {}),
        ({"num_cpus": 0.5, "resources": {"widget": 0.25}}, {"CPU": 0.5, "widget": 0.25}),
        ({"num_cpus": 0.0001}, {"CPU": 0.0001}),
        ({"memory": 10**8}, {"CPU": 1, "memory": 10**8}),
    ],
    ids=str,
)
def test_a_task_holds_what_it_asked_for(
    options: dict[str, Any], held: dict[str, float], tmp_path: pathlib.Path
) -> None:
    names = ("CPU", "widget", "memory")
    before = [4.0, 2.0, 10.0**9]
    assert eventually(lambda: free(*names) == before)
    ref = hold.options(**options).remote(str(tmp_path))
    expected = [full - held.get(name, 0) for name, full in zip(names, before, strict=True)]
    assert eventually(lambda: free(*names) == pytest.approx(expected))
    (tmp_path / "go").touch()
    assert ray.get(ref, timeout=60) == held
    assert eventually(lambda: free(*names) == before)


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ({}, {}),
        ({"num_cpus": 0}, {}),
        ({"num_cpus": 2}, {"CPU": 2}),
        ({"resources": {"widget": 1}}, {"CPU": 1, "widget": 1}),
        ({"num_cpus": 0, "resources": {"widget": 1}}, {"widget": 1}),
        ({"memory": 10**8}, {"memory": 10**8}),
    ],
    ids=str,
)
def test_an_actor_holds_what_it_asked_for(options: dict[str, Any], held: dict[str, float]) -> None:
    names = ("CPU", "widget", "memory")
    before = [4.0, 2.0, 10.0**9]
    assert eventually(lambda: free(*names) == before)
    actor = Actor.options(**options).remote()
    assert ray.get(actor.held.remote(), timeout=60) == held
    expected = [full - held.get(name, 0) for name, full in zip(names, before, strict=True)]
    assert eventually(lambda: free(*names) == expected)
    ray.kill(actor)
    assert eventually(lambda: free(*names) == before)


def test_fractions_add_up(tmp_path: pathlib.Path) -> None:
    assert eventually(lambda: free("CPU") == [4])
    refs = [hold.options(num_cpus=0.4).remote(str(tmp_path)) for _ in range(11)]
    assert eventually(lambda: len(list(tmp_path.iterdir())) == 10, timeout_s=60)
    assert eventually(lambda: free("CPU") == [0])
    assert ray.wait(refs, num_returns=11, timeout=0.1)[0] == []
    (tmp_path / "go").touch()
    assert len(ray.get(refs, timeout=60)) == 11


def test_whoever_waits_lends_its_cpus(tmp_path: pathlib.Path) -> None:
    @ray.remote(num_cpus=4)
    def inner(folder: str) -> int:
        while not os.path.exists(f"{folder}/go"):
            time.sleep(0.01)
        return 1

    @ray.remote(num_cpus=4)
    def outer(folder: str) -> int:
        return int(ray.get(inner.remote(folder))) + 1

    assert eventually(lambda: free("CPU") == [4])
    ref = outer.remote(str(tmp_path))
    assert eventually(lambda: free("CPU") == [0])
    (tmp_path / "go").touch()
    assert ray.get(ref, timeout=60) == 2
    assert eventually(lambda: free("CPU") == [4])


def test_custom_resources_are_not_lent() -> None:
    @ray.remote(num_cpus=0, resources={"widget": 2})
    def inner() -> None:
        pass

    @ray.remote(num_cpus=0, resources={"widget": 1})
    def outer() -> int:
        return len(ray.wait([inner.remote()], timeout=0.3)[0])

    assert ray.get(outer.remote(), timeout=60) == 0


def test_an_actor_keeps_its_cpus_while_it_waits() -> None:
    @ray.remote(num_cpus=2)
    def inner() -> None:
        pass

    @ray.remote(num_cpus=3)
    class Outer:
        def __init__(self) -> None:
            self.seen = [self.wait()]

        def wait(self) -> int:
            return len(ray.wait([inner.remote()], timeout=0.5)[0])

        def waits(self) -> list[int]:
            return [*self.seen, self.wait()]

    actor = Outer.remote()
    assert ray.get(actor.waits.remote(), timeout=60) == [0, 0]
    ray.kill(actor)
    assert eventually(lambda: free("CPU") == [4])


def test_a_constructor_lends_what_its_actor_will_not_hold() -> None:
    @ray.remote(num_cpus=4)
    def inner() -> int:
        return 1

    @ray.remote
    class Outer:
        def __init__(self) -> None:
            self.found = ray.get(inner.remote())

        def seen(self) -> int:
            return int(self.found)

    assert ray.get(Outer.remote().seen.remote(), timeout=60) == 1


def test_constructors_take_turns_on_the_cpus(tmp_path: pathlib.Path) -> None:
    assert eventually(lambda: free("CPU") == [4])
    actors = [Actor.remote() for _ in range(12)]
    assert ray.get([actor.held.remote() for actor in actors], timeout=60) == [{}] * 12
    assert eventually(lambda: free("CPU") == [4])
    for actor in actors:
        ray.kill(actor)


def test_accelerator_types() -> None:
    held = ray.get(
        Actor.options(accelerator_type=accelerators.NVIDIA_A100).remote().held.remote(), timeout=60
    )
    assert held == {"CPU": 1, "accelerator_type:A100": 0.001}
    other = Actor.options(accelerator_type=accelerators.NVIDIA_H100).remote()
    assert ray.wait([other.held.remote()], timeout=0.2)[0] == []
    assert accelerators.GOOGLE_TPU_V6E == "TPU-V6E"


def test_objects_take_memory_of_the_store() -> None:
    def free_store() -> float:
        return float(ray.available_resources()["object_store_memory"])

    size = 20 * 2**20
    before = float(ray.cluster_resources()["object_store_memory"])
    assert eventually(lambda: free_store() == before)
    ref = ray.put(bytes(size))
    assert eventually(lambda: before - free_store() >= size)
    del ref
    assert eventually(lambda: free_store() == before)


@pytest.mark.parametrize(
    ("resources", "error"),
    [
        ({1: 1}, (TypeError, AttributeError)),
        ({"memory": 1}, ValueError),
        ({"object_store_memory": 1}, ValueError),
    ],
)
def test_names_that_no_resource_has(resources: Any, error: Any) -> None:
    with pytest.raises(error):
        hold.options(resources=resources).remote("")
    assert ray.get(ray.put(1)) == 1  # the connection has survived


def test_several_gpus_are_whole() -> None:
    for asked in (held.options(num_gpus=1.5), Actor.options(num_gpus=1.5)):
        with pytest.raises(ValueError, match="GPU resource quantities >1 must"):
            asked.remote()


@pytest.mark.parametrize(("asked", "taken"), [(100.7, 100), (1.00005, 1), (0.5, None)])
def test_memory_is_in_whole_bytes(asked: float, taken: float | None) -> None:
    assert ray.get(held.options(memory=asked).remote()).get("memory") == taken


@pytest.mark.skipif(NAME == "ray", reason="Ray 2.60's node crashes when such an actor ends")
def test_object_store_memory_of_actors_is_counted() -> None:
    with pytest.warns(DeprecationWarning, match="'object_store_memory' for actors is deprecated"):
        asked = Actor.options(object_store_memory=60 * 2**20)
    first, second = asked.remote(), asked.remote()
    assert ray.get(first.held.remote()) == {"object_store_memory": 60 * 2**20}
    waiting = second.held.remote()
    assert ray.wait([waiting], timeout=0)[1] == [waiting]
    del first
    assert ray.get(waiting) == {"object_store_memory": 60 * 2**20}
