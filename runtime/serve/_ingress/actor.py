"""The actor that is the ingress of a node. The controller creates it, with num_cpus=0 and max_restarts=-1."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from runtime import api
from runtime._extension.events import Subscription
from runtime._extension.news import KeyChanged, News
from runtime._system import settings
from runtime.experimental import internal_kv
from runtime.runtime_context import get_runtime_context
from runtime.serve._core.published import NAMESPACE, ROUTES, load_routes
from runtime.serve._event_loops import new_event_loop
from runtime.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .grpc_server import GrpcServer
from .measures import Measures
from .options import GrpcOptions, HttpOptions, grpc_options, http_options
from .routes import RouteTable

if TYPE_CHECKING:
    from .http_server import HttpServer
    from .upstream import QueueOf

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 60.0
CHECK_TIMEOUT_S = 10.0
GRACE_S = 5.0
"""What a call from another thread waits beyond the time that its work has."""

T = TypeVar("T")


class Ingress:
    """Takes requests on a node. With CLUSTERCTL_SERVE_INGRESS_PROCESSES over 1 it starts further ones of its kind,
    which share its ports, do as it does and end with it.

    A restarted one begins again by itself, on the ports that it had. An event loop on a thread of its own does all the
    work; the methods run on threads of the engine.

    Args:
        node_id: of its node, in hex.
        session: of the controller.
    """

    def __init__(self, node_id: str, session: dict[str, Any]) -> None:
        self._node_id = node_id
        self._session = session
        self._table = RouteTable()
        self._http: HttpServer | None = None
        self._grpc: GrpcServer | None = None
        self._helpers: list[Any] = []
        self._started: dict[str, Any] | None = None
        self._routes: Subscription | None = None
        self._loop = new_event_loop()
        threading.Thread(target=self._run, name="serve-ingress", daemon=True).start()
        self._record_key = b"ingress\0" + str(get_runtime_context().get_actor_id()).encode()
        record = internal_kv._internal_kv_get(self._record_key, namespace=NAMESPACE)
        if record is not None:
            self.start(**msgspec.msgpack.decode(record))

    # ------------------------------------------------------------ for the controller

    def start(
        self, http: dict[str, Any], grpc: dict[str, Any], processes: int | None = None
    ) -> dict[str, Any]:
        """Listens and follows the routes. Repeated, it answers what it did the first time.

        Args:
            http, grpc: see `options.HttpOptions` and `options.GrpcOptions`; {} for the defaults.
            processes: how many share the ports; None for as many as the setting says.

        Returns:
            "host" and "port" of HTTP, None if there is none; "grpc_port", None if there is none; "processes".

        Raises:
            ValueError: an option is wrong.
            RuntimeError: a port is taken.
            ImportError: a package, or a servicer function of gRPC, is missing.
        """
        if self._started is not None:
            return self._started
        if processes is None:
            processes = settings.SERVE_INGRESS_PROCESSES.get()
        routes = internal_kv._internal_kv_get(ROUTES, namespace=NAMESPACE)
        if routes is not None:  # a restarted one answers none of the first requests by 404
            self._wait(self._take_routes(routes), START_TIMEOUT_S)
        began = self._wait(self._start(http, grpc), START_TIMEOUT_S)
        self._follow_routes()
        # The ports that were chosen: the other processes, and this one after a restart, take the same.
        http = {**http, "port": began["port"] or 0}
        grpc = {**grpc, "port": began["grpc_port"] or 0}
        record = msgspec.msgpack.encode({"http": http, "grpc": grpc, "processes": processes})
        internal_kv._internal_kv_put(self._record_key, record, namespace=NAMESPACE)
        self._started = {**began, "processes": processes}
        self._start_helpers(http, grpc, processes - 1)
        return self._started

    def check_health(self) -> None:
        """Returns if the event loop turns, here and in the other processes.

        Raises:
            TimeoutError: it does not.
            RayActorError: another process has just died; it comes back.
        """
        self._wait(asyncio.sleep(0), CHECK_TIMEOUT_S)
        if self._helpers:
            api.get([helper.check_health.remote() for helper in self._helpers], timeout=CHECK_TIMEOUT_S)

    def update_routes(self, routes: bytes) -> None:
        """Takes routes at once, here and in the other processes: an application answers when `serve.run` returns."""
        others = [helper.update_routes.remote(routes) for helper in self._helpers]
        self._wait(self._take_routes(routes), CHECK_TIMEOUT_S)
        api.get(others, timeout=CHECK_TIMEOUT_S)

    def drain(self, timeout_s: float) -> int:
        """Accepts nothing more and lets what runs end for at most `timeout_s`; the actor can then be killed.

        Returns:
            How many requests were cut off.
        """
        internal_kv._internal_kv_del(self._record_key, namespace=NAMESPACE)
        helpers = [helper.drain.remote(timeout_s) for helper in self._helpers]
        left = self._wait(self._drain(timeout_s), timeout_s + GRACE_S)
        for helper in helpers:
            left += api.get(helper, timeout=timeout_s + 2 * GRACE_S)
        if self._routes is not None:
            self._routes.close()
        return left

    # ------------------------------------------------------------ on the event loop

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _start(self, http: dict[str, Any], grpc: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self._listen(http_options(http), grpc_options(grpc))
        except BaseException:  # both servers or none: a later attempt needs the ports
            servers, self._http, self._grpc = (self._http, self._grpc), None, None
            for server in servers:
                if server is not None:
                    await server.close()
            raise

    async def _listen(self, web: HttpOptions, rpc: GrpcOptions) -> dict[str, Any]:
        queue_of = _queue_of(self._loop)
        port = grpc_port = None
        if web.host is not None:
            from .http_app import HttpIngress
            from .http_server import HttpServer, bind

            measures = Measures("http", self._node_id)
            app = HttpIngress(self._table, queue_of, web.request_timeout_s, measures)
            self._http = HttpServer(web, app, bind(web.host, web.port))
            await self._http.start()
            port = self._http.port
        if rpc.grpc_servicer_functions:
            from runtime.serve._wire.values import load_failure

            self._grpc = GrpcServer(rpc, self._table, queue_of, load_failure, Measures("grpc", self._node_id))
            grpc_port = await self._grpc.start(web.host or self._session.get("host") or "127.0.0.1")
        return {"host": web.host, "port": port, "grpc_port": grpc_port}

    async def _drain(self, timeout_s: float) -> int:
        servers = [server.drain(timeout_s) for server in (self._http, self._grpc) if server is not None]
        return sum(await asyncio.gather(*servers))

    async def _take_routes(self, routes: bytes) -> None:
        self._table.update(load_routes(routes))

    def _update(self, news: list[News]) -> None:
        for one in news:
            if isinstance(one, KeyChanged) and one.value is not None:
                self._table.update(load_routes(one.value))

    # ------------------------------------------------------------ from other threads

    def _wait(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise TimeoutError(
                f"The event loop of the ingress on node {self._node_id} did not answer within {timeout_s} s."
            ) from None

    def _follow_routes(self) -> None:
        self._routes = Subscription()
        self._routes.watch_key(ROUTES, NAMESPACE)
        self._routes.call(self._hear)

    def _hear(self, news: list[News]) -> None:
        self._loop.call_soon_threadsafe(self._update, news)

    def _start_helpers(self, http: dict[str, Any], grpc: dict[str, Any], count: int) -> None:
        kind = api.remote(Ingress).options(
            num_cpus=0,
            max_restarts=-1,
            max_concurrency=4,
            scheduling_strategy=NodeAffinitySchedulingStrategy(self._node_id, soft=False),
        )
        self._helpers = [kind.remote(self._node_id, self._session) for _ in range(count)]
        api.get([helper.start.remote(http, grpc, 1) for helper in self._helpers], timeout=START_TIMEOUT_S)


def _queue_of(loop: asyncio.AbstractEventLoop) -> QueueOf:
    from runtime.serve._caller import caller

    caller.attach(loop)
    return caller.here().queue
