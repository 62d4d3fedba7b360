"""The environments of a node: one preparation for all that wait, references counted."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from runtime._clients.control import ControlClient
from runtime._core.workers import PoolKey
from runtime._system import files
from runtime._transport.channel import CallError

from .place import Part, WorkerPlace

if TYPE_CHECKING:
    from .builder import Builder

log = logging.getLogger(__name__)
KEPT = 1_000
"""How many results of preparations are remembered, of different environments."""


class _Prepared(msgspec.Struct, eq=False):
    """An environment in use, and what it holds."""

    task: asyncio.Task[WorkerPlace]
    parts: list[Part]
    env: str = ""  # as JSON; "": it has no fields, or they are not known yet


class _Result(msgspec.Struct, frozen=True):
    """How the last preparation of an environment ended."""

    seconds: float
    error: str  # "": it is ready


class Environments:
    """The environments of one node.

    Args:
        folder: for all files; this object's alone.
        control: where packages are.
        load_config: gives a job's configuration (`control.AddJob.config`).
        shared: folders that workers use, besides those of environments; workers in containers get them, too.
    """

    def __init__(
        self,
        folder: str,
        control: ControlClient,
        load_config: Callable[[bytes], Awaitable[Mapping[str, Any]]],
        shared: Sequence[str] = (),
    ) -> None:
        self._folder = folder
        self._control = control
        self._load_config = load_config
        self._shared = shared
        self._prepared: dict[PoolKey, _Prepared] = {}
        self._results: dict[str, _Result] = {}  # by the environment as JSON; the latest at the end
        self._builder: Builder | None = None

    def ready(self, key: PoolKey) -> WorkerPlace | None:
        """The environment when it is ready now."""
        prepared = self._prepared.get(key)
        if prepared is None or not prepared.task.done() or prepared.task.cancelled():
            return None
        return None if prepared.task.exception() else prepared.task.result()

    async def prepare(self, key: PoolKey) -> WorkerPlace:
        """Makes it ready, and keeps it so until `release`.

        Raises:
            CallError: RUNTIME_ENV, with the cause; a later call tries again.
        """
        prepared = self._prepared.get(key)
        if prepared is None:
            parts: list[Part] = []
            task = asyncio.get_running_loop().create_task(self._prepare(key, parts))
            prepared = self._prepared[key] = _Prepared(task, parts)
        try:
            return await asyncio.shield(prepared.task)
        except CallError:
            if self._prepared.get(key) is prepared:
                self.release(key)
            raise

    def release(self, key: PoolKey) -> None:
        """Nobody needs it for now. What it is made of stays while there is room."""
        prepared = self._prepared.pop(key, None)
        if prepared is None:
            return
        prepared.task.cancel()
        if prepared.parts:
            self._made().release(prepared.parts)

    @property
    def current(self) -> list[PoolKey]:
        """The environments that are ready, or being made so."""
        return list(self._prepared)

    def rows(self, node_id: str) -> list[dict[str, Any]]:
        """The environments that were prepared, for `runtime.util.state`; `ref_cnt` counts the jobs that use one."""
        used = Counter(prepared.env for prepared in self._prepared.values())
        return [
            {
                "runtime_env": json.loads(env),
                "success": not result.error,
                "creation_time_ms": result.seconds * 1000,
                "node_id": node_id,
                "ref_cnt": used[env],
                "error": result.error or None,
            }
            for env, result in self._results.items()
        ]

    async def close(self) -> None:
        """Ends what is being built; returns when its programs are gone."""
        tasks = [prepared.task for prepared in self._prepared.values()]
        for task in tasks:
            task.cancel()
        if self._builder is not None:
            await self._builder.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    def remove_files(self) -> None:
        """Deletes everything, when the node ends."""
        files.remove_tree(self._folder)

    # -- inside

    def _made(self) -> Builder:
        if self._builder is None:
            from .builder import Builder  # not before there is a job: the node comes up faster

            self._builder = Builder(self._folder, self._control, self._shared)
        return self._builder

    async def _prepare(self, key: PoolKey, parts: list[Part]) -> WorkerPlace:
        job_id, text = key
        config = await self._load_config(job_id)
        env: dict[str, Any] = json.loads(text) if text else config.get("runtime_env") or {}
        name = json.dumps(env, sort_keys=True) if env else ""
        if (prepared := self._prepared.get(key)) is not None:
            prepared.env = name
        began = time.perf_counter()
        try:
            place = await self._made().build(parts, env, config)
        except CallError as error:
            log.warning("an environment of job %s failed: %s", job_id.hex(), error)
            self._ended(name, began, str(error))
            raise
        self._ended(name, began, "")
        return place

    def _ended(self, name: str, began: float, error: str) -> None:
        if not name:
            return
        self._results.pop(name, None)
        self._results[name] = _Result(time.perf_counter() - began, error)
        if len(self._results) > KEPT:
            del self._results[next(iter(self._results))]
