"""Gangs of real actors."""

from __future__ import annotations

import os
from typing import Any

import pytest

import runtime as ray
from runtime._core.actors import ActorState
from runtime._extension import gangs
from runtime._extension.events import Subscription
from runtime._extension.news import ActorChanged
from runtime._wire.messages.groups import CreatePlacementGroup
from runtime.util.placement_group import placement_group
from runtime.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from tests.polling import eventually

pytestmark = pytest.mark.usefixtures("session")


@ray.remote(num_cpus=1)
class Member:
    def __init__(self, rank: int, fails: bool = False) -> None:
        if fails:
            raise ValueError("on purpose")
        self.rank = rank

    def get(self) -> int:
        return self.rank

    def die(self) -> None:
        os._exit(1)


def made(count: int) -> tuple[gangs.Gang, list[Any]]:
    with gangs.together() as gang:
        group = placement_group([{"CPU": 1}] * count)
        actors = []
        for rank in range(count):
            strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
            actors.append(Member.options(scheduling_strategy=strategy).remote(rank))
    return gang, actors


def cpus_are_free() -> bool:
    return bool(ray.available_resources().get("CPU") == 4)


def test_a_gang_comes_up_and_ends_together() -> None:
    gang, actors = made(3)
    gang.wait(60)
    assert ray.get([actor.get.remote() for actor in actors]) == [0, 1, 2]
    with Subscription() as subscription:
        gang.watch(subscription)
        actors[1].die.remote()
        dead: dict[str, str] = {}
        while len(dead) < 3:
            for one in subscription.take(60):
                if isinstance(one, ActorChanged) and one.state is ActorState.DEAD:
                    dead[one.actor_id] = one.reason
    first = actors[1]._actor_id.hex()
    assert all(first in reason for actor_id, reason in dead.items() if actor_id != first)
    assert eventually(lambda: is_dead(actors[0]))
    with pytest.raises(gangs.GangFailed):
        gang.wait(60)
    assert eventually(cpus_are_free)


def is_dead(actor: ray.actor.ActorHandle) -> bool:
    """Its process may still answer a call for a moment after it was declared dead."""
    try:
        ray.get(actor.get.remote(), timeout=60)
    except ray.exceptions.RayActorError:
        return True
    return False


def test_a_constructor_that_raises_ends_the_gang() -> None:
    with gangs.together() as gang:
        group = placement_group([{"CPU": 1}] * 2)
        strategy = PlacementGroupSchedulingStrategy(group)
        actors = [Member.options(scheduling_strategy=strategy).remote(n, fails=n == 1) for n in range(2)]
    with pytest.raises(gangs.GangFailed):
        gang.wait(60)
    assert len(actors) == 2
    assert eventually(cpus_are_free)


def test_arguments_that_are_to_come() -> None:
    @ray.remote(num_cpus=0)
    def later(value: int) -> int:
        return value

    with gangs.together() as gang:
        group = placement_group([{"CPU": 1}] * 2)
        strategy = PlacementGroupSchedulingStrategy(group)
        actors = [Member.options(scheduling_strategy=strategy).remote(later.remote(n)) for n in range(2)]
    gang.wait(60)
    assert ray.get([actor.get.remote() for actor in actors]) == [0, 1]
    del actors
    assert eventually(cpus_are_free)


def test_a_gang_that_does_not_fit_waits_as_a_whole() -> None:
    gang, actors = made(9)
    with pytest.raises(ray.exceptions.GetTimeoutError, match="9 of 9"):
        gang.wait(0.3)
    assert ray.available_resources().get("CPU") == 4
    for actor in actors[:1]:
        ray.kill(actor)
    with pytest.raises(gangs.GangFailed):
        gang.wait(60)


def test_the_handles_going_ends_the_gang() -> None:
    gang, actors = made(2)
    gang.wait(60)
    del actors
    assert eventually(cpus_are_free)


def wrong_block(outside: bool = False, name: str | None = None, group: bool = True, divisor: int = 1) -> Any:
    with gangs.together():
        if group:
            placement_group([{"CPU": 1}])
        if name is not None or outside or not group:
            actors.append(Member.options(name=name).remote(1 // divisor))
        return 1 // divisor


actors: list[Any] = []


def test_a_block_that_is_wrong_creates_nothing() -> None:
    with pytest.raises(ValueError, match="0 groups and 1 actors"):
        wrong_block(group=False)
    with pytest.raises(ValueError, match="not in the placement group"):
        wrong_block(outside=True)
    with pytest.raises(ValueError, match="have no names"):
        wrong_block(name="x")
    with pytest.raises(ValueError, match="1 groups and 0 actors"):
        wrong_block()
    with pytest.raises(ZeroDivisionError):
        wrong_block(divisor=0)
    with pytest.raises(RuntimeError, match="cannot be inside"), gangs.together(), gangs.together():
        pass
    assert len(actors) == 2
    for actor in actors:
        with pytest.raises(ray.exceptions.RayActorError, match="its gang was not created"):
            ray.get(actor.get.remote())
    actors.clear()
    assert ray.get(Member.remote(5).get.remote()) == 5  # the thread sends again
    assert eventually(cpus_are_free)


def test_a_refused_gang_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    request = gangs._request

    def spoiled(*args: Any) -> Any:
        made = request(*args)
        group = made.group
        assert isinstance(group, CreatePlacementGroup)
        from msgspec.structs import replace

        return replace(made, group=replace(group, strategy="NONSENSE"))

    monkeypatch.setattr(gangs, "_request", spoiled)
    gang, actors = made(2)
    with pytest.raises(gangs.GangFailed, match="NONSENSE"):
        gang.wait(60)
    with pytest.raises(ray.exceptions.RayActorError, match="NONSENSE"):
        ray.get(actors[0].get.remote())
