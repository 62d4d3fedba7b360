"""Tensors that stay in the actor that made them."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.polling import eventually
from tests.under_test import OWN, exceptions, ray

if not OWN:
    pytest.skip("Ray's need torch where it is installed", allow_module_level=True)

from runtime import experimental
from runtime.experimental.collective import (
    create_collective_group,
    destroy_all_collective_groups,
    destroy_collective_group,
)

WAIT_S = 300


@ray.remote(num_cpus=0)
class Actor:
    @ray.method(tensor_transport="gloo")
    def make(self, size: int) -> Any:
        import torch

        self.made = torch.arange(size)
        return {"one": self.made, "more": [torch.ones(2, 3), "text"]}

    @ray.method(tensor_transport="gloo")
    def text(self) -> str:
        return "no tensor"

    def plain(self, size: int) -> Any:
        import torch

        return torch.full((size,), 2)

    def sums(self, result: Any) -> list[Any]:
        return [int(result["one"].sum()), float(result["more"][0].sum()), result["more"][1]]

    def is_mine(self, result: Any) -> bool:
        return bool(result["one"].data_ptr() == self.made.data_ptr())

    def got(self, refs: list[Any]) -> int:
        return int(ray.get(refs[0])["one"].sum())

    def change(self, timeout_s: float) -> str:
        """Changes what was made once nobody can fetch it."""
        try:
            experimental.wait_tensor_freed(self.made[2:], timeout_s)
        except TimeoutError as error:
            return str(error)
        self.made += 1
        return "changed"

    def kept(self) -> int:
        from runtime.experimental import tensors

        gc.collect()  # importing torch leaves cycles that hold the frames, and so the arguments, of the first call
        return len(tensors._kept)

    def pid(self) -> int:
        return os.getpid()


@ray.remote(num_cpus=0, enable_tensor_transport=True)
class AsyncActor:
    @ray.method(tensor_transport="gloo")
    async def make(self, size: int) -> Any:
        import torch

        await asyncio.sleep(0)
        self.made = torch.arange(size)
        return [self.made]

    async def sum(self, result: Any) -> int:
        await asyncio.sleep(0)
        return int(result[0].sum())

    async def awaited(self, refs: list[Any]) -> int:
        return int((await refs[0])[0].sum())

    async def is_mine(self, result: Any) -> bool:
        return bool(result[0].data_ptr() == self.made.data_ptr())


@ray.remote(num_cpus=0)
class Plain:
    def make(self) -> int:
        return 1


@pytest.fixture(scope="module")
def actors(session: None) -> Iterator[list[Any]]:
    pytest.importorskip("torch", exc_type=ImportError)
    made = [Actor.remote() for _ in range(3)]
    create_collective_group(made[:2], "gloo")
    yield made
    destroy_all_collective_groups()
    for one in made:
        ray.kill(one)


def test_tensors_go_from_actor_to_actor_and_end_with_the_reference(actors: list[Any]) -> None:
    maker, other, stranger = actors
    ref = maker.make.remote(10)
    assert ray.get(other.sums.remote(ref), timeout=WAIT_S) == [45, 6.0, "text"]
    assert ray.get(other.got.remote([ref]), timeout=WAIT_S) == 45
    assert ray.get(maker.is_mine.remote(ref), timeout=WAIT_S)
    assert ray.get(maker.kept.remote(), timeout=WAIT_S) == 1
    # The other way, and both at once.
    back = other.make.remote(100)
    both = [maker.sums.remote(back), other.sums.remote(ref)]
    assert [one[0] for one in ray.get(both, timeout=WAIT_S)] == [4950, 45]
    # Who is in no group with the maker.
    with pytest.raises(ValueError, match="no collective group of that backend has both"):
        ray.get(ref)
    with pytest.raises(ValueError, match="no collective group of that backend has both"):
        ray.get(stranger.sums.remote(ref), timeout=WAIT_S)
    value = ray.get(ref, _use_object_store=True)
    assert (value["one"].tolist(), value["more"][1]) == (list(range(10)), "text")
    with pytest.raises(ValueError, match="does not have tensor transport GLOO available"):
        ray.get(stranger.make.remote(1), timeout=WAIT_S)
    del ref, back, both, value
    assert eventually(lambda: ray.get([maker.kept.remote(), other.kept.remote()]) == [0, 0])


def test_a_call_chooses_its_transport(actors: list[Any]) -> None:
    maker, other, _ = actors
    ref = maker.plain.options(tensor_transport="gloo").remote(3)
    with pytest.raises(ValueError, match="no collective group"):
        ray.get(ref)
    assert ray.get(other.__ray_call__.remote(lambda _, tensor: tensor.tolist(), ref)) == [2, 2, 2]
    assert ray.get(maker.make.options(tensor_transport="object_store").remote(2))["one"].tolist() == [0, 1]
    assert ray.get(maker.text.remote()) == "no tensor"


def test_an_actor_changes_a_tensor_when_nobody_can_fetch_it(actors: list[Any]) -> None:
    maker = actors[0]
    ref = maker.make.remote(5)
    assert "still are references" in ray.get(maker.change.remote(0.1), timeout=WAIT_S)
    changed = maker.change.remote(WAIT_S)
    assert ray.wait([changed], timeout=0.2)[0] == []
    del ref
    assert ray.get(changed, timeout=WAIT_S) == "changed"
    assert ray.get(maker.change.remote(0), timeout=WAIT_S) == "changed"


def test_async_actors(session: None) -> None:
    pytest.importorskip("torch", exc_type=ImportError)
    first, second = actors = [AsyncActor.remote() for _ in range(2)]
    group = create_collective_group(actors, "gloo")
    refs = [first.make.remote(10), second.make.remote(100)]
    assert ray.get(first.is_mine.remote(refs[0]), timeout=WAIT_S)
    for _ in range(5):  # both ways at once: each event loop waits, and hands out nevertheless
        calls = [first.sum.remote(refs[1]), second.sum.remote(refs[0]), first.awaited.remote([refs[1]])]
        assert ray.get(calls, timeout=WAIT_S) == [4950, 45, 4950]
    destroy_collective_group(group)
    for actor in actors:
        ray.kill(actor)


def test_a_maker_that_dies(session: None) -> None:
    pytest.importorskip("torch", exc_type=ImportError)
    maker = Actor.remote()
    create_collective_group([maker], "gloo", "alone")
    ref = maker.make.remote(3)
    ray.wait([ref])
    os.kill(ray.get(maker.pid.remote()), signal.SIGKILL)
    with pytest.raises(exceptions.RayActorError):
        ray.get(ref, _use_object_store=True)
    destroy_all_collective_groups()


def test_what_is_refused(session: None) -> None:
    plain = Plain.remote()
    with pytest.raises(ValueError, match="enable_tensor_transport=True"):
        plain.make.options(tensor_transport="gloo").remote()
    with pytest.raises(ValueError, match="Unsupported tensor transport protocol: 'x'"):
        plain.make.options(tensor_transport="x")
    with pytest.raises(ValueError, match="Unsupported tensor transport protocol: 'nixl'"):
        ray.method(tensor_transport="nixl")
    with pytest.raises(ValueError, match="not supported for GLOO"):
        ray.put(1, _tensor_transport="gloo")
    assert ray.get(ray.put(1, _tensor_transport="object_store")) == 1
    enabled = Plain.options(enable_tensor_transport=True).remote()
    assert ray.get(enabled.make.options(tensor_transport="gloo").remote()) == 1
    with pytest.raises(ValueError, match="only support 1 return value"):
        enabled.make.options(tensor_transport="gloo", num_returns=2).remote()
    with pytest.raises(ValueError, match="make, text"):
        Actor.options(enable_tensor_transport=False).remote()
