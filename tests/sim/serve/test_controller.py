"""The controller of serving over days of failures, with seeds."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from runtime._controllers.loop import Ended, Loop
from runtime._extension.news import NodeChanged, NodeState
from runtime.serve._core import requests
from runtime.serve._core.controller import DeployFailed, Refused, ServeController
from runtime.serve._core.published import Demand, Load, Targets
from runtime.serve._core.recovered import Recovered
from runtime.serve._core.replica import digest
from runtime.serve._core.specs import ApplicationSpec, DeploymentOptions, DeploymentSpec
from runtime.serve._core.states import ApplicationStatus, DeploymentStatus, ReplicaState
from runtime.serve._core.world import HEAD, World
from tests.sim.events import Events, Violation
from tests.sim.serve.cluster import NODES, Crashed, ServeChances, ServeSim

START = requests.Configure({"port": 8000}, {}, "EveryNode")
TROUBLE_S, CALM_S, END_S = 60.0, 200.0, 400.0


class Finished(Exception):
    """The time is over."""


def _subject(what: Any) -> str:
    match what:
        case requests.Deploy([spec]):
            return str(spec.name)
        case requests.Delete([name]):
            return str(name)
    return ""


class Run:
    """One run: controllers that follow each other, clients that ask again when theirs has gone, and checks."""

    def __init__(self, seed: int, chances: ServeChances, crowded: float) -> None:
        self.crowded = crowded
        self.world = Events(seed)
        self.rng = self.world.rng
        self.begun_s = self.world.now
        self.engine = ServeSim(self.world, chances)
        self.engine.check_removal = self.check_removal
        self.numbers = itertools.count()
        self.controller: ServeController
        self.loop: Loop
        self.nodes = {name: _node(name, NodeState.ALIVE) for name in NODES}
        self.asked: dict[int, tuple[Any, Any]] = {}
        self.wanted: dict[str, ApplicationSpec] = {}
        self.refused = 0

    # ------------------------------------------------------------ the controller and its clients

    def life(self) -> None:
        """One life of the controller."""
        world = World(
            unique=lambda: f"r{next(self.numbers)}",
            token=lambda: b"token",
            fits=lambda _: self.rng.random() >= self.crowded,
            wall_offset_s=0.0,
            replica_class="replica",
            ingress_class="ingress",
        )
        self.controller = ServeController(world, Recovered(dict(self.engine.store)))
        self.loop = Loop(self, self.engine)
        self.engine.closed = False
        self.engine._due += [_noticed(node) for node in self.nodes.values()]
        again, self.asked = self.asked, {}
        for what in {_subject(what): what for what, _ in again.values()}.values():
            self.ask(what)  # but for those that were overtaken
        self.loop.run()

    def run(self) -> None:
        while True:
            try:
                self.life()
            except Crashed:
                continue
            except Finished:
                return

    def ask(self, what: Any) -> None:
        number = next(self.numbers)
        self.asked[number] = (what, self.loop.request(what))

    def step(self, event: Any, now: float) -> Any:
        if now > self.begun_s + END_S:
            raise Finished
        effects = self.controller.step(event, now)
        for number, (_, future) in list(self.asked.items()):
            if future.done():
                error = future.exception()
                if isinstance(error, Ended):
                    continue
                if error is not None and not isinstance(error, DeployFailed | Refused):
                    self.world.fail(f"an answer is {error!r}")
                self.refused += error is not None
                del self.asked[number]
        return effects

    def waiting_for(self) -> Any:
        return self.controller.waiting_for()

    # ------------------------------------------------------------ what happens

    def trouble(self) -> None:
        """Deploys, deletes, deaths and drains, at random times."""
        self.world.at(0.1, lambda: self.ask(START))
        for _ in range(self.rng.randint(5, 25)):
            self.world.at(self.rng.random() * TROUBLE_S, self.something)

    def something(self) -> None:
        roll = self.rng.random()
        if roll < 0.5:
            self.deploy(_application(self.rng, self.rng.choice("ab")))
        elif roll < 0.6 and self.wanted:
            name = self.rng.choice(sorted(self.wanted))
            del self.wanted[name]
            self.ask(requests.Delete([name]))
        elif roll < 0.8:
            self.engine.kill(self.rng)
        elif roll < 0.9:
            self.node(self.rng.choice(NODES[1:]))
        else:
            for app in self.controller.apps.values():
                for fleet in app.fleets.values():
                    for replica in fleet.serving:
                        self.loop.request(Load(replica.id, self.rng.randint(0, 8)))
                    self.loop.request(
                        Demand("caller", {(app.spec.name, fleet.name): self.rng.choice((0, 0, 5))})
                    )

    def deploy(self, spec: ApplicationSpec) -> None:
        self.wanted[spec.name] = spec
        self.ask(requests.Deploy([spec]))

    def node(self, name: str) -> None:
        """A node drains, or has resumed."""
        state = NodeState.DRAINING if self.nodes[name].state is NodeState.ALIVE else NodeState.ALIVE
        self.nodes[name] = _node(name, state)
        self.engine._due.append(_noticed(self.nodes[name]))

    def calm(self) -> None:
        """All nodes are back, and everything is deployed once more: what failed before must run now."""
        for name in NODES[1:]:
            if self.nodes[name].state is not NodeState.ALIVE:
                self.node(name)
        for spec in list(self.wanted.values()):
            self.deploy(spec)

    # ------------------------------------------------------------ what must hold

    def check_removal(self, key: bytes, before: Targets, now: Targets) -> None:
        """What is taken out while it works leaves enough that serve, if there were enough."""
        _, app, deployment = key.decode().split("\0")
        found = self.controller.apps.get(app)
        fleet = None if found is None else self.controller._find(app, deployment)
        if fleet is None or fleet.is_leaving:
            return
        left = {target.replica for target in now.replicas}
        removed = [
            target.replica
            for target in before.replicas
            if target.replica not in left
            and ("replica", target.replica) in self.engine.actors
            and target.replica not in self.engine.broken
            and target.replica in fleet.replicas
        ]
        if removed and len(left) < fleet.wanted and not self.crowded:
            self.world.fail(f"{removed} were taken out, {len(left)} of {fleet.wanted} are left")

    def check_end(self) -> None:
        controller, engine = self.controller, self.engine
        assert set(controller.apps) == set(self.wanted)
        expected = {("ingress", "head")}
        for name, spec in self.wanted.items():
            app = controller.apps[name]
            assert app.state.status is ApplicationStatus.RUNNING, (app.state.status, app.state.message)
            assert set(app.fleets) == {each.name for each in spec.deployments}
            assert not app.leaving
            for deployment in spec.deployments:
                fleet = app.fleets[deployment.name]
                assert fleet.state.status is DeploymentStatus.HEALTHY
                assert len(fleet.replicas) == fleet.wanted
                ranks = []
                for replica in fleet.replicas.values():
                    assert replica.state is ReplicaState.RUNNING
                    assert replica.record.version == deployment.version
                    assert replica.record.options == digest(deployment.options)
                    expected |= {replica.key, ("ingress", replica.node)}
                    ranks.append(replica.record.rank)
                assert sorted(ranks) == list(range(len(ranks)))
                published = engine.targets[f"targets\0{name}\0{deployment.name}".encode()]
                assert {each.replica for each in published.replicas} == set(fleet.replicas)
        assert set(engine.actors) == expected
        assert not self.asked
        kinds = {"app": len(self.wanted), "replica": sum(key[0] == "replica" for key in expected)}
        for kind, count in kinds.items():
            assert sum(key.startswith(f"{kind}\0".encode()) for key in engine.store) == count

    def check_gone(self) -> None:
        assert not self.controller.apps
        assert not self.engine.actors
        assert not self.engine.groups
        left = {key.split(b"\0")[0] for key in self.engine.store}
        assert left <= {b"options", b"routes"}, left


def _node(name: str, state: NodeState) -> NodeChanged:
    resources = {"CPU": 8.0, **({HEAD: 1.0} if name == "head" else {})}
    return NodeChanged(name, state, "", f"host-{name}", {}, resources)


def _noticed(node: NodeChanged) -> Any:
    from runtime._controllers.controller import Noticed

    return Noticed(node)


def _application(rng: random.Random, name: str) -> ApplicationSpec:
    names = ["ingress", *rng.sample(("one", "two"), rng.randint(0, 2))]
    return ApplicationSpec(name, f"/{name}", "ingress", [_deployment(rng, each) for each in names])


def _deployment(rng: random.Random, name: str) -> DeploymentSpec:
    scales = rng.random() < 0.3
    autoscaling = {
        "min_replicas": rng.randint(0, 1),
        "max_replicas": 4,
        "look_back_period_s": 2.0,
        "upscale_delay_s": 1.0,
        "downscale_delay_s": 3.0,
    }
    options = DeploymentOptions(
        num_replicas=None if scales else rng.randint(1, 5),
        autoscaling=autoscaling if scales else None,
        user_config={"x": rng.randint(1, 3)},
        max_replicas_per_node=rng.choice((None, None, None, 2)) if not scales else None,
        placement_group_bundles=rng.choice((None, None, None, [{"CPU": 1.0}])),
        graceful_shutdown_timeout_s=5.0,
    )
    if options.max_replicas_per_node is not None:
        options = DeploymentOptions(num_replicas=3, max_replicas_per_node=2, user_config=options.user_config)
    return DeploymentSpec(name, b"", b"", f"v{rng.randint(1, 3)}", options)


def run(seed: int, chances: ServeChances, crowded: float) -> Run:
    one = Run(seed, chances, crowded)
    one.world.at(0.0, one.trouble)
    one.world.at(CALM_S, one.calm)
    one.world.at(CALM_S + 150, lambda: one.loop.request(requests.Look()))
    ends = (
        (CALM_S + 100, one.check_end),
        (CALM_S + 101, lambda: one.ask(requests.ShutDown())),
        (END_S - 5, one.check_gone),
        (END_S + 1, lambda: one.loop.request(requests.Look())),
    )
    for delay_s, action in ends:
        one.world.at(delay_s, action)
    try:
        one.run()
    except Exception as error:
        raise Violation(f"seed {seed}: {error!r}\n{one.world.story()}\nseed {seed}: {error!r}") from error
    return one


CALM = {"immortal_after_s": TROUBLE_S + 20}


SEEDS = 4
STORIES = {
    "calm": (ServeChances(**CALM), 0.0),
    "deaths": (
        ServeChances(actor_dies=0.3, start_fails=0.15, update_fails=0.1, check_fails=0.05, **CALM),
        0.0,
    ),
    "crashes": (ServeChances(crashes=0.01, actor_dies=0.2, start_fails=0.1, **CALM), 0.0),
    "crowded": (ServeChances(crashes=0.003, actor_dies=0.1, **CALM), 0.5),
}


@pytest.mark.parametrize("story", STORIES)
def test_everything_ends_where_it_should(story: str) -> None:
    chances, crowded = STORIES[story]
    runs = [run(seed, chances, crowded) for seed in range(SEEDS)]
    assert bool(chances.crashes) == bool(sum(one.engine.crashes for one in runs))
