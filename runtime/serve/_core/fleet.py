"""The replicas of one deployment: what is done so that as many as wanted run, and what callers are told."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from runtime._controllers.controller import (
    ActorDied,
    ActorUp,
    Call,
    Done,
    Effect,
    Failed,
    Forget,
    Kill,
    Perform,
    Sleep,
)
from runtime.serve._core import creation, rollout, waiting
from runtime.serve._core.autoscale import Scaler
from runtime.serve._core.capacity import FULL, Capacity
from runtime.serve._core.deployment import DeploymentInput, DeploymentState
from runtime.serve._core.effects import Put, RemoveGroup
from runtime.serve._core.failures import Failures
from runtime.serve._core.published import Load, Targets, dump, targets_key
from runtime.serve._core.replica import Replica, ReplicaInput, ReplicaRecord, digest
from runtime.serve._core.scaling import scaler_of
from runtime.serve._core.specs import DeploymentSpec, ReplicaReady
from runtime.serve._core.states import DeploymentStatus, ReplicaState
from runtime.serve._core.world import World

FAILED_CHECKS = 3
"""How many failed health checks in a row stop a replica."""
ROOM_S = 1.0
"""After this long without a process for a new replica, check whether old replicas hold its resources."""
KILL_S = 5.0
"""A replica that has not drained this long after its deadline is killed."""


class Fleet:
    """See the module. Its events are routed to it by the controller; `reconcile` follows each of them."""

    def __init__(
        self,
        app: str,
        spec: DeploymentSpec,
        env: dict[str, Any],
        world: World,
        now: float,
        capacity: Capacity = FULL,
    ) -> None:
        self.app = app
        self.spec = spec
        self.state = DeploymentState(f"{app}#{spec.name}")
        self.replicas: dict[str, Replica] = {}
        self.is_leaving = False
        self.capacity = capacity  # counts from the next `deploy` on
        self.scaler: Scaler | None = None
        self.published: Targets | None = None
        self.epoch = 0
        self._env = env
        self._world = world
        self._failures = Failures()  # of this version
        self._has_reached = False  # all replicas of this version have run
        self._squeeze = 0
        self._looks_for_room = False
        self._checks = 0
        self._wanted = 0
        self._stored = creation.StoredSpec(app, spec.name)
        self._afterwards: list[Effect] = []  # what follows the next publication
        self._policy_error = ""  # its autoscaling policy cannot be loaded
        self._policy_failure = ""  # the last call of its policy failed
        self._configure(now)

    # ------------------------------------------------------------ what is wanted

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def wanted(self) -> int:
        """How many replicas there should be."""
        return 0 if self.is_leaving else self._wanted

    @property
    def is_gone(self) -> bool:
        """Whether it is deleted and nothing of it is left."""
        return self.is_leaving and not self.replicas

    @property
    def docs_path(self) -> str | None:
        """Of its API's documentation, if it has one."""
        found = [each.record.ready.docs_path for each in self.serving if each.record.ready is not None]
        return next((path for path in found if path), None)

    @property
    def serving(self) -> list[Replica]:
        """Those that callers are told of, by id."""
        return sorted((each for each in self.replicas.values() if each.serves), key=lambda each: each.id)

    def deploy(self, spec: DeploymentSpec, env: dict[str, Any], now: float) -> list[Effect]:
        """Other code, options, or nothing new: a new attempt then."""
        before, wanted = self.spec, self._wanted
        returns = self.is_leaving
        self.spec, self._env, self.is_leaving = spec, env, False
        self._failures = Failures()
        only_count = (
            not returns
            and before.version == spec.version
            and msgspec.structs.replace(before.options, num_replicas=None)
            == msgspec.structs.replace(spec.options, num_replicas=None)
        )
        effects = self._configure(now)
        if only_count and self._wanted != wanted:
            grows = self._wanted > wanted
            self.state.step(DeploymentInput.SET_HIGHER if grows else DeploymentInput.SET_LOWER, now)
        else:
            self._has_reached = False
            self.state.step(DeploymentInput.DEPLOYED, now)
        return effects

    def delete(self, now: float) -> None:
        """Stops everything."""
        if not self.is_leaving:
            self.is_leaving = True
            self.state.step(DeploymentInput.DELETED, now)

    def set_replicas(self, count: int, now: float) -> list[Effect]:
        """As `num_replicas` of another deployment would."""
        options = msgspec.structs.replace(self.spec.options, num_replicas=count, autoscaling=None)
        return self.deploy(msgspec.structs.replace(self.spec, options=options), self._env, now)

    def restore(self, wanted: int, targets: Targets | None) -> None:
        """What was wanted and published before the controller was restarted."""
        if self.scaler is not None:
            self._wanted = self.scaler.clamp(wanted)
        if targets is not None:
            self.published, self.epoch = targets, targets.epoch

    @property
    def wanted_key(self) -> bytes:
        """Of the number of replicas that autoscaling wants, in the control store."""
        return f"wanted\0{self.app}\0{self.name}".encode()

    def _configure(self, now: float) -> list[Effect]:
        options = self.spec.options
        self._policy_error = self._policy_failure = ""
        if options.autoscaling is None:
            had, self.scaler = self.scaler is not None, None
            self._wanted = self.capacity.of(options.num_replicas or 1)
            return [Put(self.wanted_key, None), Sleep(("scale", self.app, self.name), -1)] if had else []
        scaler, self._policy_error = scaler_of(self.app, self.spec, now, self._world.wall_offset_s)
        scaler.capacity = self.capacity
        if self.scaler is None:
            self.scaler = scaler
            self._wanted = scaler.first
        else:
            self.scaler.change(scaler.config, scaler.policy, scaler.capacity)
            self._wanted = self.scaler.clamp(self._wanted)
        return [Put(self.wanted_key, str(self._wanted).encode()), *self.scale(now)]

    # ------------------------------------------------------------ load

    def told(self, load: Load, now: float) -> list[Effect]:
        """A replica has told its load."""
        if self.scaler is None or load.replica not in self.replicas:
            return []
        self.scaler.history.ran(load.replica, load.ongoing, load.metrics, now)
        return self.scale(now)

    def waited(self, caller: str, queued: int, now: float) -> list[Effect]:
        """A caller has told how many requests wait there."""
        if self.scaler is None:
            return []
        self.scaler.history.waited(caller, queued, now)
        return self.scale(now)

    def scale(self, now: float) -> list[Effect]:
        """Decides anew how many replicas are wanted."""
        if self.scaler is None or self.is_leaving:
            return []
        before = self._wanted
        decision = self.scaler.decide(now, before, [each.id for each in self.serving])
        self._policy_failure = decision.error
        again_s = -1.0 if decision.again_s is None else decision.again_s
        effects: list[Effect] = [Sleep(("scale", self.app, self.name), again_s)]
        if decision.wanted != before:
            self._wanted = decision.wanted
            grows = self._wanted > before
            self.state.step(DeploymentInput.SCALED_UP if grows else DeploymentInput.SCALED_DOWN, now)
            effects.append(Put(self.wanted_key, str(self._wanted).encode()))
        return effects

    # ------------------------------------------------------------ reconcile

    def reconcile(self, now: float) -> list[Effect]:
        """Starts, updates and stops what the present state asks for. What stops has left the published targets before
        it is told. Of a deployment that has failed those that serve are kept, but not replaced, as with Ray: the code
        of the version before is known no more."""
        effects: list[Effect] = []
        if self.is_leaving:
            self._stop_all([each for each in self.replicas.values() if each.is_live], now)
        elif self.state.status is DeploymentStatus.DEPLOY_FAILED:
            self._stop_all(
                [each for each in self.replicas.values() if each.state is ReplicaState.STARTING], now
            )
        else:
            effects = self._move(now)
        effects += self._publish()
        afterwards, self._afterwards = self._afterwards, []
        return effects + afterwards

    def _move(self, now: float) -> list[Effect]:
        options = self.spec.options
        wanted_options = digest(options)
        seen = [
            rollout.Seen(
                replica.id,
                replica.record.rank,
                self._is_current(replica),
                wanted_options in (replica.record.options, replica.taking),
                replica.serves,
                replica.state is not ReplicaState.RUNNING,
            )
            for replica in self.replicas.values()
            if replica.is_live
        ]
        extra = rollout.surge(self._wanted, options.max_surge_percent)
        plan, self._squeeze = rollout.plan(seen, self._wanted, extra, self._squeeze), 0
        effects: list[Effect] = []
        if now >= self._failures.retry_s:
            effects += self._start(plan.start, now)
        for replica_id in plan.update[: self._most_updates(now)]:
            effects += self._update(self.replicas[replica_id], now)
        self._stop_all([self.replicas[replica_id] for replica_id in plan.stop], now)
        effects += self._look_for_room()
        if self._judge(now):
            effects += self._close_ranks(now)
        return effects

    def _most_updates(self, now: float) -> int:
        """One replica takes new options before the others do: if it fails, they go on with the options before. If it
        could not even go on with those, the replica that is started for it is the next to try the new ones."""
        options = digest(self.spec.options)
        live = [each for each in self.replicas.values() if each.is_live]
        serving = [each for each in live if each.serves]
        if any(self._is_current(each) and each.record.options == options for each in serving):
            return len(serving)
        if now < self._failures.retry_s or any(each.taking for each in serving):
            return 0
        return 0 if self._failures.starts and (len(live) < self._wanted or len(serving) < len(live)) else 1

    def _close_ranks(self, now: float) -> list[Effect]:
        """Ranks are without gaps once all replicas run: what was started beside others may have a higher one."""
        live = [replica for replica in self.replicas.values() if replica.is_live]
        high = [replica for replica in live if replica.record.rank >= len(live)]
        ranks = rollout.free_ranks({replica.record.rank for replica in live}, len(high))
        effects: list[Effect] = []
        for replica, rank in zip(high, ranks, strict=True):
            effects += [*self._keep(replica, rank=rank), *self._update(replica, now)]
        return effects

    def _judge(self, now: float) -> bool:
        """Whether everything is as wanted, and what is not wanted any more has ended."""
        options = digest(self.spec.options)
        reached = len(self.replicas) == self._wanted and all(
            replica.state is ReplicaState.RUNNING
            and self._is_current(replica)
            and replica.record.options == options
            for replica in self.replicas.values()
        )
        if reached:
            self._has_reached = True
            self._failures.starts = 0
            if self.state.status is not DeploymentStatus.HEALTHY:
                self.state.step(DeploymentInput.REACHED, now)
        return reached

    def _is_current(self, replica: Replica) -> bool:
        return replica.record.version == self.spec.version and replica.node not in self._world.draining

    def _start(self, count: int, now: float) -> list[Effect]:
        options, world = self.spec.options, self._world
        ranks = {
            each.record.rank
            for each in self.replicas.values()
            if each.is_live and each.record.version == self.spec.version
        }
        effects: list[Effect] = []
        for rank in rollout.free_ranks(ranks, count):
            node = ""
            if options.max_replicas_per_node is not None:
                found = rollout.node_for(
                    world.resources(),
                    Counter(each.node for each in self.replicas.values()),
                    options.max_replicas_per_node,
                    creation.demand(options),
                )
                if found is None:
                    break
                node = found
            record = ReplicaRecord(
                f"{self.app}#{self.name}#{world.unique()}",
                self.app,
                self.name,
                world.token(),
                self.spec.version,
                digest(options),
                rank,
                world.wall_s(now),
                has_group=bool(options.placement_group_bundles),
            )
            replica = self.replicas[record.id] = Replica(record, ReplicaState.STARTING, now, node)
            effects += [
                Put(record.key, pickle.dumps(record)),
                *self._stored.store(self.spec),
                creation.create(
                    replica,
                    self.spec,
                    self._stored.argument(self.spec),
                    self._env,
                    world.replica_class,
                    self._session(),
                    node,
                ),
                Call(("start", record.id), replica.key, "start", fetch=True),
            ]
        return effects

    def _session(self) -> dict[str, Any]:
        return {"scales": self.scaler is not None}

    def _update(self, replica: Replica, now: float) -> list[Effect]:
        replica.step(ReplicaInput.UPDATE, now)
        replica.taking = digest(self.spec.options)
        self._checks += 1
        key = ("update", replica.id, self._checks, replica.taking)
        return [Call(key, replica.key, "reconfigure", [self.spec.options, replica.record.rank], fetch=True)]

    def _stop_all(self, replicas: Sequence[Replica], now: float) -> None:
        """They stop once callers know of it."""
        timeout_s = self.spec.options.graceful_shutdown_timeout_s
        for replica in replicas:
            served = replica.serves
            replica.step(ReplicaInput.STOP, now)
            self._afterwards += [Sleep(("check", replica.id), -1), Sleep(("late", replica.id), -1)]
            if served:
                self._afterwards += [
                    Call(("drain", replica.id), replica.key, "drain", [timeout_s]),
                    Sleep(("stop", replica.id), timeout_s + KILL_S),
                ]
            else:
                self._afterwards.append(Kill(replica.key))

    # ------------------------------------------------------------ room for new replicas

    def _stuck(self) -> list[Replica]:
        return [
            each
            for each in self.replicas.values()
            if each.state is ReplicaState.STARTING and not each.is_up and self._is_current(each)
        ]

    def _look_for_room(self) -> list[Effect]:
        has_old = any(each.is_live and not self._is_current(each) for each in self.replicas.values())
        if self._looks_for_room or not has_old or not self._stuck():
            return []
        self._looks_for_room = True
        return [Sleep(("room", self.app, self.name), ROOM_S)]

    def room_due(self) -> list[Effect]:
        """New replicas may wait for what old ones hold."""
        if not self._stuck():
            self._looks_for_room = False
            return []
        return [
            Perform(("fits", self.app, self.name), self._world.fits, [creation.reserved(self.spec.options)])
        ]

    def room_known(self, fits: bool) -> None:
        """Whether one more has room somewhere."""
        self._looks_for_room = False
        if not fits:
            self._squeeze = len(self._stuck())

    # ------------------------------------------------------------ what happens to replicas

    def done(self, event: Done, now: float) -> list[Effect]:
        """A call of a replica has ended."""
        key: Any = event.key
        kind, replica_id = key[:2]
        forget: list[Effect] = [Forget(event.key)]
        replica = self.replicas.get(replica_id)
        if replica is None:
            return forget
        match kind:
            case "start" if replica.state is ReplicaState.STARTING:
                return forget + self._started(replica, event.value, now)
            case "update" if replica.state is ReplicaState.UPDATING:
                replica.step(ReplicaInput.READY, now)
                replica.taking = ""
                if not event.value:
                    return forget + self._keep(replica, options=key[3])
                message = (
                    f"{replica_id} goes on with the options before, as the new ones failed: {event.value}"
                )
                return forget + self._fail(DeploymentInput.START_FAILED, message, now)
            case "check":
                return forget + self._checked(replica, key[2], "", now)
            case "drain":
                return [*forget, Sleep(("stop", replica_id), -1), Kill(replica.key)]
        return forget

    def failed(self, event: Failed, now: float) -> list[Effect]:
        """A call of a replica has failed."""
        key: Any = event.key
        kind, replica_id = key[:2]
        replica = self.replicas.get(replica_id)
        if replica is None:
            return []
        text = str(event.error)
        match kind:
            case "start" if replica.state is ReplicaState.STARTING:
                self._stop_all([replica], now)
                return self._fail(DeploymentInput.START_FAILED, f"{replica_id} did not start: {text}", now)
            case "update" if replica.state is ReplicaState.UPDATING:
                self._stop_all([replica], now)
                message = f"{replica_id} did not take its new options: {text}"
                return self._fail(DeploymentInput.START_FAILED, message, now)
            case "check":
                return self._checked(replica, key[2], text, now)
            case "drain":
                return [Sleep(("stop", replica_id), -1), Kill(replica.key)]
        return []

    def up(self, event: ActorUp) -> None:
        """The process of a replica runs."""
        replica = self.replicas.get(event.key[1])  # type: ignore[index]
        if replica is not None:
            replica.is_up = True
            replica.node = event.node_id

    def died(self, event: ActorDied, now: float) -> list[Effect]:
        """The process of a replica has ended."""
        replica = self.replicas.pop(event.key[1], None)  # type: ignore[index]
        if replica is None:
            return []
        before = replica.state
        replica.step(ReplicaInput.DIED, now)
        effects: list[Effect] = [Sleep((kind, replica.id), -1) for kind in ("check", "late", "stop")]
        if replica.record.has_group:
            effects.append(RemoveGroup(replica.record.actor_name))
        effects.append(
            Put(replica.record.key, None)
        )  # last: a restarted controller would know nothing of the group
        if self.scaler is not None:
            self.scaler.history.forget(replica.id, now)
            effects += self.scale(now)
        if before is ReplicaState.STARTING:
            message = f"The process of {replica.id} ended while it started: {event.reason}"
            effects += self._fail(DeploymentInput.START_FAILED, message, now)
        elif before in (ReplicaState.RUNNING, ReplicaState.UPDATING, ReplicaState.RECOVERING):
            message = f"The process of {replica.id} ended: {event.reason}"
            effects += self._fail(DeploymentInput.CHECK_FAILED, message, now, delays=False)
            effects += self._wait_after_death(replica, message, now)
        return effects

    def _wait_after_death(self, replica: Replica, message: str, now: float) -> list[Effect]:
        if self.is_leaving or replica.record.version != self.spec.version:
            return []
        delay_s = self._failures.died(replica, self.serving, now, self._wanted)
        if delay_s and self.state.status is not DeploymentStatus.DEPLOY_FAILED:
            self.state.message = (
                f"{message}\n(soon after it was ready, as others before: the next start waits)"
            )
        return self._retry_after(delay_s)

    def check_due(self, replica_id: str) -> list[Effect]:
        """It is time for a health check."""
        replica = self.replicas.get(replica_id)
        if replica is None or not replica.is_live:
            return []
        self._checks += 1
        replica.check = self._checks
        return [
            Call(("check", replica.id, replica.check), replica.key, "check_health"),
            Sleep(("late", replica.id), self.spec.options.health_check_timeout_s),
        ]

    def check_late(self, replica_id: str, now: float) -> list[Effect]:
        """A health check has not been answered in time."""
        replica = self.replicas.get(replica_id)
        if replica is None:
            return []
        timeout_s = self.spec.options.health_check_timeout_s
        return self._checked(replica, replica.check, f"no answer within {timeout_s:g} s", now)

    def kill_due(self, replica_id: str) -> list[Effect]:
        """A replica has not drained in time."""
        replica = self.replicas.get(replica_id)
        return [] if replica is None else [Kill(replica.key)]

    def adopt(self, replica: Replica) -> None:
        """A replica from before the controller was restarted."""
        self.replicas[replica.id] = replica

    def abandon(self, replica: Replica, now: float) -> None:
        """Stops a replica whose constructor had not returned before the restart: its result is lost."""
        self._stop_all([replica], now)

    def _started(self, replica: Replica, ready: ReplicaReady, now: float) -> list[Effect]:
        replica.step(ReplicaInput.READY, now)
        replica.ready_s, replica.node = now, ready.node
        self._failures.started()
        effects = self._keep(replica, ready=ready)
        effects.append(Sleep(("check", replica.id), self.spec.options.health_check_period_s))
        return effects + self.scale(now)

    def _checked(self, replica: Replica, number: int, error: str, now: float) -> list[Effect]:
        if number != replica.check or not replica.is_live:
            return []
        replica.check = 0
        effects: list[Effect] = [
            Sleep(("late", replica.id), -1),
            Sleep(("check", replica.id), self.spec.options.health_check_period_s),
        ]
        if not error:
            replica.failed_checks = 0
            if replica.state is ReplicaState.RECOVERING:
                replica.step(ReplicaInput.READY, now)
            return effects
        replica.failed_checks += 1
        if replica.failed_checks < FAILED_CHECKS:
            return effects
        message = f"{replica.id} failed {FAILED_CHECKS} health checks in a row: {error}"
        self._stop_all([replica], now)
        return self._fail(DeploymentInput.CHECK_FAILED, message, now)

    def _keep(self, replica: Replica, **changes: Any) -> list[Effect]:
        replica.record = msgspec.structs.replace(replica.record, **changes)
        return [Put(replica.record.key, pickle.dumps(replica.record))]

    def _fail(self, event: DeploymentInput, message: str, now: float, delays: bool = True) -> list[Effect]:
        """Counts a failure of a replica. Before all of this version have run, too many fail the deployment."""
        if self.is_leaving:
            return []
        if not self._has_reached:
            if not delays:
                return []  # it ran; it is replaced, and perhaps it was of the version before
            self._failures.starts += 1
            bound = rollout.most_failures(self.spec.options.max_constructor_retry_count, self._wanted)
            count = f"failure {self._failures.starts} of {bound}"
            if self._failures.starts >= bound:
                self.state.step(event, now, f"{message}\n({count}: given up)")
                return []
            self.state.message = f"{message}\n({count}: it is tried again)"
        else:
            self.state.step(event, now, message)
        return self._retry_after(self._failures.start_failed(now, self._wanted)) if delays else []

    def _retry_after(self, delay_s: float) -> list[Effect]:
        return [Sleep(("retry", self.app, self.name), delay_s)] if delay_s else []

    # ------------------------------------------------------------ what others see

    def _publish(self) -> list[Effect]:
        options = self.spec.options
        serving = self.serving
        if self.is_leaving:
            state = "gone"
        elif self.state.status is DeploymentStatus.DEPLOY_FAILED and not serving:
            state = "failed"
        else:
            state = "running"
        targets = Targets(
            self.epoch,
            state,
            [] if self.is_leaving else [each.target(options.max_ongoing_requests) for each in serving],
            options.max_queued_requests,
            self.scaler is not None,
            options.router,
            self.state.message if state == "failed" else "",
            options.backpressure,
        )
        if targets == self.published:
            return []
        self.epoch += 1
        self.published = msgspec.structs.replace(targets, epoch=self.epoch)
        return [Put(targets_key(self.app, self.name), dump(self.published))]

    def message(self, now: float) -> str:
        """Of the status: what is wrong, or what it waits for, if that takes long."""
        slow = waiting.slow(self.replicas.values(), self.spec.options, now)
        return self.state.message or self._policy_error or self._policy_failure or slow
