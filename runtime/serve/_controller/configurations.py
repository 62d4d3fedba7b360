"""Configurations that are deployed one after another: what is kept of them while they are built."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import pickle
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from runtime._core.environments import PACKAGE_HOLDS, hold, packages_in
from runtime.experimental import internal_kv
from runtime.serve._controller.building import announced, built_in_task, read_config
from runtime.serve._core.published import NAMESPACE
from runtime.serve._core.recovered import CONFIG
from runtime.serve._core.requests import Announce, Deploy, Spoil
from runtime.serve._core.specs import ApplicationSpec

HOLDER = b"serve"
"""Key under which serving holds uploaded packages, so that they are not deleted."""


class Kept(Protocol):
    """What outlives the controller. The methods block."""

    def keep_config(self, config: Mapping[str, Any] | None) -> None:
        """Stores a configuration for a restarted controller; None removes it, once everything is built."""

    def config(self) -> dict[str, Any] | None:
        """The configuration that was being built when the controller was restarted, or None."""

    def held(self) -> set[str]:
        """The packages that are held."""

    def hold(self, packages: set[str]) -> None:
        """Keeps uploaded packages, and no others: a replica that starts later needs them."""


class InStore:
    """In the control store; see `Kept`."""

    def keep_config(self, config: Mapping[str, Any] | None) -> None:
        """See `Kept`."""
        if config is None:
            internal_kv._internal_kv_del(CONFIG, namespace=NAMESPACE)
        else:
            internal_kv._internal_kv_put(CONFIG, pickle.dumps(dict(config)), namespace=NAMESPACE)

    def config(self) -> dict[str, Any] | None:
        """See `Kept`."""
        kept = internal_kv._internal_kv_get(CONFIG, namespace=NAMESPACE)
        found: dict[str, Any] | None = None if kept is None else pickle.loads(kept)
        return found

    def held(self) -> set[str]:
        """See `Kept`."""
        value = internal_kv._internal_kv_get(HOLDER, namespace=PACKAGE_HOLDS)
        return set() if value is None else packages_in(value.decode())

    def hold(self, packages: set[str]) -> None:
        """See `Kept`."""
        if packages:
            internal_kv._internal_kv_put(HOLDER, hold(packages), namespace=PACKAGE_HOLDS)
        else:
            internal_kv._internal_kv_del(HOLDER, namespace=PACKAGE_HOLDS)


class Configurations:
    """Deploys configurations: the applications of each are built in tasks. Belongs to one event loop.

    Args:
        request: see `Loop.request`.
        kept: see there.
        build: see `built_in_task`.
    """

    def __init__(
        self,
        request: Callable[[Any], concurrent.futures.Future[Any]],
        kept: Kept,
        build: Callable[[Mapping[str, Any]], Awaitable[ApplicationSpec]] = built_in_task,
    ) -> None:
        self._request = request
        self._kept = kept
        self._build_one = build
        self._building: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()  # for what is kept: one configuration at a time

    async def deploy(self, config: Mapping[str, Any]) -> None:
        """Deploys what a configuration says. Returns once it is accepted.

        Raises:
            ValueError: it is invalid.
            Refused: it contradicts what is deployed.
        """
        start, declared = read_config(config)
        async with self._turn:
            self._request(start)
            await self._ask(Announce([announced(each) for each in declared], config.get("target_capacity")))
            if self._building is not None:  # what it builds is out of date, or deleted
                self._building.cancel()
            packages = packages_in(json.dumps(declared, default=str))
            await asyncio.to_thread(self._kept.keep_config, config)
            # What runs keeps its packages until what replaces it is built.
            await asyncio.to_thread(lambda: self._kept.hold(self._kept.held() | packages))
            self._building = asyncio.create_task(self._build_all(declared, packages))

    async def resume(self) -> None:
        """Continues with a configuration that was being built when the controller was restarted."""
        config = await asyncio.to_thread(self._kept.config)
        if config is not None:
            await self.deploy(config)

    async def stop(self) -> None:
        """Builds nothing more."""
        async with self._turn:
            if self._building is not None:
                self._building.cancel()

    async def _build_all(self, declared: Sequence[dict[str, Any]], packages: set[str]) -> None:
        are_built = await asyncio.gather(*(self._build(each) for each in declared))
        async with self._turn:  # a later configuration may be kept now: this task is cancelled then
            await asyncio.to_thread(self._kept.keep_config, None)
            if all(are_built):
                await asyncio.to_thread(self._kept.hold, packages)

    async def _build(self, declared: dict[str, Any]) -> bool:
        """Whether it could be built and deployed."""
        try:
            spec = await self._build_one(declared)
            await self._ask(Deploy([spec], False))
        except Exception as error:
            message = f"The application could not be built from {declared['import_path']}: {error}"
            await self._ask(Spoil(declared["name"], message))
            return False
        return True

    async def _ask(self, what: Any) -> Any:
        return await asyncio.wrap_future(self._request(what))
