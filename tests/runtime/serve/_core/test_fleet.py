"""One deployment's replicas without a cluster: what is started when some die."""

from __future__ import annotations

import itertools
import math

from runtime._controllers.controller import ActorDied, Done, Effect, Sleep
from runtime._controllers.controller import Key as ActorKey
from runtime.serve._core.effects import CreateDetached
from runtime.serve._core.fleet import Fleet
from runtime.serve._core.specs import DeploymentOptions, DeploymentSpec, ReplicaReady
from runtime.serve._core.states import DeploymentStatus
from runtime.serve._core.world import World

READY = ReplicaReady("node", "", "host", 1, 1, "host", "worker", "log")


class Site:
    """A deployment whose replicas start when the test says so."""

    def __init__(self, num_replicas: int) -> None:
        numbers = itertools.count()
        world = World(lambda: f"r{next(numbers)}", lambda: b"", lambda _: True, 1000.0, "replica", "ingress")
        options = DeploymentOptions(num_replicas=num_replicas)
        self.now = 0.0
        self.due_s = -math.inf  # when a start is tried again
        self.fleet = Fleet("app", DeploymentSpec("D", b"", b"", "v1", options), {}, world, 0.0)
        self.move()

    def move(self, effects: list[Effect] | None = None) -> list[ActorKey]:
        """The replicas that are created."""
        all_effects = [*(effects or []), *self.fleet.reconcile(self.now)]
        for effect in all_effects:
            if isinstance(effect, Sleep) and effect.key == ("retry", "app", "D"):
                self.due_s = self.now + effect.seconds
        return [effect.key for effect in all_effects if isinstance(effect, CreateDetached)]

    def ready(self) -> None:
        """All that start become ready."""
        for replica in list(self.fleet.replicas.values()):
            if not replica.serves:
                self.move(self.fleet.done(Done(("start", replica.id), READY), self.now))

    def die(self) -> list[ActorKey]:
        """The newest replica dies. Returns those that are created at once."""
        replica = list(self.fleet.replicas.values())[-1]
        return self.move(self.fleet.died(ActorDied(replica.key, "chance"), self.now))


def test_a_killed_replica_is_replaced_at_once() -> None:
    site = Site(1)
    for life_s in (0.5, 10.0, 0.5, 10.0, 0.5):
        site.ready()
        site.now += life_s
        assert len(site.die()) == 1


def test_replicas_that_die_soon_after_they_were_ready_are_started_ever_later() -> None:
    for wanted in (1, 2):
        site = Site(wanted)
        site.ready()
        pauses = []
        for _ in range(4 * wanted):
            site.now += 0.1
            at_once = site.die()
            if not at_once:
                assert "the next start waits" in site.fleet.message(site.now)
                pauses.append(site.due_s - site.now)
                site.now = site.due_s
                assert len(site.move()) == 1
            site.ready()
        assert len(pauses) == 3 * wanted
        assert pauses == sorted(pauses)
        assert pauses[-1] >= 3 * pauses[0] > 0


def test_one_that_lives_ends_the_row() -> None:
    site = Site(2)
    site.ready()
    for _ in range(2):
        site.now += 0.1
        assert len(site.die()) == 1
        site.ready()
    site.now += 5.0  # both live on
    assert len(site.die()) == 1
    site.ready()
    site.now += 0.1
    assert len(site.die()) == 1


def test_a_failed_deployment_keeps_what_serves_and_replaces_nothing() -> None:
    site = Site(2)
    site.ready()
    site.now += 10.0
    changed = DeploymentSpec(
        "D", b"", b"", "v2", DeploymentOptions(num_replicas=2, max_constructor_retry_count=1)
    )
    site.move(site.fleet.deploy(changed, {}, site.now))
    assert site.die() == []  # the new one, whose constructor ends its process
    assert site.fleet.state.status is DeploymentStatus.DEPLOY_FAILED
    assert len(site.fleet.serving) == 2
    assert site.die() == []
    assert len(site.fleet.serving) == 1
