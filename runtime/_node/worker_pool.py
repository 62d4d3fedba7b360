"""The node's worker processes: forked on demand, kept warm, killed when they are too many or not wanted."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable

import msgspec

from runtime._core.preloading import Preloading, ZygoteUse
from runtime._core.workers import PoolKey, Worker, WorkerEvent, WorkerState, WorkerTable
from runtime._system import files, settings
from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.node import MayEnd

from .environments import Environments, Interpreter, WorkerPlace
from .environments.place import DEFAULT_INTERPRETER
from .zygote import describe_exit
from .zygote_host import ZygoteHost
from .zygote_spawn import SpawnedZygote

log = logging.getLogger(__name__)
IDLE_S = 1.0
GRACE_S = 30.0
"""How long an exiting worker may take."""
START_S = 60.0
"""How long a forked worker may take until it registers."""
_TRIM_INTERVAL_S = 0.5
_MAY_END_TIMEOUT_S = 5.0
_MAX_FAILED_STARTS = 3
UNUSED_S = 30.0
"""Idle time after which workers of a task's own runtime_env exit; after the same time again, the environment and its
zygote are removed."""
_LOG_TAIL_BYTES = 2000
_EXIT_GRACE_S = 2.0
_LAST_MESSAGES_S = 1.0
"""How long the socket of an ended worker may stay open: a process that it forked may hold it."""

Taker = Callable[[Worker | CallError], None]
"""Called with the worker, or with the reason why there is none."""


class PoolListener(msgspec.Struct):
    """What the pool reports to its owner: a worker ended (why, and whether that was wanted), its log files came to
    be, that workers cannot be started at all, and that somebody gets a worker."""

    worker_ended: Callable[[Worker, str, bool], None]
    logs_opened: Callable[[Worker, str, str], None]
    broken: Callable[[str], None]
    taken: Callable[[], None]


class WorkerPool:
    """Workers of one node. It implements `zygote_host.WorkerEvents`.

    Args:
        session_dir: `logs/` in it takes the workers' output.
        start: the part of the zygote's `start` that is the same for all workers.
        environments: makes ready where workers run.
        listener: see `PoolListener`.
        keep: while their job lives, idle workers are kept up to this number of idle and leased ones.
        grace_s: how long an exiting worker may take.
        store_fd: the node's shared memory, for workers in containers.
    """

    def __init__(
        self,
        session_dir: str,
        start: dict[str, str],
        environments: Environments,
        listener: PoolListener,
        keep: int,
        grace_s: float = GRACE_S,
        store_fd: int = -1,
    ) -> None:
        self._session_dir = session_dir
        self._logs = os.path.join(session_dir, "logs")
        self._start = start
        self._environments = environments
        self._listener = listener
        self._keep = keep
        self.grace_s = grace_s
        self._store_fd = store_fd
        self._asked: dict[Worker, asyncio.Task[None]] = {}
        self._ends: dict[Worker, list[asyncio.Future[None]]] = {}
        self.table = WorkerTable()
        self._takers: dict[PoolKey, deque[tuple[WorkerEvent, tuple[str, ...], Taker]]] = {}
        self._prestarts: dict[PoolKey, int] = {}
        self._preparing: dict[PoolKey, asyncio.Task[None]] = {}
        self._failures: dict[PoolKey, int] = {}
        self._hosts: dict[Interpreter, ZygoteHost] = {}
        self._preloading: Preloading[Interpreter] = Preloading(
            settings.MAX_PRELOADING_ZYGOTES.get_or_default()
        )
        self._unused_since: dict[PoolKey, float] = {}
        self._trimmer: asyncio.TimerHandle | None = None
        self._delay: asyncio.TimerHandle | None = None
        self._waking: asyncio.Task[None] | None = None
        self._ending_hosts: set[asyncio.Task[None]] = set()
        self._unheard: dict[Worker, tuple[str, asyncio.TimerHandle]] = {}
        self._stopped = False

    async def start(self, spawned: SpawnedZygote | None = None, delay_s: float = 0.0) -> None:
        """Starts the zygote (unless it is on its way) without waiting for it: first forks queue in its socket.

        Args:
            delay_s: delay of its start, unless a worker is wanted.

        Raises:
            OSError: it cannot be started.
        """
        if delay_s:
            self._delay = asyncio.get_running_loop().call_later(delay_s, self._wake)
        else:
            await self._add_host(DEFAULT_INTERPRETER).start(spawned)

    async def wait_ready(self) -> None:
        """Raises RuntimeError when the zygote cannot come up. One that comes later is not waited for."""
        if self._delay is None:
            await self._hosts[DEFAULT_INTERPRETER].wait_ready()

    async def stop(self) -> None:
        """Kills every worker and the zygotes."""
        self._stopped = True
        tasks = (*self._preparing.values(), *self._asked.values())
        timers = (timer for _, timer in self._unheard.values())
        for handle in (self._trimmer, self._delay, self._waking, *tasks, *timers):
            if handle is not None:
                handle.cancel()
        self._unheard.clear()
        for host in self._hosts.values():
            self._end_host(host)
        await asyncio.gather(*self._ending_hosts, return_exceptions=True)

    def acquire(self, key: PoolKey, event: WorkerEvent, taker: Taker, devices: tuple[str, ...] = ()) -> None:
        """Finds a worker of `key` for a lease, with accelerators of these kinds, or an actor: an idle one at once, else
        a new one when it is up."""
        worker = self.table.take(key, event, self._now(), devices)
        if worker is not None:
            self._hand_over(worker, taker)
            return
        self._takers.setdefault(key, deque()).append((event, devices, taker))
        self._start_missing(key)

    def prestart(self, key: PoolKey, count: int) -> None:
        """Brings `count` workers up before anybody asks."""
        self._prestarts[key] = count
        self._start_missing(key)

    def register(self, token: int, pid: int, channel: Channel) -> Worker:
        """A forked process has connected; the caller makes it useful with `ready`.

        Raises:
            CallError: INVALID: nobody waits for this token.
        """
        worker = self.table.by_token(token)
        if worker is None or worker.state is not WorkerState.STARTING:
            raise CallError(ErrorKind.INVALID, "no worker with this startup token is expected")
        worker.channel = channel
        worker.pid = pid
        # It may have worked and be done before its zygote comes to tell that it forked.
        self._listener.logs_opened(worker, *self._output_files(worker, str(pid)))
        return worker

    def set_up(self, worker: Worker, error: str) -> None:
        """The worker's imports and setup hook are done, or failed: then nobody gets a worker of this environment."""
        if not error:
            self.ready(worker)
            return
        self._prestarts.pop(worker.key, None)
        self._fail_takers(worker.key, CallError(ErrorKind.SETUP_HOOK, error))
        self.stop_worker(worker, error, True)

    def ready(self, worker: Worker) -> None:
        """The registered worker knows its job and can be used."""
        self._failures.pop(worker.key, None)
        if worker.state is WorkerState.STARTING:
            self.table.registered(worker, self._now())
            self._trim_soon()
            self._serve(worker.key)

    def give_back(self, worker: Worker) -> None:
        """A leased worker is free again."""
        self.table.give_back(worker, self._now())
        self._trim_soon()
        if worker.key in self._takers:
            self._serve(worker.key)

    def stop_worker(self, worker: Worker, reason: str, intended: bool) -> None:
        """Kills a worker; `listener.worker_ended` follows."""
        if self.table.stopping(worker, reason, intended, self._now()):
            worker.host.kill(worker)

    def ending(self, worker: Worker) -> asyncio.Future[None]:
        """Done when a worker that was stopped has ended."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if worker.state is WorkerState.DEAD:
            ended.set_result(None)
        else:
            self._ends.setdefault(worker, []).append(ended)
        return ended

    def exiting(self, worker: Worker, reason: str, intended: bool) -> None:
        """A worker ends by itself; what runs in it, and its last handlers of user code, have a while for it."""
        worker.retiring = True
        if reason and worker.state is not WorkerState.STOPPING:
            worker.stop_reason, worker.stop_intended = reason, intended
            asyncio.get_running_loop().call_later(self.grace_s, self.stop_worker, worker, reason, intended)

    def disconnected(self, worker: Worker) -> None:
        """Its socket closed: it is as good as dead. Its exit tells why, unless it must be killed."""
        if worker in self._unheard:
            self._heard_out(worker)
        elif worker.host.runs(worker):
            asyncio.get_running_loop().call_later(_EXIT_GRACE_S, self._kill_if_alive, worker)

    def finish_job(self, job_id: bytes, keep: Callable[[Worker], bool]) -> bool:
        """Kills the job's workers, except those to keep, and forgets who waits for one. True if any is
        kept."""
        kept = False
        for worker in self.table.of_job(job_id):
            if keep(worker):
                kept = True
            else:
                self.stop_worker(worker, "its job has ended", True)
        for key in [key for key in self._takers if key[0] == job_id and not kept]:
            self._fail_takers(key, CallError(ErrorKind.NOT_FOUND, "the job has ended"))
        for key in [key for key in self._prestarts if key[0] == job_id]:
            del self._prestarts[key]
        return kept

    def end_unused_zygotes(self) -> bool:
        """Ends zygotes with preloaded modules that have no workers, as memory is short. Whether there was one."""
        unused = [wanted for wanted, use in self._preloading_zygotes().items() if not use.is_used]
        for interpreter in unused:
            self._end_host(self._hosts.pop(interpreter))
        return bool(unused)

    # -- the zygote's events

    def worker_forked(self, worker: Worker, out: str, err: str) -> None:
        self._listener.logs_opened(worker, out, err)
        if worker.state is WorkerState.STOPPING:
            worker.host.kill(worker)

    def worker_not_forked(self, worker: Worker, error: str) -> None:
        self._ended(worker, error)

    def worker_exited(self, worker: Worker, status: int) -> None:
        reason = f"Worker unexpectedly exits: {describe_exit(status)}"
        if worker.channel is None or worker.channel.closed:
            self._ended(worker, reason)
            return
        # Its last messages, which may say that it was to end, are perhaps not read yet.
        timer = asyncio.get_running_loop().call_later(_LAST_MESSAGES_S, self._heard_out, worker)
        self._unheard[worker] = reason, timer

    def workers_lost(self, host: ZygoteHost, workers: list[Worker], reason: str) -> None:
        if self._stopped:
            return
        if host.broken:
            del self._hosts[host.interpreter]  # its process has ended
            if host.interpreter == DEFAULT_INTERPRETER:
                self._give_up(reason)
                return
        for worker in workers:
            self._ended(worker, reason, retry=False)
        if host.broken and host.interpreter.preload is not None:
            self.host_refused(host, reason)
        elif host.broken:
            self._fail_interpreter(host.interpreter, reason)

    def host_refused(self, host: ZygoteHost, reason: str) -> None:
        interpreter = host.interpreter
        assert interpreter.preload is not None
        log.warning("workers import %s themselves: %s", ", ".join(interpreter.preload.modules), reason)
        self._preloading.refuse(interpreter)
        if interpreter in self._hosts:
            self._end_host(self._hosts.pop(interpreter))
        for key in {**self._takers, **self._prestarts}:
            place = self._environments.ready(key)
            if place is not None and place.interpreter == interpreter:
                self._start_missing(key)

    def host_ready(self, host: ZygoteHost) -> None:
        for key in {**self._takers, **self._prestarts}:
            if self._interpreter(key) == host.interpreter:
                self._start_missing(key)

    # -- inside

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _add_host(self, interpreter: Interpreter) -> ZygoteHost:
        group = self._start.get("control_group", "")
        host = ZygoteHost(interpreter, self._session_dir, self, self._store_fd, group)
        self._hosts[interpreter] = host
        return host

    def _end_host(self, host: ZygoteHost) -> None:
        ending = asyncio.get_running_loop().create_task(host.stop())
        self._ending_hosts.add(ending)
        ending.add_done_callback(self._ending_hosts.discard)

    def _wake(self) -> None:
        if DEFAULT_INTERPRETER not in self._hosts:
            self._waking = asyncio.get_running_loop().create_task(self._start_host(DEFAULT_INTERPRETER))

    async def _start_host(self, interpreter: Interpreter) -> None:
        if interpreter.preload is not None:
            unneeded = self._preloading.makes_room(self._preloading_zygotes())
            if unneeded is not None:
                self._end_host(self._hosts.pop(unneeded))
        host = self._add_host(interpreter)
        try:
            await host.start()
        except OSError as error:
            del self._hosts[interpreter]
            if interpreter == DEFAULT_INTERPRETER:
                self._give_up(f"the worker zygote cannot be started: {error}")
            elif interpreter.preload is not None:
                self.host_refused(host, f"the zygote cannot be started: {error}")
            else:
                self._fail_interpreter(interpreter, str(error))
        else:
            if host.is_up:
                self.host_ready(host)

    def _give_up(self, reason: str) -> None:
        self._stopped = True
        self._listener.broken(reason)

    def _interpreter(self, key: PoolKey) -> Interpreter | None:
        place = self._environments.ready(key)
        return self._chosen(place) if place is not None else None

    def _chosen(self, place: WorkerPlace) -> Interpreter:
        """The place's interpreter, without its preloaded modules if there is to be no zygote that has them."""
        interpreter = place.interpreter
        if interpreter.preload is None or self._preloading.admits(interpreter, self._preloading_zygotes()):
            return interpreter
        return interpreter.plain

    def _preloading_zygotes(self) -> dict[Interpreter, ZygoteUse]:
        return {
            interpreter: ZygoteUse(host.is_used or not host.is_up, host.forked_at)
            for interpreter, host in self._hosts.items()
            if interpreter.preload is not None
        }

    def _heard_out(self, worker: Worker) -> None:
        reason, timer = self._unheard.pop(worker)
        timer.cancel()
        self._ended(worker, reason)

    def _kill_if_alive(self, worker: Worker) -> None:
        if worker.host.runs(worker):
            self.stop_worker(worker, "it closed its connection to the node agent", False)

    def _ended(self, worker: Worker, reason: str, retry: bool = True) -> None:
        was_starting = worker.state is WorkerState.STARTING
        self.table.died(worker, self._now())
        for ended in self._ends.pop(worker, ()):
            ended.set_result(None)
        self._trim_soon()
        key = worker.key
        if was_starting and retry:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            log.warning("worker %s ended before it was up: %s", worker.worker_id.hex()[:12], reason)
            if failures >= _MAX_FAILED_STARTS:
                del self._failures[key]
                self._prestarts.pop(key, None)
                text = f"workers end before they are up: {reason}. {self._error_log(worker)}"
                self._fail_takers(key, CallError(ErrorKind.RUNTIME_ENV, text))
        self._listener.worker_ended(worker, worker.stop_reason or reason, worker.stop_intended)
        if retry and not self._stopped and (key in self._takers or key in self._prestarts):
            self._start_missing(key)

    def _hand_over(self, worker: Worker, taker: Taker) -> None:
        taker(worker)
        self._trim_soon()  # with one more at work, idle ones may be too many
        self._listener.taken()

    def _serve(self, key: PoolKey) -> None:
        takers = self._takers.get(key, deque())
        for item in tuple(takers):
            event, devices, taker = item
            worker = self.table.take(key, event, self._now(), devices)
            if worker is not None:
                takers.remove(item)
                self._hand_over(worker, taker)
            elif not self.table.has_idle(key):
                break
        if not self._takers.get(key, True):
            del self._takers[key]

    def _start_missing(self, key: PoolKey) -> None:
        """Forks as many workers as are asked for and not on their way."""
        wanted = max(len(self._takers.get(key, ())), self._prestarts.pop(key, 0)) - self.table.starting(key)
        if wanted <= 0 or self._stopped:
            return
        place = self._environments.ready(key)
        host = self._hosts.get(self._chosen(place)) if place is not None else None
        if place is not None and host is not None and host.is_up:
            for _ in range(wanted):
                self._fork(key, place, host)
            return
        self._prestarts[key] = wanted
        if key not in self._preparing and (host is None or host.is_up):  # else its restart comes back to this
            task = asyncio.get_running_loop().create_task(self._prepare(key))
            self._preparing[key] = task

    async def _prepare(self, key: PoolKey) -> None:
        try:
            place = await self._environments.prepare(key)
        except CallError as error:
            self._prestarts.pop(key, None)
            self._fail_takers(key, error)
            return
        finally:
            del self._preparing[key]
            self._trim_soon()
        interpreter = self._chosen(place)
        if interpreter in self._hosts:
            self._start_missing(key)
        else:
            await self._start_host(interpreter)

    def _fork(self, key: PoolKey, place: WorkerPlace, host: ZygoteHost) -> None:
        worker = self.table.add(os.urandom(28), key)
        self._trim_soon()
        worker.idle_since = self._now()
        worker.host = host
        out, err = self._output_files(worker, "{pid}")
        start: dict[str, object] = {
            **self._start,
            "startup_token": worker.token,
            "worker_id": worker.worker_id.hex(),
            "job_id": worker.job_id.hex(),
        }
        if place.hook:
            start["setup_hook"] = place.hook
        if place.modules:
            start["preload"] = place.modules
        host.fork(
            worker,
            {
                "token": worker.token,
                "start": start,
                "env": place.env,
                "cwd": place.cwd,
                "path": place.path,
                "out": out,
                "err": err,
            },
        )

    def _fail_interpreter(self, interpreter: Interpreter, reason: str) -> None:
        for key in [
            key for key in {**self._takers, **self._prestarts} if self._interpreter(key) == interpreter
        ]:
            self._prestarts.pop(key, None)
            self._fail_takers(key, CallError(ErrorKind.RUNTIME_ENV, f"its Python does not start: {reason}"))

    def _fail_takers(self, key: PoolKey, error: CallError) -> None:
        if error.kind in (ErrorKind.RUNTIME_ENV, ErrorKind.SETUP_HOOK):
            error = CallError(error.kind, f"[Node {self._start['node_host']}] {error}")
        self._trim_soon()
        for _, _, taker in self._takers.pop(key, ()):
            taker(error)

    def _trim_soon(self) -> None:
        """Something may be, or become, too much."""
        if self._trimmer is None and not self._stopped:
            self._trimmer = asyncio.get_running_loop().call_later(_TRIM_INTERVAL_S, self._trim)

    def _trim(self) -> None:
        self._trimmer = None
        loop = asyncio.get_running_loop()
        surplus = self.table.surplus(self._keep, IDLE_S, loop.time())
        for worker in {*surplus, *self.table.stale(UNUSED_S, loop.time())}:
            if worker not in self._asked:
                self._asked[worker] = loop.create_task(self._end_unneeded(worker))
        for worker in self.table:
            late = worker.channel is None and loop.time() - worker.idle_since > START_S
            if late and worker.state is WorkerState.STARTING:
                worker.stop_reason = f"it did not register within {START_S:.0f} s"
                worker.host.kill(worker)
        if self._trim_environments(loop.time()) or self.table.changes_with_time(self._keep):
            self._trim_soon()

    async def _end_unneeded(self, worker: Worker) -> None:
        """Ends an idle worker unless others refer to what it owns, which would go with it."""
        since = worker.idle_since
        try:
            if worker.channel is not None:
                await worker.channel.call(MayEnd(), _MAY_END_TIMEOUT_S)
            if worker.state is WorkerState.IDLE and worker.idle_since == since:
                self.stop_worker(worker, "it was idle", True)
        except CallError as error:
            if error.kind == ErrorKind.BUSY and worker.state is WorkerState.IDLE:
                worker.idle_since = self._now()
        finally:
            self._asked.pop(worker, None)
            self._trim_soon()

    def _trim_environments(self, now: float) -> bool:
        """Lets go of what nobody has used for a while: environments, then zygotes. Whether more is unused."""
        used = {worker.key for worker in self.table}
        used.update(self._takers, self._prestarts, self._preparing)
        interpreters = {DEFAULT_INTERPRETER}
        places = []
        current = self._environments.current
        self._unused_since = {key: since for key, since in self._unused_since.items() if key in current}
        for key in current:
            if key in used:
                self._unused_since.pop(key, None)
            elif now - self._unused_since.setdefault(key, now) >= UNUSED_S:
                del self._unused_since[key]
                self._environments.release(key)
                continue
            place = self._environments.ready(key)
            if place is not None:
                places.append(place.interpreter)
                interpreters.add(self._chosen(place))
        self._preloading.keep(places)
        unused = [host for host in self._hosts.values() if host.interpreter not in interpreters]
        for host in unused:
            if not host.is_used:
                del self._hosts[host.interpreter]
                self._end_host(host)
        return bool(self._unused_since or unused)

    def _output_files(self, worker: Worker, pid: str) -> tuple[str, str]:
        name = os.path.join(self._logs, f"worker-{worker.worker_id.hex()}-{worker.job_id.hex()}-{pid}")
        return name + ".out", name + ".err"

    def _error_log(self, worker: Worker) -> str:
        _, err = self._output_files(worker, str(worker.pid))
        try:
            text = files.tail(err, _LOG_TAIL_BYTES)
        except OSError as error:
            return f"No error log: {error}"
        return f"The last one's error log ends with:\n{text}" if text else "The last one's error log is empty"
