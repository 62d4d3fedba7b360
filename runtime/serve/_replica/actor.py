"""The actor of a replica."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import importlib
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

import runtime
from runtime import cloudpickle, exceptions
from runtime._extension.process import connected
from runtime.serve import context, multiplex
from runtime.serve._core.published import CONTROLLER, NAMESPACE, REPEAT_S, Load
from runtime.serve._core.specs import DeploymentOptions, DeploymentSpec, ReplicaReady
from runtime.serve._event_loops import new_event_loop
from runtime.serve._replica.log import NAME, ReplicaLog
from runtime.serve._replica.service import Service
from runtime.serve._replica.threads import Threads
from runtime.serve._replica.user_code import CHECK, RECONFIGURE, UserCode

T = TypeVar("T")

logger = logging.getLogger(NAME)

LOAD_S = 0.1
"""The controller hears of a changed load at most once in this time."""
ANSWER_S = 10.0
"""How long the controller may take to answer."""
RETRY_S = 1.0
STATISTICS_S = 10.0
"""How often `record_routing_stats` is called."""
METRICS_S = 1.0
"""How often `record_autoscaling_stats` is called."""
_ROUTING, _AUTOSCALING = "record_routing_stats", "record_autoscaling_stats"


class Replica:
    """Runs the code of one deployment. Its methods are calls of the controller; requests come by `Service`.

    The user's async code and all sockets share one event loop, on a thread of its own. Sync code runs on other threads,
    see `Threads`.

    Args:
        replica_id: `app#deployment#unique`.
        token: what callers show.
        app: the application.
        spec: the deployment.
        rank: of this replica.
        session: `scales` tells whether the controller wants to hear of the load; `world_size`, `node_rank` and
            `local_rank` are for the replica's context.
    """

    def __init__(
        self,
        replica_id: str,
        token: bytes,
        app: str,
        spec: DeploymentSpec,
        rank: int,
        session: dict[str, Any],
    ) -> None:
        self._id = replica_id
        self._token = token
        self._app = app
        self._spec = spec
        self._options = spec.options
        self._rank = rank
        self._session = session
        self._loop: asyncio.AbstractEventLoop | None = None
        self._service: Service | None = None
        self._user: UserCode | None = None
        self._log: ReplicaLog | None = None
        self._load: LoadReports | None = None
        self._polls: list[asyncio.Task[None]] = []
        self._frame = contextvars.copy_context()

    def __repr__(self) -> str:
        return f"ServeReplica:{self._app}:{self._spec.name}"

    # ------------------------------------------------------------ for the controller

    def start(self) -> ReplicaReady:
        """Runs the user's constructor, `reconfigure` with the user's configuration and the startup of the ASGI
        application; then listens.

        Raises: what the user's code raises.
        """
        if self._loop is None:
            # The context of this call: tasks that the user's code starts belong to this actor.
            self._frame = contextvars.copy_context()
            self._loop = new_event_loop()
            run = functools.partial(self._frame.run, self._run_loop, self._loop)
            threading.Thread(target=run, name="serve", daemon=True).start()
        return self._on_loop(self._start())

    def reconfigure(self, options: DeploymentOptions, rank: int) -> str:
        """Applies other options to the running replica.

        Returns:
            "", or the traceback of the user's `reconfigure` if it raised: the replica goes on with the options that it
            had, which the user's code got once more.

        Raises: what that second call raises. The replica cannot be used any more.
        """
        return self._on_loop(self._reconfigure(options, rank))

    def check_health(self) -> None:
        """Runs the user's `check_health`, if there is one: sync code on the calling thread, so that a long request does
        not make a replica look ill.

        Raises:
            Exception: what it raises.
            TimeoutError: it takes longer than `health_check_timeout_s`.
        """
        check = self._user.optional(CHECK) if self._user is not None else None
        if check is None:
            return
        if check.is_sync:
            self._frame.copy().run(check.function)
        else:
            self._on_loop(check.function(), self._options.health_check_timeout_s)

    def drain(self, timeout_s: float) -> NoReturn:
        """Recalls all slots, waits at most `timeout_s` for running requests, and cancels the others. Then runs the
        user's `__del__`, sends what is still to be sent and exits the process."""
        if self._service is not None:
            self._on_loop(self._drain(timeout_s))
        runtime.actor.exit_actor()

    # ------------------------------------------------------------ on the event loop

    @staticmethod
    def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:  # a task of the user's code called sys.exit(): without its loop the replica would answer nobody
            logger.critical("The event loop of the replica has ended; the process exits.", exc_info=True)
            os._exit(1)

    def _on_loop(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        assert self._loop is not None, "the replica is not started"
        running = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return running.result(timeout_s)
        except TimeoutError:
            running.cancel()
            raise

    async def _start(self) -> ReplicaReady:
        core = connected()
        facts = runtime.get_runtime_context()
        replica = context.ReplicaID.parse(self._id)
        logs = os.path.join(core.session.session_dir, "logs")
        ids = {
            "job_id": facts.get_job_id(),
            "worker_id": facts.get_worker_id(),
            "node_id": facts.get_node_id(),
        }
        self._log = ReplicaLog(replica, os.path.join(logs, "serve"), ids)
        self._log.configure(self._options.logging_config)
        self._set_context(replica, None)
        threads = Threads(self._options.max_ongoing_requests)
        target = cloudpickle.loads(self._spec.code)
        if isinstance(target, str):
            target = _imported(target)
        init = cloudpickle.loads(self._spec.init)
        user = UserCode(self._spec.name, target, init, threads)
        _attach_caller()
        await user.construct()
        self._set_context(replica, user.instance)
        await user.start_app()
        if self._options.user_config is not None:
            await user.reconfigure(self._options.user_config, self._replica_rank())
        self._user = user
        if self._session.get("scales"):
            self._load = LoadReports(self._id, user, lambda: self._service.ongoing if self._service else 0)
        service = Service(
            self._id,
            self._token,
            self._options.max_ongoing_requests,
            user,
            threads,
            self._log,
            self._load.changed if self._load is not None else _nothing,
            {"node_ip": core.address.host, "actor_id": facts.get_actor_id() or ""},
        )
        self._service = service
        multiplex.changed = service.tell_models
        service.tell_models(multiplex.loaded_models())
        if user.optional(_ROUTING) is not None:
            self._polls.append(asyncio.ensure_future(self._poll_routing(service, user)))
        if self._load is not None and user.optional(_AUTOSCALING) is not None:
            self._polls.append(asyncio.ensure_future(self._load.poll()))
        unix, port = await service.listen(core.address.host)
        return ReplicaReady(
            node=ids["node_id"],
            unix=unix,
            host=core.address.host,
            port=port,
            pid=os.getpid(),
            node_ip=core.address.host,
            worker_id=ids["worker_id"],
            log_file=self._log.path.removeprefix(logs + os.sep),
            zone=facts.get_node_labels().get("ray.io/availability-zone", ""),
            docs_path=user.app.docs_path if user.app is not None else None,
            has_check=user.optional(CHECK) is not None,
        )

    def _replica_rank(self) -> context.ReplicaRank:
        return context.ReplicaRank(
            self._rank, self._session.get("node_rank", 0), self._session.get("local_rank", 0)
        )

    def _set_context(self, replica: context.ReplicaID, instance: Any) -> None:
        context.set_replica(
            context.ReplicaContext(
                replica,
                instance,
                self._replica_rank(),
                self._session.get("world_size") or self._options.num_replicas or 1,
                code_version=self._spec.version,
                max_ongoing_requests=self._options.max_ongoing_requests,
            )
        )

    async def _reconfigure(self, options: DeploymentOptions, rank: int) -> str:
        before = self._options, self._rank
        try:
            await self._take(options, rank)
        except Exception as error:
            logger.exception("The replica did not take its new options, and goes on with those before.")
            await self._take(*before)
            return str(exceptions.RayTaskError.from_exception(error, f"{self._spec.name}.{RECONFIGURE}"))
        return ""

    async def _take(self, options: DeploymentOptions, rank: int) -> None:
        assert self._service is not None
        assert self._user is not None
        assert self._log is not None
        before, self._options = self._options, options
        has_new_rank, self._rank = rank != self._rank, rank
        self._set_context(context.ReplicaID.parse(self._id), self._user.instance)
        if options.max_ongoing_requests != before.max_ongoing_requests:
            self._service.threads.resize(options.max_ongoing_requests)
            self._service.resize(options.max_ongoing_requests)
        if options.logging_config != before.logging_config:
            self._log.configure(options.logging_config)
        has_new_config = options.user_config != before.user_config
        wants_rank = self._user.wants_rank
        if (has_new_config and (options.user_config is not None or wants_rank)) or (
            has_new_rank and wants_rank
        ):
            await self._user.reconfigure(options.user_config, self._replica_rank())

    async def _drain(self, timeout_s: float) -> None:
        assert self._service is not None
        assert self._user is not None
        left = await self._service.drain(timeout_s)
        if left:
            logger.warning("%d requests were cancelled, as the replica stops.", left)
        for poll in self._polls:
            poll.cancel()
        try:
            await self._user.end()
        except Exception:
            logger.exception("The end of the replica's code failed.")
        self._service.close()
        self._service.threads.close()

    async def _poll_routing(self, service: Service, user: UserCode) -> None:
        while True:
            method = user.optional(_ROUTING)
            assert method is not None
            try:
                statistics = await user.call(method, (), {})
                if isinstance(statistics, dict):
                    service.tell_statistics(statistics)
            except Exception:
                logger.exception("%s failed.", _ROUTING)
            await asyncio.sleep(STATISTICS_S)


class LoadReports:
    """Tells the controller how many requests run: when that changes, and again every `REPEAT_S` while any run.

    Args:
        replica: its id.
        ongoing: how many run now.
    """

    def __init__(self, replica: str, user: UserCode, ongoing: Callable[[], int]) -> None:
        self._replica = replica
        self._user = user
        self._ongoing = ongoing
        self._loop = asyncio.get_running_loop()
        self._controller: Any = None
        self._told: tuple[int, dict[str, Any]] | None = (0, {})
        self._metrics: dict[str, Any] = {}
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._repetition: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """The number may have changed."""
        if self._timer is None:
            self._timer = self._loop.call_later(max(0.0, self._next - time.monotonic()), self._report)

    async def poll(self) -> None:
        """Calls `record_autoscaling_stats` every `METRICS_S`, until it is cancelled."""
        while True:
            method = self._user.optional(_AUTOSCALING)
            assert method is not None
            try:
                found = await self._user.call(method, (), {})
                self._metrics = dict(found) if found else {}
                self.changed()
            except Exception:
                logger.exception("%s failed.", _AUTOSCALING)
            await asyncio.sleep(METRICS_S)

    def _report(self) -> None:
        self._timer = None
        if self._sending is not None and not self._sending.done():
            self._next = time.monotonic() + LOAD_S
            self.changed()
            return
        state = (self._ongoing(), self._metrics)
        if state == self._told:
            return
        self._told = state
        self._next = time.monotonic() + LOAD_S
        if self._repetition is not None:
            self._repetition.cancel()
        self._repetition = self._loop.call_later(REPEAT_S, self._repeat) if state[0] else None
        self._sending = asyncio.ensure_future(self._send(Load(self._replica, *state)))

    def _repeat(self) -> None:
        self._told = None
        self.changed()

    async def _send(self, load: Load) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                if self._controller is None:  # the look-up takes a round trip
                    self._controller = await asyncio.to_thread(runtime.get_actor, CONTROLLER, NAMESPACE)
                await self._controller.record_load.remote(load)
        except Exception as error:  # another controller may have taken the name
            logger.debug("The controller did not hear of the load: %s", error)
            self._controller = None
            await asyncio.sleep(RETRY_S)
            self._repeat()


def _attach_caller() -> None:
    """Handles that the user's code calls share this event loop."""
    from runtime.serve._caller import caller

    caller.attach(asyncio.get_running_loop())


def _imported(path: str) -> Any:
    """The class or function of an import path, `module:name` or `module.name`; of a deployment its own."""
    module, _, name = path.rpartition(":" if ":" in path else ".")
    found = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    return getattr(found, "func_or_class", found)


def _nothing() -> None:
    pass
