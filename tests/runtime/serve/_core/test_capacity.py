"""The part of their replicas that declared applications have, without a cluster."""

from __future__ import annotations

import itertools
import random

import pytest

from runtime._controllers.controller import Begin, Effect, Reply, Requested
from runtime.serve._core import requests
from runtime.serve._core.autoscale import Scaler
from runtime.serve._core.capacity import FULL, Capacity, Direction
from runtime.serve._core.controller import ServeController
from runtime.serve._core.effects import CreateDetached, Put
from runtime.serve._core.recovered import Recovered
from runtime.serve._core.specs import ApplicationSpec, DeploymentOptions, DeploymentSpec
from runtime.serve._core.world import World
from runtime.serve.config import AutoscalingConfig


@pytest.mark.parametrize(
    ("percent", "replicas", "left"),
    [
        (None, 7, 7),
        (100, 7, 7),
        (50, 5, 3),  # 2.5 is rounded up
        (50, 6, 3),
        (20, 6, 1),
        (1, 3, 1),  # never none
        (1, 0, 0),
        (0, 9, 0),
        (33.4, 10, 3),
    ],
)
def test_how_many_replicas_are_left(percent: float | None, replicas: int, left: int) -> None:
    assert Capacity(percent).of(replicas) == left


def test_the_direction_is_that_of_the_last_change() -> None:
    a, b = {"a"}, {"b"}
    first = FULL.changed(20, set(), a)
    assert first == Capacity(20, Direction.UP)
    assert first.changed(20, a, a) == first
    assert first.changed(60, a, a) == Capacity(60, Direction.UP)
    assert first.changed(60, a, a).changed(40, a, a) == Capacity(40, Direction.DOWN)
    assert FULL.changed(80, a, a) == Capacity(80, Direction.DOWN)  # from everything
    assert Capacity(80, Direction.DOWN).changed(40, a, b) == Capacity(40, Direction.UP)
    assert first.changed(None, a, a) == FULL


@pytest.mark.parametrize(
    ("capacity", "bounds"),
    [
        (FULL, (2, 20)),
        (Capacity(50, Direction.UP), (5, 10)),
        (Capacity(50, Direction.DOWN), (1, 10)),
        (Capacity(0, Direction.DOWN), (0, 0)),
    ],
)
def test_bounds_of_autoscaling(capacity: Capacity, bounds: tuple[int, int]) -> None:
    config = AutoscalingConfig(min_replicas=2, initial_replicas=10, max_replicas=20)
    scaler = Scaler("app", "D", config, None, 0.0)
    scaler.capacity = capacity
    assert scaler.bounds == bounds
    assert scaler.clamp(1000) == bounds[1]
    assert scaler.clamp(0) == bounds[0]


class Site:
    """A controller that is asked, with what the control store would have."""

    def __init__(self, store: dict[bytes, bytes]) -> None:
        numbers = itertools.count()
        world = World(lambda: f"r{next(numbers)}", lambda: b"", lambda _: True, 0.0, "replica", "ingress")
        self.store = store
        self.controller = ServeController(world, Recovered(dict(store)))
        self.created: list[str] = []
        self._take(self.controller.step(Begin(), 0.0))

    def _take(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, Put) and effect.value is None:
                self.store.pop(effect.key, None)
            elif isinstance(effect, Put) and effect.value is not None:
                self.store[effect.key] = effect.value
            elif isinstance(effect, CreateDetached) and effect.cls == "replica":
                self.created.append(effect.name)
        return effects

    def ask(self, what: object) -> list[Effect]:
        return self._take(self.controller.step(Requested(1, what), 0.0))

    def deploy(self, name: str, source: str = "declarative") -> None:
        fixed = DeploymentSpec("D", b"", b"", "v1", DeploymentOptions(num_replicas=10))
        scales = {"min_replicas": 2, "initial_replicas": 4, "max_replicas": 8}
        scaled = DeploymentSpec("S", b"", b"", "v1", DeploymentOptions(num_replicas=None, autoscaling=scales))
        self.ask(requests.Deploy([ApplicationSpec(name, None, "D", [fixed, scaled], source=source)], False))

    def announce(self, name: str, percent: float | None) -> None:
        spec = ApplicationSpec(name, None, "", [], source="declarative")
        self.ask(requests.Announce([spec], percent))

    def wanted(self, name: str) -> tuple[int, int]:
        fleets = self.controller.apps[name].fleets
        return fleets["D"].wanted, fleets["S"].wanted

    @property
    def shown(self) -> object:
        (reply,) = (each for each in self.ask(requests.Look()) if isinstance(each, Reply))
        assert isinstance(reply.value, dict)
        return reply.value["target_capacity"]


def test_a_declared_application_follows_the_capacity_and_others_do_not() -> None:
    site = Site({})
    site.deploy("mine", "imperative")
    site.announce("text", 50)
    site.deploy("text")
    assert site.wanted("text") == (5, 2)
    assert site.wanted("mine") == (10, 4)
    assert len(site.created) == 5 + 2 + 10 + 4
    assert site.shown == 50
    site.announce("text", 100)  # what runs has it before it is built anew
    assert site.wanted("text") == (10, 4)
    assert len(site.created) == 10 + 4 + 10 + 4
    site.announce("text", 0)
    assert site.wanted("text") == (0, 0)
    site.deploy("text")
    assert site.wanted("text") == (0, 0)
    site.announce("text", None)
    assert site.wanted("text")[0] == 10
    assert site.wanted("mine") == (10, 4)
    assert site.shown is None


@pytest.mark.parametrize("seed", range(20))
def test_a_restarted_controller_has_the_capacity_still(seed: int) -> None:
    rng = random.Random(seed)
    site = Site({})
    for _ in range(8):
        percent = rng.choice([None, 0, 10, 50, 75, 100])
        site.announce("text", percent)
        site.deploy("text")
        before = site.controller.capacity, site.wanted("text")
        site = Site(site.store)
        assert (site.controller.capacity, site.wanted("text")) == before
        assert site.shown == percent
        assert site.wanted("text")[0] == Capacity(percent).of(10)
        low, high = (Capacity(percent).of(count) for count in (2, 8))
        assert low <= site.wanted("text")[1] <= high
