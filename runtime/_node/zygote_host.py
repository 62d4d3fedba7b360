"""One interpreter's zygote, with the workers that it forked: started when it is needed, and again when it dies.

One that is to preload modules is up when it has imported them. If they make it unfit to be forked, it is refused, and
its workers come from the interpreter's plain zygote.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Protocol

from runtime._core.workers import Worker

from .environments import Interpreter, Preload
from .zygote import Zygote
from .zygote_spawn import SpawnedZygote, spawn_zygote

log = logging.getLogger(__name__)
_MAX_STARTS = 5
_WINDOW_S = 60.0
PRELOAD_S = 120.0
"""How long a zygote may import."""


class WorkerEvents(Protocol):
    """Callbacks for the owner of a host, on its loop."""

    def worker_forked(self, worker: Worker, out: str, err: str) -> None:
        """The worker's process runs; its number is in `worker.pid`."""

    def worker_exited(self, worker: Worker, status: int) -> None:
        """It ended: exit code, or the negated signal number."""

    def worker_not_forked(self, worker: Worker, error: str) -> None:
        """There will be no process."""

    def workers_lost(self, host: ZygoteHost, workers: list[Worker], reason: str) -> None:
        """The zygote ended unasked, and these with it. It starts anew unless `host.broken`."""

    def host_ready(self, host: ZygoteHost) -> None:
        """The zygote takes requests: it was started again, or has imported what it preloads."""

    def host_refused(self, host: ZygoteHost, reason: str) -> None:
        """The zygote with preloaded modules must not be forked from, or does not stay up."""


class ZygoteHost:
    """Forks and ends the workers of one interpreter. It implements `zygote.ZygoteEvents`.

    `broken`: it does not stay up, and is not started again. `forked_at`: when it was last asked for a worker, on the
    loop's clock.

    Args:
        store_fd: the node's shared memory, for workers in containers.
        workers_group: the control group that a zygote with preloaded modules enters; "" for none.
    """

    def __init__(
        self,
        interpreter: Interpreter,
        session_dir: str,
        events: WorkerEvents,
        store_fd: int = -1,
        workers_group: str = "",
    ) -> None:
        self.interpreter = interpreter
        self.broken = False
        self.forked_at = 0.0
        self._session_dir = session_dir
        self._store_fd = store_fd
        self._workers_group = workers_group
        self._events = events
        self._zygote: Zygote | None = None
        self._up = False
        self._importing: asyncio.TimerHandle | None = None
        self._starts: deque[float] = deque(maxlen=_MAX_STARTS)
        self._restarting: asyncio.Task[None] | None = None
        self._forking: dict[int, Worker] = {}
        self._running: dict[int, Worker] = {}

    @property
    def is_up(self) -> bool:
        """Whether it takes requests."""
        return self._up

    @property
    def is_used(self) -> bool:
        """Whether any worker of it lives or is on its way."""
        return bool(self._forking or self._running)

    async def start(self, spawned: SpawnedZygote | None = None) -> None:
        """Starts the zygote (unless it is on its way) without waiting for it. First forks queue in its socket, unless
        there are modules to import before.

        Raises:
            OSError: it cannot be started.
        """
        self._starts.append(asyncio.get_running_loop().time())
        zygote = Zygote(self, spawned or self._spawn())
        self._zygote = zygote
        await zygote.start()
        if self.interpreter.preload is None:
            self._up = True
        else:
            self._preload(zygote, self.interpreter.preload)

    def _preload(self, zygote: Zygote, preload: Preload) -> None:
        late = f"the imports were not done after {PRELOAD_S:.0f} s"
        self._importing = asyncio.get_running_loop().call_later(PRELOAD_S, self.zygote_preloaded, late, {})
        request: dict[str, Any] = {
            "modules": preload.modules,
            "path": preload.path,
            "env": dict(preload.env),
            "cwd": preload.cwd,
            "ray_alias": preload.ray_alias,
        }
        if self._workers_group:
            request["control_group"] = self._workers_group
        zygote.preload(request)

    def _imported(self) -> bool:
        """Whether imports were waited for until now."""
        waited, self._importing = self._importing, None
        if waited is not None:
            waited.cancel()
        return waited is not None

    async def wait_ready(self) -> None:
        """Raises RuntimeError when the zygote cannot come up."""
        if self._zygote is not None:
            await self._zygote.wait_ready()

    async def stop(self) -> None:
        """Kills the workers and the zygote."""
        self._imported()
        if self._restarting is not None:
            self._restarting.cancel()
        if self._zygote is not None:
            await self._zygote.stop()

    def fork(self, worker: Worker, request: dict[str, Any]) -> None:
        """Asks for the worker's process; see `runtime._process.zygote` for the fields."""
        assert self._zygote is not None
        self.forked_at = asyncio.get_running_loop().time()
        self._forking[worker.token] = worker
        self._zygote.fork(request)

    def kill(self, worker: Worker) -> None:
        """Kills a worker that runs; the zygote knows, so no other process is hit."""
        if self._zygote is not None and worker.pid:
            self._zygote.kill(worker.pid)

    def runs(self, worker: Worker) -> bool:
        """Whether its process has not ended."""
        return self._running.get(worker.pid) is worker

    # -- the zygote's events

    def worker_forked(self, token: int, pid: int, out: str, err: str) -> None:
        worker = self._forking.pop(token)
        worker.pid = pid
        self._running[pid] = worker
        self._events.worker_forked(worker, out, err)

    def worker_not_forked(self, token: int, error: str) -> None:
        self._events.worker_not_forked(self._forking.pop(token), error)

    def worker_exited(self, pid: int, status: int) -> None:
        self._events.worker_exited(self._running.pop(pid), status)

    def zygote_preloaded(self, refusal: str, missing: dict[str, str]) -> None:
        if not self._imported():
            return
        if refusal:
            self._events.host_refused(self, refusal)
            return
        for name, reason in missing.items():
            log.info("workers import %s themselves, from folders of their jobs: %s", name, reason)
        self._up = True
        self._events.host_ready(self)

    def zygote_lost(self, reason: str) -> None:
        log.error("%s", reason)
        assert self._zygote is not None
        ended_importing = self._imported()
        came_up, self._zygote, self._up = self._zygote.came_up, None, False
        workers = [*self._forking.values(), *self._running.values()]
        self._forking.clear()
        self._running.clear()
        loop = asyncio.get_running_loop()
        often = len(self._starts) == _MAX_STARTS and loop.time() - self._starts[0] < _WINDOW_S
        self.broken = often or ended_importing or (not came_up and bool(self.interpreter.command))
        self._events.workers_lost(self, workers, reason)
        if not self.broken:
            self._restarting = loop.create_task(self._restart())

    def _spawn(self) -> SpawnedZygote:
        chosen = self.interpreter
        if chosen.container is not None:
            from .zygote_container import spawn_in_container  # few nodes need it

            return spawn_in_container(self._session_dir, chosen, chosen.container, self._store_fd)
        return spawn_zygote(self._session_dir, chosen.command, dict(chosen.variables), chosen.cwd)

    async def _restart(self) -> None:
        try:
            await self.start()
        except OSError as error:
            self.broken = True
            self._events.workers_lost(self, [], f"the worker zygote cannot be started again: {error}")
        else:
            if self._up:
                self._events.host_ready(self)
