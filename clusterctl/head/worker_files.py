"""Brings changed files to workers that run already: when it is told to, and, where the spec wants it, by itself."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from autoscaler.provider import Machine, ProviderError, SetupError, ShellError
from clusterctl.providers.protocol import OperatorProvider
from clusterctl.sync.transfer import SyncError
from runtime._clients.control import ControlClient
from runtime._wire.messages import control as messages

from .worker_setup import WorkerSetup

log = logging.getLogger(__name__)

_PERIOD_S = 5.0
_RESTS = 20
"""Many files are looked at less often: so much longer is the pause than the look."""
_AT_ONCE = 16


class Settings(Protocol):
    """What is in force; it may change."""

    @property
    def provider(self) -> OperatorProvider: ...

    @property
    def setup(self) -> WorkerSetup: ...


class WorkerFiles:
    """For the workers of one cluster; lives on the head."""

    def __init__(self, control: ControlClient, settings: Settings) -> None:
        self._control = control
        self._settings = settings

    async def refresh(self) -> dict[str, str]:
        """Brings all workers the head's files and runs their setup commands again; programs run on.

        Returns:
            Why it failed, by the instance's id; "" where it did not.
        """
        setup = self._settings.setup
        setup.expire()
        return await self._each(setup.refresh)

    async def watch(self) -> None:
        """Until cancelled: what changes among the head's mounts reaches the workers within some seconds."""
        brought = ""
        took_s = 0.0
        while True:
            await asyncio.sleep(max(_PERIOD_S, took_s * _RESTS))
            setup = self._settings.setup
            if not setup.syncs_continuously:
                continue
            begun = time.monotonic()
            try:
                digest = await asyncio.to_thread(setup.files_digest)
            except SyncError as error:
                log.warning("the head's mounts cannot be read: %s", error)
                continue
            took_s = time.monotonic() - begun
            if digest == brought:
                continue
            setup.expire()
            failed = {name: why for name, why in (await self._each(setup.bring)).items() if why}
            for name, why in failed.items():
                log.warning("files could not be brought to %s: %s", name, why)
            if not failed:
                brought = digest

    async def _each(self, act: Callable[[Machine], None]) -> dict[str, str]:
        nodes = (await self._control.call(messages.GetNodes(), 10.0)).nodes
        alive = {node.instance_id for node in nodes if node.state == "ALIVE" and not node.is_head}
        try:
            listed = await asyncio.to_thread(self._settings.provider.list)
        except ProviderError as error:
            return dict.fromkeys(alive, str(error))
        turn = asyncio.Semaphore(_AT_ONCE)

        async def one(machine: Machine) -> str:
            async with turn:
                try:
                    await asyncio.to_thread(act, machine)
                except (SetupError, ShellError, SyncError, ProviderError) as error:
                    return str(error)
                return ""

        wanted = [machine for machine in listed if machine.instance_id in alive]
        said = await asyncio.gather(*(one(machine) for machine in wanted))
        return {machine.instance_id: why for machine, why in zip(wanted, said, strict=True)}
