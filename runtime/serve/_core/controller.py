"""The controller of serving: applications, and who waits for them. Pure; see `runtime._controllers`."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence, Set
from typing import Any

import msgspec

from runtime._controllers.controller import (
    ActorDied,
    ActorLost,
    ActorUp,
    Begin,
    Done,
    Effect,
    Event,
    Failed,
    Forget,
    Kill,
    Noticed,
    Reply,
    Requested,
    Sleep,
    TimerFired,
    Wait,
    Watch,
)
from runtime._extension.news import NodeChanged
from runtime.serve._core import requests, view, waiting
from runtime.serve._core.application import ApplicationInput
from runtime.serve._core.apps import App, Kept
from runtime.serve._core.capacity import FULL, Capacity
from runtime.serve._core.effects import Adopt, Put
from runtime.serve._core.fleet import Fleet
from runtime.serve._core.ingresses import Ingresses
from runtime.serve._core.published import (
    REPEAT_S,
    ROUTES,
    Demand,
    Load,
    Route,
    Routes,
    dump,
    load_routes,
    load_targets,
    targets_key,
)
from runtime.serve._core.recovered import CAPACITY, CONFIG, Recovered
from runtime.serve._core.replica import Replica, ReplicaRecord
from runtime.serve._core.specs import ApplicationSpec
from runtime.serve._core.states import ApplicationStatus, ReplicaState
from runtime.serve._core.world import World

TOMBSTONE_S = 60.0
"""How long callers can read that a deployment is gone."""


class DeployFailed(Exception):
    """An application could not be deployed. The message has the reason."""


class Refused(Exception):
    """A request is invalid, or contradicts what is deployed. The message has the reason."""


class ServeController:
    """See the module.

    Args:
        recovered: what the control store has from before a restart.
    """

    def __init__(self, world: World, recovered: Recovered | None = None) -> None:
        self.world = world
        self.apps: dict[str, App] = {}
        self.ingresses = Ingresses(world)
        self.capacity = FULL  # of declared applications
        self.routes = Routes(0, [])
        self._recovered = recovered or Recovered({})
        self._waiters: dict[int, Any] = {}
        self._since_s: dict[int, float] = {}
        self._dirty: dict[tuple[str, str], Fleet] = {}
        self._epochs: dict[tuple[str, str], int] = {}  # of what was published of deployments that are gone

    # ------------------------------------------------------------ see `Controller`

    def step(self, event: Event, now: float) -> list[Effect]:
        is_routine = self._is_routine(event)
        effects = self._react(event, now)
        if not is_routine:
            effects += self._settle(now)
        return effects

    def waiting_for(self) -> Sequence[Wait]:
        waits = self.ingresses.waiting_for()
        for app in self.apps.values():
            for fleet in app.all_fleets:
                waits += waiting.waits(fleet.replicas.values())
        return waits

    # ------------------------------------------------------------ events

    def _is_routine(self, event: Event) -> bool:
        """Whether it is one of the health checks that change nothing: with many replicas, most events are."""
        match event:
            case TimerFired(key=("check", *_)):
                return True
            case Done(key=("check", str(replica_id), *_)):
                app, deployment, _ = replica_id.rsplit("#", 2)
                fleet = self._find(app, deployment)
                replica = None if fleet is None else fleet.replicas.get(replica_id)
                return replica is not None and replica.state is not ReplicaState.RECOVERING
        return False

    def _react(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Begin():
                return [Watch("nodes"), *self._recover(now)]
            case Requested(number, what):
                return self._requested(number, what, now)
            case Done() | Failed():
                return self._ended(event, now)
            case ActorUp() | ActorLost() | ActorDied():
                return self._actor(event, now)
            case TimerFired(key):
                return self._timer(key, now)
            case Noticed(NodeChanged() as node):
                self.world.learn(node)
                for app in self.apps.values():
                    for fleet in app.all_fleets:
                        self._touch(fleet)
        return []

    def _ended(self, event: Done | Failed, now: float) -> list[Effect]:
        """What `Call` or `Perform` has begun is over."""
        key: Any = event.key
        forget: list[Effect] = [Forget(key)] if isinstance(event, Done) else []
        if key[0] == "ingress":
            if isinstance(event, Done):
                return self.ingresses.done(event, now)
            return self.ingresses.failed(event, now)
        if key[0] == "routes":
            self.ingresses.routes_known(key[1], key[2])
            return forget
        if key[0] == "fits":
            fleet = self._touched(key[1], key[2])
            if fleet is not None:
                fleet.room_known(bool(event.value) if isinstance(event, Done) else True)
            return forget
        fleet = self._of(key[1])
        if fleet is None:
            return forget
        return fleet.done(event, now) if isinstance(event, Done) else fleet.failed(event, now)

    def _actor(self, event: ActorUp | ActorLost | ActorDied, now: float) -> list[Effect]:
        key: Any = event.key
        kind, name = key
        if kind == "ingress":
            if isinstance(event, ActorUp):
                return self.ingresses.up(event, now)
            if isinstance(event, ActorDied):
                return self.ingresses.died(event, now)
            return self.ingresses.lost(event, now)
        fleet = self._of(name)
        if fleet is None:
            return []
        if isinstance(event, ActorUp):
            fleet.up(event)
        elif isinstance(event, ActorDied):
            return fleet.died(event, now)
        return []

    def _timer(self, key: Any, now: float) -> list[Effect]:
        kind, *rest = key
        match kind:
            case "check" | "late" | "stop":
                fleet = self._of(rest[0])
                if fleet is None:
                    return []
                if kind == "check":
                    return fleet.check_due(rest[0])
                return fleet.check_late(rest[0], now) if kind == "late" else fleet.kill_due(rest[0])
            case "room" | "scale" | "retry":
                fleet = self._touched(*rest)
                if fleet is None or kind == "retry":
                    return []
                return fleet.room_due() if kind == "room" else fleet.scale(now)
            case "unneeded":
                return self.ingresses.unneeded(rest[0], now)
            case "waiter":
                return self._too_late(rest[0], now)
            case "tombstone":
                self._epochs.pop((rest[0], rest[1]), None)
                return [Put(targets_key(*rest), None)]
        return self.ingresses.timer(kind, rest[0], now)

    # ------------------------------------------------------------ requests

    def _requested(self, number: int, what: Any, now: float) -> list[Effect]:
        match what:
            case Load():
                told = self._of(what.replica)
                return [Reply(number), *([] if told is None else told.told(what, now))]
            case Demand(caller, queued):
                effects: list[Effect] = [Reply(number)]
                for found in self.apps.values():
                    for fleet in found.fleets.values():
                        if fleet.scaler is not None:
                            count = queued.get((fleet.app, fleet.name), 0)  # it tells of all its queues
                            effects += fleet.waited(caller, count, now)
                            self._touch(fleet)
                return effects
            case requests.Look():
                return [
                    Reply(number, view.details(self.apps, self.ingresses, self.capacity, self.world, now))
                ]
            case requests.Find(name, deployment):
                return [Reply(number, self._name_of(name, deployment))]
            case requests.Configure() | requests.Deploy() | requests.Announce() if self.ingresses.is_leaving:
                message = "Serving is shutting down: call serve.shutdown again to finish that, then deploy."
                return [Reply(number, error=Refused(message))]
            case requests.Configure(http, grpc, location):
                effects = self.ingresses.configure(http, grpc, location)
            case requests.Deploy(specs):
                error = self._conflict(specs)
                if error:
                    return [Reply(number, error=Refused(error))]
                effects = [effect for spec in specs for effect in self._deploy(spec, now)]
            case requests.Announce(specs, percent):
                names = {spec.name for spec in specs}
                others = [
                    name
                    for name, app in self.apps.items()
                    if app.spec.source == "declarative" and name not in names
                ]
                error = self._conflict(specs, others)
                if error:
                    return [Reply(number, error=Refused(error))]
                effects = self._set_capacity(percent, names, now)
                effects += [effect for name in others for effect in self._delete(name, now)]
                effects += [effect for spec in specs for effect in self._announce(spec, now)]
                return [Reply(number), *effects]
            case requests.Spoil(name, message):
                return [Reply(number), *self._spoil(name, message, now)]
            case requests.Delete(names):
                effects = [effect for name in names for effect in self._delete(name, now)]
            case requests.SetReplicas(app, deployment, count):
                return self._set_replicas(number, app, deployment, count, now)
            case requests.ShutDown():
                effects = [effect for name in self.apps for effect in self._delete(name, now)]
                self.ingresses.is_leaving = True
            case requests.WaitFor(timeout_s=timeout_s):
                effects = [] if timeout_s is None else [Sleep(("waiter", number), timeout_s)]
            case _:
                return [Reply(number, error=Refused(f"{what!r} is no request of the serve controller."))]
        self._waiters[number] = what
        self._since_s[number] = now
        return effects

    def _name_of(self, app: str, deployment: str) -> str | None:
        found = self.apps.get(app)
        if found is None or found.leaves:
            return None
        if not deployment:
            return found.spec.ingress
        return deployment if deployment in found.fleets else None

    def _conflict(self, specs: Sequence[ApplicationSpec], ending: Sequence[str] = ()) -> str:
        """Why these cannot be deployed beside the others, but for those that are about to end."""
        names = [spec.name for spec in specs]
        if len(set(names)) < len(names):
            return f"Applications need different names: {', '.join(sorted(names))}."
        prefixes = {
            app.spec.route_prefix: name
            for name, app in self.apps.items()
            if app.spec.route_prefix is not None and name not in (*names, *ending) and not app.leaves
        }
        for spec in specs:
            if spec.route_prefix is None:
                continue
            other = prefixes.setdefault(spec.route_prefix, spec.name)
            if other != spec.name:
                return (
                    f"Prefix {spec.route_prefix} is being used by application {other!r}: application {spec.name!r} "
                    "needs another route_prefix, or None."
                )
        return ""

    def _deploy(self, spec: ApplicationSpec, now: float) -> list[Effect]:
        app = self.apps.get(spec.name)
        if app is None:
            app = self.apps[spec.name] = App(spec, self.world.wall_s(now))
        app.spec, app.deployed_s, app.is_being_built = spec, self.world.wall_s(now), False
        app.state.step(ApplicationInput.DEPLOY, now)
        effects: list[Effect] = []
        known = {**app.fleets, **app.leaving}
        fleets = {}
        for deployment in spec.deployments:
            fleet = known.pop(deployment.name, None)
            if fleet is None:
                fleet = Fleet(
                    spec.name, deployment, spec.runtime_env, self.world, now, self._capacity_of(spec)
                )
                effects += [*self._after_tombstone(fleet), *fleet.scale(now)]
            else:
                fleet.capacity = self._capacity_of(spec)
                effects += fleet.deploy(deployment, spec.runtime_env, now)
            fleets[deployment.name] = fleet
            self._touch(fleet)
        app.fleets, app.leaving = fleets, known
        return [app.keep(), *effects]

    def _set_capacity(self, percent: float | None, names: Set[str], now: float) -> list[Effect]:
        """What runs has it at once; what is built, when it is deployed."""
        declared = {
            name: app
            for name, app in self.apps.items()
            if app.spec.source == "declarative" and not app.leaves
        }
        before, self.capacity = self.capacity, self.capacity.changed(percent, declared.keys(), names)
        if self.capacity == before:
            return []
        effects: list[Effect] = [Put(CAPACITY, pickle.dumps(self.capacity))]
        for app in declared.values():
            for fleet in app.fleets.values():
                fleet.capacity = self.capacity
                effects += fleet.deploy(fleet.spec, app.spec.runtime_env, now)
                self._touch(fleet)
        return effects

    def _capacity_of(self, spec: ApplicationSpec) -> Capacity:
        return self.capacity if spec.source == "declarative" else FULL

    def _announce(self, spec: ApplicationSpec, now: float) -> list[Effect]:
        """It is being built in a task. Its previous version keeps running."""
        app = self.apps.get(spec.name)
        if app is None:
            app = self.apps[spec.name] = App(spec, self.world.wall_s(now))
        app.is_being_built = True
        app.state.step(ApplicationInput.DEPLOY, now, "The application is being built.")
        return [app.keep()]

    def _spoil(self, name: str, message: str, now: float) -> list[Effect]:
        """It could not be built."""
        app = self.apps.get(name)
        if app is not None and app.is_being_built and not app.leaves:
            app.state.step(ApplicationInput.FAILS, now, message)
        return []

    def _after_tombstone(self, fleet: Fleet) -> list[Effect]:
        """Continues the epochs of a deployment of the same name: callers ignore lower ones."""
        fleet.epoch = self._epochs.pop((fleet.app, fleet.name), 0)
        return [Sleep(("tombstone", fleet.app, fleet.name), -1)]

    def _delete(self, name: str, now: float) -> list[Effect]:
        app = self.apps.get(name)
        if app is None or app.leaves:
            return []
        app.state.step(ApplicationInput.DELETE, now)
        for fleet in app.all_fleets:
            fleet.delete(now)
            self._touch(fleet)
        return [app.keep()]

    def _set_replicas(self, number: int, app: str, deployment: str, count: int, now: float) -> list[Effect]:
        found = self.apps.get(app)
        fleet = None if found is None or found.leaves else found.fleets.get(deployment)
        if found is None or fleet is None:
            return [Reply(number, error=Refused(f"Application {app!r} has no deployment {deployment!r}."))]
        if not found.spec.external_scaler:
            return [
                Reply(
                    number,
                    error=Refused(
                        f"Application {app!r} is not scaled from outside: deploy it with external_scaler_enabled."
                    ),
                )
            ]
        effects = fleet.set_replicas(count, now)
        self._touch(fleet)
        deployments = [fleet.spec if each.name == deployment else each for each in found.spec.deployments]
        found.spec = msgspec.structs.replace(found.spec, deployments=deployments)
        return [Reply(number), found.keep(), *effects]

    # ------------------------------------------------------------ after each event

    def _settle(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        dirty, self._dirty = self._dirty, {}
        for fleet in dirty.values():
            effects += fleet.reconcile(now)
        for app in list(self.apps.values()):
            effects += self._settle_app(app, now)
        nodes = {
            each.node for app in self.apps.values() for fleet in app.fleets.values() for each in fleet.serving
        }
        effects += self._publish_routes()
        effects += self.ingresses.reconcile(nodes, now)
        effects += self._answer_waiters()
        return effects

    def _settle_app(self, app: App, now: float) -> list[Effect]:
        if not app.is_being_built:
            app.state.follow({name: fleet.state for name, fleet in app.fleets.items()}, now)
        effects: list[Effect] = []
        if app.state.status is ApplicationStatus.RUNNING and app.leaving:
            for fleet in app.leaving.values():
                fleet.delete(now)
                effects += fleet.reconcile(now)
        gone = [name for name, fleet in app.leaving.items() if fleet.is_gone]
        for name in gone:
            effects += self._bury(app.leaving.pop(name))
        if app.leaves:
            for name in [name for name, fleet in app.fleets.items() if fleet.is_gone]:
                effects += self._bury(app.fleets.pop(name))
            if not app.all_fleets:
                del self.apps[app.spec.name]
                return [*effects, Put(app.key, None)]
        if gone:
            effects.append(app.keep())
        return effects

    def _bury(self, fleet: Fleet) -> list[Effect]:
        self._epochs[fleet.app, fleet.name] = fleet.epoch
        return [
            Put(fleet.wanted_key, None),
            Sleep(("scale", fleet.app, fleet.name), -1),
            Sleep(("tombstone", fleet.app, fleet.name), TOMBSTONE_S),
        ]

    def _publish_routes(self) -> list[Effect]:
        routes = []
        apps = {}
        for name, app in sorted(self.apps.items()):
            if app.leaves or app.spec.ingress not in app.fleets:
                continue
            apps[name] = app.spec.ingress
            if app.spec.route_prefix is not None:
                routes.append(Route(app.spec.route_prefix, name, app.spec.ingress))
        if (routes, apps) == (self.routes.routes, self.routes.apps):
            return []
        self.routes = Routes(self.routes.epoch + 1, routes, apps)
        data = dump(self.routes)
        self.ingresses.publish(self.routes.epoch, data)
        return [Put(ROUTES, data)]

    # ------------------------------------------------------------ who waits

    def _answer_waiters(self) -> list[Effect]:
        effects: list[Effect] = []
        for number, what in list(self._waiters.items()):
            answer = self._answer(number, what)
            if answer is not None:
                del self._waiters[number], self._since_s[number]
                effects += [answer, Sleep(("waiter", number), -1)]
        return effects

    def _answer(self, number: int, what: Any) -> Reply | None:
        match what:
            case requests.Configure():
                if self.ingresses.failure:
                    return Reply(number, error=Refused(self.ingresses.failure))
                return Reply(number) if self.ingresses.is_ready else None
            case requests.Deploy(specs, waits):
                return Reply(number) if not waits else self._deployed(number, specs)
            case requests.Delete(names, waits):
                leaving = [name for name in names if name in self.apps and self.apps[name].leaves]
                is_over = not leaving and self.ingresses.know_routes
                return Reply(number) if not waits or is_over else None
            case requests.ShutDown():
                return Reply(number) if not self.apps and not self.ingresses.by_node else None
            case requests.WaitFor(names, states):
                return Reply(number) if all(self._is_in(name, states) for name in names) else None
        return None

    def _deployed(self, number: int, specs: Iterable[ApplicationSpec]) -> Reply | None:
        ready = self.ingresses.is_ready and self.ingresses.know_routes
        for spec in specs:
            app = self.apps.get(spec.name)
            if app is None or app.leaves:
                return Reply(number, error=DeployFailed(f"Application {spec.name!r} was deleted meanwhile."))
            if app.state.status is ApplicationStatus.DEPLOY_FAILED:
                message = f"Deploying application {spec.name!r} failed: {app.state.message}"
                return Reply(number, error=DeployFailed(message))
            ready = ready and app.state.status is ApplicationStatus.RUNNING and not app.leaving
        if not ready and self.ingresses.failure:
            return Reply(number, error=DeployFailed(self.ingresses.failure))
        return Reply(number) if ready else None

    def _is_in(self, name: str, states: Sequence[str]) -> bool:
        app = self.apps.get(name)
        return not states if app is None else app.state.status.value in states

    def _too_late(self, number: int, now: float) -> list[Effect]:
        what = self._waiters.pop(number, None)
        if what is None:
            return []
        begun_s = self._since_s.pop(number)
        states = {name: app.state.status.value for name, app in self.apps.items() if name in what.names}
        waits = "; ".join(wait.what for wait in self.waiting_for()[:5])
        message = (
            f"After {now - begun_s:g} s, applications have the states {states}, not {what.states or 'gone'}"
            f"{f': waiting for {waits}' if waits else ''}."
        )
        return [Reply(number, error=TimeoutError(message))]

    # ------------------------------------------------------------ finding deployments

    def _find(self, app: str, deployment: str) -> Fleet | None:
        found = self.apps.get(app)
        if found is None:
            return None
        return found.fleets.get(deployment) or found.leaving.get(deployment)

    def _touched(self, app: str, deployment: str) -> Fleet | None:
        fleet = self._find(app, deployment)
        if fleet is not None:
            self._touch(fleet)
        return fleet

    def _touch(self, fleet: Fleet) -> None:
        self._dirty[fleet.app, fleet.name] = fleet

    def _of(self, replica_id: str) -> Fleet | None:
        app, deployment, _ = replica_id.rsplit("#", 2)
        return self._touched(app, deployment)

    # ------------------------------------------------------------ recovery

    def _recover(self, now: float) -> list[Effect]:
        """Continues where the controller was before its restart. Replicas that serve are kept."""
        left = self._recovered
        options = left.values.get(b"options")
        if options is not None:
            self.ingresses.options = pickle.loads(options)
        if CAPACITY in left.values:
            self.capacity = pickle.loads(left.values[CAPACITY])
        routes = left.values.get(ROUTES)
        if routes is not None:
            self.routes = load_routes(routes)
            self.ingresses.publish(self.routes.epoch, routes)
        effects: list[Effect] = []
        for name, kept_bytes in left.below("app").items():
            effects += self._recover_app(name, pickle.loads(kept_bytes), now)
        for record_bytes in left.below("replica").values():
            effects += self._recover_replica(pickle.loads(record_bytes), now)
        for place in left.below("targets"):
            app_name, deployment = place.split("\0")
            fleet = self._find(app_name, deployment)
            if fleet is None:
                effects.append(Put(targets_key(app_name, deployment), None))
        for node, listens in left.below("proxy").items():
            effects += self.ingresses.recover(node, pickle.loads(listens), now)
        self._recovered = Recovered({})
        return effects

    def _recover_app(self, name: str, kept: Kept, now: float) -> list[Effect]:
        app = self.apps[name] = App(kept.spec, kept.deployed_s)
        app.state.step(ApplicationInput.DEPLOY, now)
        if not kept.spec.deployments:  # it was announced, and never built
            app.is_being_built = True
            if CONFIG not in self._recovered.values:
                message = "The application could not be built: deploy it again."
                app.state.step(ApplicationInput.FAILS, now, message)
        effects: list[Effect] = []
        wanted = self._recovered.below("wanted")
        targets = self._recovered.below("targets")
        for specs, fleets in ((kept.spec.deployments, app.fleets), (kept.leaving, app.leaving)):
            for spec in specs:
                capacity = self._capacity_of(kept.spec)
                fleet = fleets[spec.name] = Fleet(
                    name, spec, kept.spec.runtime_env, self.world, now, capacity
                )
                place = f"{name}\0{spec.name}"
                published = targets.get(place)
                fleet.restore(
                    int(wanted.get(place, fleet.wanted)),
                    None if published is None else load_targets(published),
                )
                self._touch(fleet)
                if fleet.scaler is not None:  # loads that are not zero have been told again by then
                    effects.append(Sleep(("scale", name, spec.name), 2 * REPEAT_S))
        if kept.leaves:
            self._delete(name, now)
        return effects

    def _recover_replica(self, record: ReplicaRecord, now: float) -> list[Effect]:
        replica = Replica(record, ReplicaState.RECOVERING, now)
        adopt: list[Effect] = [Adopt(replica.key, record.actor_name)]
        fleet = self._find(record.app, record.deployment)
        if fleet is None:
            return [*adopt, Kill(replica.key), Put(record.key, None)]
        fleet.adopt(replica)
        self._touch(fleet)
        if record.ready is None:
            fleet.abandon(replica, now)
            return adopt
        return adopt + fleet.check_due(replica.id)
