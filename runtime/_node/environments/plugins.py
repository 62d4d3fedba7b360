"""Plugins of runtime environments: classes named by RAY_RUNTIME_ENV_PLUGINS, each for a field of its own.

They are code of users. It runs on an event loop in a thread of its own, so that a method that blocks does not stop the
agent.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec

from runtime._private.runtime_env.context import RuntimeEnvContext
from runtime._private.runtime_env.plugin import RuntimeEnvPlugin
from runtime._system import settings
from runtime.runtime_env import RuntimeEnv

from .command import CommandFailed

log = logging.getLogger(__name__)
VARIABLE = settings.PLUGINS.name
KNOWN_FIELDS = RuntimeEnv.known_fields
_LAST_PRIORITY = 100
_END_S = 1.0
T = TypeVar("T")
KeepUri = Callable[[str, str, Callable[[], Awaitable[int]], Callable[[], None]], Awaitable[None]]
"""Called for each URI with the plugin's name, the URI, what makes it, which returns its size, and what deletes it.
Makes it unless it is there, and keeps it while the environment is used."""


class _Configured(msgspec.Struct, rename={"path": "class"}):
    path: str
    priority: int | None = None


class Plugins:
    """The plugins of a node.

    Args:
        described: the text of RAY_RUNTIME_ENV_PLUGINS.

    Raises:
        ValueError: it is wrong, or a class cannot be loaded.
    """

    def __init__(self, described: str) -> None:
        try:
            configured = msgspec.json.decode(described, type=list[_Configured])
        except msgspec.DecodeError as error:
            raise ValueError(
                f'{VARIABLE} is a JSON list like [{{"class": "package.module.Class", "priority": 5}}]: {error}'
            ) from error
        self._loop: asyncio.AbstractEventLoop | None = None
        self._plugins: list[tuple[int, RuntimeEnvPlugin]] = []
        for entry in configured:
            plugin = _load(entry.path)
            priority = plugin.priority if entry.priority is None else entry.priority
            if not 0 <= priority <= _LAST_PRIORITY:
                raise ValueError(f"{VARIABLE}: the priority of {entry.path} is {priority}, not from 0 to 100")
            if plugin.name in KNOWN_FIELDS:
                raise ValueError(f"{VARIABLE}: the field {plugin.name} of {entry.path} has a meaning already")
            if any(plugin.name == other.name for _, other in self._plugins):
                raise ValueError(f"{VARIABLE}: two plugins are named {plugin.name}")
            self._plugins.append((priority, plugin))
        self._plugins.sort(key=lambda entry: entry[0])

    @property
    def names(self) -> list[str]:
        """The fields, in the order in which their plugins are called."""
        return [plugin.name for _, plugin in self._plugins]

    async def apply(self, env: Mapping[str, Any], context: RuntimeEnvContext, keep: KeepUri) -> None:
        """Lets the plugins whose fields an environment has change its context.

        Raises:
            CommandFailed: one raised an exception.
        """
        runtime_env = RuntimeEnv(_validate=False, **json.loads(json.dumps(env)))
        for _, plugin in self._plugins:
            if plugin.name in env:
                await self._apply(plugin, runtime_env, context, keep)

    async def close(self) -> None:
        """Ends the thread, unless a method of a plugin blocks it."""
        if self._loop is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, _END_S)
        if not self._thread.is_alive():
            self._loop.close()

    async def _apply(
        self, plugin: RuntimeEnvPlugin, env: RuntimeEnv, context: RuntimeEnvContext, keep: KeepUri
    ) -> None:
        async def create(uri: str | None) -> int:
            return int(await plugin.create(uri, env, context, log) or 0)

        async def prepare() -> list[str]:
            plugin.validate(env)
            uris = list(plugin.get_uris(env) or [])
            if not uris:
                await create(None)
            return uris

        async def modify(uris: list[str]) -> None:
            plugin.modify_context(uris, env, context, log)

        uris = await self._run(plugin, prepare())
        for uri in uris:

            async def make(uri: str = uri) -> int:
                return await self._run(plugin, create(uri))

            def delete(uri: str = uri) -> None:
                self._running_loop().call_soon_threadsafe(_delete, plugin, uri)

            await keep(plugin.name, uri, make, delete)
        await self._run(plugin, modify(uris))

    async def _run(self, plugin: RuntimeEnvPlugin, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            return await asyncio.wrap_future(
                asyncio.run_coroutine_threadsafe(coroutine, self._running_loop())
            )
        except Exception as error:
            text = "".join(traceback.format_exception(error)).strip()
            raise CommandFailed(f"the plugin of runtime_env[{plugin.name!r}] failed", text) from error

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="runtime_env plugins", daemon=True
            )
            self._thread.start()
        return self._loop


def _delete(plugin: RuntimeEnvPlugin, uri: str) -> None:
    try:
        plugin.delete_uri(uri, log)
    except Exception:
        log.exception("the plugin of runtime_env[%r] failed to delete %s", plugin.name, uri)


def _load(path: str) -> RuntimeEnvPlugin:
    before = os.environ.get("PYTHONPATH")
    importlib.import_module("runtime.compat.ray").install()  # plugins written for Ray import its base class
    if before is None:  # the alias is for this process alone, not for workers
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = before
    module, _, name = path.rpartition(".")
    try:
        loaded = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise ValueError(f"{VARIABLE}: {path} cannot be loaded: {type(error).__name__}: {error}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, RuntimeEnvPlugin) and loaded.name):
        raise ValueError(f"{VARIABLE}: {path} is no subclass of RuntimeEnvPlugin with a name")
    return loaded()
