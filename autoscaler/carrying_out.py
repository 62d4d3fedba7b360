"""Carries out effects: calls of the provider, setups and messages to the control store, each in a task of its own. What
came of one is handed back as an outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from autoscaler.calls import BlockingCalls
from autoscaler.config import AutoscalerConfig
from autoscaler.effects import (
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
from autoscaler.provider import NodeSetup, Provider, ProviderError, SetupError
from runtime._clients.control import ControlClient
from runtime._transport.channel import CallError
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.control import DrainNode, ResumeNode

log = logging.getLogger(__name__)
CONTROL_TIMEOUT_S = 15.0


class CarryingOut:
    """Belongs to the loop's thread. Every effect ends with one outcome, whatever goes wrong."""

    def __init__(
        self,
        config: AutoscalerConfig,
        provider: Provider,
        setup: NodeSetup,
        control: ControlClient,
        calls: BlockingCalls,
        ended: Callable[[Outcome], None],
    ) -> None:
        self._config = config
        self._provider = provider
        self._setup = setup
        self._control = control
        self._calls = calls
        self._ended = ended
        self._tasks: set[asyncio.Task[None]] = set()

    def configure(self, config: AutoscalerConfig, provider: Provider, setup: NodeSetup) -> None:
        """What holds for effects that begin from now on."""
        self._config = config
        self._provider = provider
        self._setup = setup

    @property
    def under_way(self) -> list[asyncio.Task[None]]:
        return list(self._tasks)

    def start(self, effect: Effect) -> None:
        """Begins to carry it out."""
        task = asyncio.create_task(self._carry_out(effect))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Create):
            outcome: Outcome = await self._create(effect)
        elif isinstance(effect, Terminate):
            outcome = await self._terminate(effect)
        elif isinstance(effect, SetUp):
            outcome = await self._set_up(effect)
        elif isinstance(effect, Drain):
            outcome = await self._drain(effect)
        else:
            outcome = await self._resume(effect)
        self._ended(outcome)

    async def _create(self, effect: Create) -> Created:
        request, provider = effect.request, self._provider
        if provider.capabilities.machines_join:
            request = replace(request, join_tokens=self._setup.join_tokens(request))
        try:
            result = await self._calls.run(
                lambda: provider.create(request), "create", self._config.provider_timeout_s
            )
        except ProviderError as error:
            log.warning("creating %d x %s failed: %s", request.count, request.node_type.name, error)
            return Created(request.token, error=error)
        for refusal in result.errors:
            log.warning("a machine of type %s was refused: %s", request.node_type.name, refusal)
        return Created(request.token, result)

    async def _terminate(self, effect: Terminate) -> Terminated:
        ids, provider = effect.machine_ids, self._provider
        try:
            answers = await self._calls.run(
                lambda: provider.terminate(ids), "terminate", self._config.provider_timeout_s
            )
        except ProviderError as error:
            log.warning("terminating %d machines failed: %s", len(ids), error)
            answers = dict.fromkeys(ids, error)
        return Terminated({machine_id: answers.get(machine_id) for machine_id in ids})

    async def _set_up(self, effect: SetUp) -> SetUpEnded:
        name, setup = effect.instance_id, self._setup
        try:
            await self._calls.run(
                lambda: setup.run(effect.machine, effect.node_type, name, effect.log_path),
                f"setup {name}",
                self._config.deadlines.setting_up_s,
            )
        except SetupError as error:
            log.warning("setting up %s failed: %s", name, error)
            return SetUpEnded(name, error)
        except ProviderError as error:
            log.warning("setting up %s failed: %s", name, error)
            return SetUpEnded(name, SetupError("reach the machine", str(error)))
        return SetUpEnded(name)

    async def _drain(self, effect: Drain) -> Drained:
        message = DrainNode(effect.node_id, effect.reason, effect.only_if_idle)
        try:
            await self._control.call(message, timeout_s=CONTROL_TIMEOUT_S)
        except CallError as error:
            is_gone = error.kind == ErrorKind.NOT_FOUND  # no such node any more: nothing to keep work off
            return Drained(effect.instance_id, refused="" if is_gone else str(error))
        return Drained(effect.instance_id)

    async def _resume(self, effect: Resume) -> Resumed:
        message = ResumeNode(effect.node_id, effect.reason)
        try:
            await self._control.call(message, timeout_s=CONTROL_TIMEOUT_S)
        except CallError as error:
            return Resumed(effect.instance_id, failure=str(error))
        return Resumed(effect.instance_id)
