"""Which calls are due. A call is made once at a time, again when its answer says so, and none to a platform that asked
to be left alone. Pure: calls are returned as effects, and what came of them is given to `ended`."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from autoscaler.backoff import Throttle
from autoscaler.config import HASH_VERSION, AutoscalerConfig
from autoscaler.effects import (
    CallFailed,
    Create,
    Created,
    Drain,
    Drained,
    Effect,
    Outcome,
    Resume,
    Resumed,
    SetUp,
    SetUpEnded,
    Terminate,
    Terminated,
)
from autoscaler.instances import Instance, InstanceState, InstanceTable, Transition
from autoscaler.provider import LaunchRequest, Machine, MachineTags, NodeType, ProviderError, Throttled

_S = InstanceState
_Call = tuple[type[Effect], str]
"""A kind of effect, and the token, instance or machine that it is for."""


class Dispatch:
    """The calls under way, and those to make next. Notes in the table what was asked, and when."""

    def __init__(self, table: InstanceTable, rng: random.Random | None = None) -> None:
        self._table = table
        self._rng = rng
        self._under_way: set[_Call] = set()
        self.throttle = Throttle()

    def ended(self, outcome: Outcome, now: float) -> None:
        """A call is no longer under way. When there were too many, the platform is left alone for a while."""
        errors: Sequence[ProviderError | None] = ()
        if isinstance(outcome, Created):
            self._under_way.discard((Create, outcome.token))
            errors = (outcome.error, *outcome.result.errors)
        elif isinstance(outcome, Terminated):
            self._under_way.difference_update((Terminate, machine_id) for machine_id in outcome.answers)
            errors = tuple(outcome.answers.values())
        elif isinstance(outcome, SetUpEnded):
            self._under_way.discard((SetUp, outcome.instance_id))
        elif isinstance(outcome, Drained):
            self._under_way.discard((Drain, outcome.instance_id))
        elif isinstance(outcome, Resumed):
            self._under_way.discard((Resume, outcome.instance_id))
        elif isinstance(outcome, CallFailed):
            errors = (outcome.error,)
        throttled = [error for error in errors if isinstance(error, Throttled)]
        if throttled:
            worst = max(throttled, key=lambda error: error.retry_after_s)
            self.throttle.slow_down(worst.retry_after_s, str(worst), now, self._rng)

    def is_draining(self, instance_id: str) -> bool:
        """Whether the answer to a drain is waited for."""
        return (Drain, instance_id) in self._under_way

    def due(self, config: AutoscalerConfig, machines: Mapping[str, Machine], now: float) -> list[Effect]:
        """The calls to make now, in order: machines end before others are created.

        Args:
            machines: what is known of the platform's machines, by id.
        """
        may_call = not self.throttle.is_on(now)
        return [
            *(self._terminations(now) if may_call else ()),
            *self._drains(now),
            *self._resumptions(now),
            *self._setups(config, machines, now),
            *(self._creations(config, now) if may_call else ()),
        ]

    def _is_due(self, instance: Instance, call: _Call, now: float) -> bool:
        return instance.asked_s == 0.0 and now >= instance.not_before_s and call not in self._under_way

    def _start(self, instance: Instance, call: _Call, now: float) -> None:
        self._under_way.add(call)
        self._table.note(replace(instance, asked_s=now), now)

    def _room(self, kind: type[Effect], most: int) -> int:
        return most - sum(1 for under_way, _ in self._under_way if under_way is kind)

    # ------------------------------------------------------------ one kind each

    def _terminations(self, now: float) -> list[Effect]:
        due = [
            instance
            for instance in self._table.in_state(_S.TERMINATING)
            if instance.machine_id and self._is_due(instance, (Terminate, instance.machine_id), now)
        ]
        for instance in due:
            self._start(instance, (Terminate, instance.machine_id), now)
        return [Terminate(tuple(instance.machine_id for instance in due))] if due else []

    def _drains(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for instance in self._table.in_state(_S.DRAINING):
            call = (Drain, instance.id)
            if not instance.settled and self._is_due(instance, call, now):
                self._start(instance, call, now)
                effects.append(Drain(instance.id, instance.node_id, instance.reason, instance.only_if_idle))
        return effects

    def _resumptions(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for instance in self._table.in_state(_S.RUNNING):
            call = (Resume, instance.id)
            if instance.recalled and self._is_due(instance, call, now):
                self._start(instance, call, now)
                effects.append(Resume(instance.id, instance.node_id, instance.reason))
        return effects

    def _setups(self, config: AutoscalerConfig, machines: Mapping[str, Machine], now: float) -> list[Effect]:
        effects: list[Effect] = []
        room = self._room(SetUp, config.budgets.max_setting_up)
        for instance in self._table.in_state(_S.SETTING_UP):
            if room <= 0:
                break
            kind = config.node_type(instance.node_type)
            machine = machines.get(instance.machine_id)
            if kind is None or machine is None or instance.settled:
                continue
            call = (SetUp, instance.id)
            if self._is_due(instance, call, now):
                room -= 1
                log_path = os.path.join(config.log_dir, f"setup-{instance.id}.log")
                self._start(replace(instance, setup_log=log_path), call, now)
                effects.append(SetUp(instance.id, machine, kind, log_path))
        return effects

    def _creations(self, config: AutoscalerConfig, now: float) -> list[Effect]:
        effects: list[Effect] = []
        room = self._room(Create, config.budgets.max_creating)
        batches: dict[str, list[Instance]] = {}
        tokens = {instance.token for instance in self._table.in_state(_S.QUEUED, _S.REQUESTED)}
        for instance in self._table:
            if instance.token in tokens:
                batches.setdefault(instance.token, []).append(instance)
        for token, batch in batches.items():
            call = (Create, token)
            queued = [i for i in batch if i.state is _S.QUEUED]
            waiting = [i for i in batch if i.state is _S.REQUESTED]
            kind = config.node_type(batch[0].node_type)
            if not (queued or waiting) or kind is None or room <= 0:
                continue
            if not all(self._is_due(i, call, now) for i in [*queued, *waiting]):
                continue
            asked = [*waiting, *(self._requested(instance, now) for instance in queued)]
            room -= 1
            for instance in asked:
                self._start(instance, call, now)
            # A repeated call names the whole batch again: platforms compare it with the first.
            whole = [i for i in batch if i.state is not _S.CANCELLED]
            effects.append(Create(_request(config, kind, token, whole)))
        return effects

    def _requested(self, instance: Instance, now: float) -> Instance:
        return self._table.apply(Transition(instance.id, _S.REQUESTED, "create is called"), now)


def _request(
    config: AutoscalerConfig, kind: NodeType, token: str, batch: Sequence[Instance]
) -> LaunchRequest:
    first = batch[0]
    tags = {
        MachineTags.CLUSTER_ID: config.cluster_id,
        MachineTags.CLUSTER_NAME: config.cluster_name,
        MachineTags.ROLE: MachineTags.WORKER,
        MachineTags.HASH_VERSION: HASH_VERSION,
    }
    if first.config_hash:
        tags[MachineTags.CONFIG_HASH] = first.config_hash
    return LaunchRequest(token, kind, len(batch), first.offer, tags, tuple(i.id for i in batch))
