"""The composition of the head: control store, node agent, autoscaler, jobs and API, started in order and
ended in the reverse one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from autoscaler.config import AutoscalerConfig
from autoscaler.loop import Autoscaler
from autoscaler.status import Report
from clusterctl.launcher import node_types
from clusterctl.providers import registry
from clusterctl.providers.protocol import OperatorProvider, Seat
from clusterctl.spec.definition import ClusterSpec
from clusterctl.startup.config import HeadConfig
from clusterctl.startup.record import forget
from runtime._clients.control import ControlClient
from runtime._control.storage import StorageError
from runtime._core import head_api
from runtime._node.options import zygote_delay_s
from runtime._session.daemons import Daemon, DaemonError, start_node, start_remote_drivers
from runtime._system import files
from runtime._transport.channel import CallError
from runtime._wire.messages.control import KvPut

from . import end_request, ending
from .api import Api
from .autostop import Autostop
from .first import HeadError, control_store
from .jobs import JobSupervisor
from .keeping import keep_keeper, keeper_command
from .remote_drivers import RemoteDrivers
from .serving import ServeGateway
from .session import sockets_dir
from .supervision import GaveUp, keep_alive, keep_going
from .worker_files import WorkerFiles
from .worker_setup import WorkerSetup

log = logging.getLogger(__name__)

Tell = Callable[[dict[str, str]], None]
_CONTROL_PATIENCE_S = 60.0
_END_S = 2.0
_AGAIN_S = 1.0
_REQUESTS_S = 1.0
"""Between two looks for requests of nodes."""


class Head:
    """One head. `run` is its whole life."""

    def __init__(self, config: HeadConfig, secret_file: str, session_dir: str, config_file: str = "") -> None:
        """Args:
        config_file: rewritten when the spec or autostop changes, so that a restart goes on with both; "": no file.
        """
        self._config = config
        self._config_file = config_file
        self._secret_file = secret_file
        self._session_dir = session_dir
        self._secret = Path(secret_file).read_text(encoding="ascii").strip()
        self._stop = asyncio.Event()
        self._failure = ""
        self._last_act: Callable[[], None] | None = None

    async def run(self, listener: socket.socket, store: Future[Daemon], tell: Tell) -> None:
        """Starts everything else, says so, and works until SIGTERM.

        Args:
            listener: the API's.
            store: the control store, which is coming up.

        Raises:
            HeadError: a part cannot start, or a daemon ends again and again.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        daemons: list[Daemon] = []
        control: ControlClient | None = None
        scaling: Autoscaling | None = None
        try:
            daemons.append(await asyncio.wrap_future(store))
            address = str(daemons[0].ready["address"])
            agent = asyncio.create_task(asyncio.to_thread(self._start_agent, address))
            try:
                control = ControlClient.over_tcp(
                    address,
                    self._secret.encode(),
                    reconnect_timeout_s=_CONTROL_PATIENCE_S,
                    on_lost=self._lost,
                )
                if self._config.spec is not None:
                    scaling = Autoscaling(
                        self._config, control, address, self._secret_file, self._session_dir
                    )
                    scaling.look_ahead()  # while the agent comes up
                await control.start()
            finally:
                daemons.append(await agent)
            await self._serve(control, scaling, address, daemons, listener, tell)
            if self._failure:
                raise HeadError(self._failure)
        except (CallError, StorageError) as error:
            raise HeadError(f"the control store: {error}") from error
        except DaemonError as error:
            raise HeadError(str(error)) from error
        except ExceptionGroup as errors:  # it never came to its work; whoever starts it hears why
            log.exception("the head cannot work")
            raise HeadError("; ".join(map(str, errors.exceptions))) from errors
        finally:
            try:
                listener.close()
                if control is not None:
                    await control.close()
                await asyncio.to_thread(_end_daemons, daemons)
            finally:  # whatever happened before: a machine that nobody uses does not run on
                if self._last_act is not None:
                    await asyncio.to_thread(self._last_act)

    async def _serve(
        self,
        control: ControlClient,
        scaling: Autoscaling | None,
        address: str,
        daemons: list[Daemon],
        listener: socket.socket,
        tell: Tell,
    ) -> None:
        """The head's work, from the moment the control store answers until SIGTERM."""
        port = int(address.rpartition(":")[2])
        async with asyncio.TaskGroup() as group:
            tasks: list[asyncio.Task[None]] = []

            def spawn(work: Coroutine[Any, Any, None], name: str) -> None:
                tasks.append(group.create_task(self._or_stop(work, name), name=name))

            environment = {**os.environ, "CLUSTERCTL_ADDRESS": address}
            jobs = JobSupervisor(
                control,
                self._session_dir,
                environment,
                lambda work: group.create_task(_logged(work)),
                self._config.spec.max_concurrent_jobs if self._config.spec is not None else None,
            )
            await jobs.recover()
            if scaling is not None and self._config.spec is not None:
                spawn(scaling.run(), "autoscaler")
                scaler = tasks[-1]
                mounts = "watch over the mounts"
                spawn(keep_going(mounts, scaling.files.watch), mounts)
                end = partial(self._end_cluster, scaling, scaler, jobs)
                scaling.autostop = Autostop(
                    control,
                    jobs.list,
                    scaling.report,
                    end,
                    self._config.spec.autostop,
                    on_set=lambda policy: self._keep(autostop=policy, autostop_is_set=True),
                )
                if self._config.autostop_is_set:
                    scaling.autostop.set(self._config.autostop)
                scaling.on_spec = lambda spec: self._respecified(spec, jobs)
                spawn(keep_going("autostop", scaling.autostop.run), "autostop")
                requests = "requests of nodes to end the cluster"
                spawn(keep_going(requests, partial(_heed, control, scaling.autostop)), requests)
            serving = ServeGateway(environment, os.path.join(self._session_dir, "logs"))
            api = Api(
                control,
                jobs,
                scaling,
                self._config.cluster_name,
                scaling.autostop if scaling else None,
                serving,
            )
            server = _Server(
                uvicorn.Config(
                    api.application(self._secret),
                    log_config=None,
                    access_log=False,
                    date_header=False,  # it would be that of the start
                    lifespan="off",
                    timeout_graceful_shutdown=1,
                )
            )
            spawn(server.serve(sockets=[listener]), "API")
            restarts: tuple[Callable[[], Daemon], ...] = (
                lambda: control_store(self._config, self._secret_file, self._session_dir, port),
                lambda: self._start_agent(address),
            )
            for index, name in enumerate(("control store", "node agent")):
                spawn(
                    keep_alive(name, daemons[index], restarts[index], _replacing(daemons, index)),
                    f"supervision of the {name}",
                )
            api.remote_drivers = self._take_remote_drivers(address, spawn)
            host, api_port = listener.getsockname()[:2]
            api_url = f"http://{host}:{api_port}"
            await control.call(KvPut(head_api.NAMESPACE, head_api.KEY, api_url.encode()))
            tell(
                {
                    "control_address": address,
                    "api_url": api_url,
                    "node_id": daemons[1].ready["node_id"],
                    "client_address": api.remote_drivers.address,
                }
            )
            if self._config.restarts:
                command = keeper_command(self._session_dir, self._config_file, self._secret_file)
                spawn(
                    keep_going("watch over the keeper", partial(keep_keeper, self._session_dir, command)),
                    "keeper",
                )
            await self._stop.wait()  # a head works until it is told to end
            log.info("ending")
            await serving.close()
            await jobs.close()
            for task in tasks:
                task.cancel()

    def _take_remote_drivers(
        self, address: str, spawn: Callable[[Coroutine[Any, Any, None], str], None]
    ) -> RemoteDrivers:
        """Has the server for remote drivers started and kept."""
        config = self._config
        drivers = RemoteDrivers(config.client_host, config.client_port)
        if not drivers.address:
            log.info("gRPC is not installed here: there will be no remote drivers (ray://)")
            return drivers

        def start() -> Daemon:
            return start_remote_drivers(
                address, self._session_dir, self._secret_file, config.client_host, drivers.port
            )

        spawn(drivers.keep(start), "server for remote drivers")
        return drivers

    async def _or_stop(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """A part of the head; when it fails for good, the head ends, in order."""
        try:
            await work
        except GaveUp as error:
            log.error("%s", error)
            self._failure = str(error)
            self._stop.set()
        except (
            Exception
        ) as error:  # to let it through would break off what ends the head, its last act included
            log.exception("the %s failed", name)
            self._failure = f"the {name} failed: {error or type(error).__name__}"
            self._stop.set()
        else:
            log.info("the %s has ended", name)

    async def _end_cluster(
        self,
        scaling: Autoscaling,
        scaling_task: asyncio.Task[None],
        jobs: JobSupervisor,
        down: bool,
        now: bool,
    ) -> bool:
        """Ends the workers, and leaves the end of this machine for last. False when a job has come meanwhile."""
        if not jobs.close_if_unused() and not now:
            return False
        scaling_task.cancel()  # it would replace them
        await asyncio.wait([scaling_task])
        known = {instance.machine_id for instance in scaling.report().instances if instance.machine_id}
        await asyncio.to_thread(ending.end_workers, scaling.provider, known)
        self._last_act = partial(ending.end_own, scaling.provider, down)
        await asyncio.to_thread(forget, self._session_dir)  # nothing restarts this head
        self._stop.set()
        return True

    def _respecified(self, spec: ClusterSpec, jobs: JobSupervisor) -> None:
        self._keep(spec=spec)
        jobs.set_limit(spec.max_concurrent_jobs)

    def _keep(self, **changes: Any) -> None:
        """Writes down what a restarted head goes on with."""
        self._config = msgspec.structs.replace(self._config, **changes)
        if self._config_file:
            before = msgspec.structs.replace(
                HeadConfig.read(self._config_file), **changes
            )  # its ports are the spec's
            files.replace(self._config_file, before.to_json())

    def _lost(self, reason: str) -> None:
        self._failure = f"the control store is lost: {reason}"
        self._stop.set()

    def _start_agent(self, address: str) -> Daemon:
        amounts = dict(self._config.resources)
        store = amounts.pop("object_store_memory", None)
        return start_node(
            address,
            self._session_dir,
            self._secret_file,
            self._config.host,
            resources=amounts,
            labels=self._config.labels,
            object_store_memory=None if store is None else int(store),
            head=True,
            instance_id=self._config.instance_id,
            node_name=self._config.node_name,
            node_type=self._config.node_type,
            sockets_dir=sockets_dir(),
            zygote_delay_s=zygote_delay_s(),
        )


class Autoscaling:
    """The autoscaler with its provider; takes new specs while it runs.

    Attributes:
        autostop: told of new specs as well.
        on_spec: called with each new spec.
        steps: instance id -> the step of its setup that runs.
    """

    def __init__(
        self, config: HeadConfig, control: ControlClient, address: str, secret_file: str, session_dir: str
    ) -> None:
        assert config.spec is not None
        self._cluster_id = config.cluster_id
        self._provider_settings = config.provider_settings
        self._control = control
        self._address = address
        self._secret_file = secret_file
        self._log_dir = os.path.join(session_dir, "logs")
        self._digests = os.path.join(session_dir, "digests.json")
        self.autostop: Autostop | None = None
        self.on_spec: Callable[[ClusterSpec], None] = lambda spec: None
        self.steps: dict[str, str] = {}
        self._settings = self._configure(config.spec)
        self.files = WorkerFiles(control, self)
        self._autoscaler = Autoscaler(*self._settings, control)

    async def reconfigure(self, spec: ClusterSpec) -> None:
        """Goes on with another spec.

        Raises:
            ValueError: the autoscaler cannot work with it.
        """
        self._settings = self._configure(spec)
        self._autoscaler.configure(*self._settings)
        self.on_spec(spec)
        if self.autostop is not None:
            self.autostop.configure(spec.autostop)

    def _set_step(self, instance_id: str, step: str) -> None:
        if step:
            self.steps[instance_id] = step
        else:
            self.steps.pop(instance_id, None)

    @property
    def provider(self) -> OperatorProvider:
        return self._settings[1]

    @property
    def setup(self) -> WorkerSetup:
        return self._settings[2]

    async def refresh(self) -> dict[str, str]:
        """See `WorkerFiles.refresh`."""
        return await self.files.refresh()

    def report(self) -> Report:
        """The autoscaler's."""
        return self._autoscaler.report()

    def look_ahead(self) -> None:
        """See `Autoscaler.look_ahead`."""
        self._autoscaler.look_ahead()

    async def run(self) -> None:
        """Runs the autoscaler until cancelled; starts it again when it fails, for all it needs is in the
        listing and in the control store."""
        while True:
            try:
                await self._autoscaler.run()
            except Exception:
                log.exception("the autoscaler failed; starting it again")
            await asyncio.sleep(_AGAIN_S)
            self._autoscaler = Autoscaler(*self._settings, self._control)

    def _configure(self, spec: ClusterSpec) -> tuple[AutoscalerConfig, OperatorProvider, WorkerSetup]:
        provider = registry.make(spec, self._cluster_id, self._provider_settings, Seat.HEAD)
        config = node_types.autoscaler_config(
            spec, self._cluster_id, provider.default_resources(), self._log_dir
        )
        setup = WorkerSetup(
            spec,
            provider,
            config.node_types,
            self._address,
            self._secret_file,
            self._log_dir,
            self._digests,
            self._set_step,
        )
        return config, provider, setup


class _Server(uvicorn.Server):
    """uvicorn that leaves signals to the head, and does not look ten times a second whether it shall end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._end = asyncio.Event()

    def end(self) -> None:
        """Lets `serve` return, when the requests under way are answered."""
        self._end.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)  # sets the headers of all answers
        await self._end.wait()  # a head runs until it is told to end

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _heed(control: ControlClient, autostop: Autostop) -> None:
    """Ends the cluster when a command on one of its nodes asks for it."""
    while True:
        with contextlib.suppress(CallError):  # the control store is restarting; the request stays in it
            down = await end_request.taken(control)
            if down is not None:
                log.info("a node asks to %s the cluster", "end" if down else "stop")
                autostop.end_now(down)
        await asyncio.sleep(_REQUESTS_S)


def _replacing(daemons: list[Daemon], index: int) -> Callable[[Daemon], None]:
    def replace(daemon: Daemon) -> None:
        daemons[index] = daemon

    return replace


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    """A job's supervision: its failure, whatever it is, is this job's alone."""
    try:
        await work
    except Exception:
        log.exception("a job's supervision failed")


def _end_daemons(daemons: list[Daemon]) -> None:
    for daemon in reversed(daemons):
        daemon.stop(_END_S)
