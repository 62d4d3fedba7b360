"""The gRPC server of an ingress process."""

from __future__ import annotations

import asyncio
import logging
import os
import pathlib
from typing import TYPE_CHECKING, Any

from .measures import Measures
from .options import GrpcOptions
from .routes import RouteTable
from .upstream import QueueOf

if TYPE_CHECKING:
    from .grpc_app import LoadFailure

logger = logging.getLogger(__name__)

_OPTIONS = (
    ("grpc.max_send_message_length", (1 << 31) - 1),
    ("grpc.max_receive_message_length", (1 << 31) - 1),
    ("grpc.so_reuseport", 1),
)


class GrpcServer:
    """Belongs to the event loop that it is started on.

    Raises:
        ImportError: grpcio is not installed, or one of the servicer functions cannot be imported.
        ValueError: one of them is no function.
    """

    def __init__(
        self,
        options: GrpcOptions,
        table: RouteTable,
        queue_of: QueueOf,
        load_failure: LoadFailure,
        measures: Measures | None = None,
    ) -> None:
        # Before gRPC is loaded: its own handlers of fork() crash children of a process that uses grpc.aio.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        from .grpc_app import GrpcIngress, load_services

        self._options = options
        self._services = load_services(options.grpc_servicer_functions)
        self._app = GrpcIngress(
            self._services, table, queue_of, load_failure, options.request_timeout_s, measures
        )
        self._server: Any = None

    async def start(self, host: str) -> int:
        """Listens.

        Returns:
            The port.

        Raises:
            RuntimeError: another program has the port, or the files for TLS cannot be used.
            OSError: a file for TLS cannot be read.
        """
        import grpc.aio

        credentials = self._credentials()

        server = self._server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((self._app,))
        if self._options.enable_reflection:
            self._reflect(server)
        address = f"[{host}]" if ":" in host else host
        try:
            place = f"{address}:{self._options.port}"
            if credentials is None:
                port = int(server.add_insecure_port(place))
            else:
                port = int(server.add_secure_port(place, credentials))
        except RuntimeError as error:
            raise RuntimeError(
                f"The gRPC server cannot listen on {address}:{self._options.port}: {error}. Stop the program that has "
                "the port, or choose another one: serve.start(grpc_options={'port': ...})."
            ) from error
        await server.start()
        return port

    async def drain(self, timeout_s: float) -> int:
        """Accepts nothing more and lets running requests end for at most `timeout_s`; returns how many were cut off."""
        if self._server is None:
            return 0
        self._app.draining = True
        left = 0

        async def look() -> None:
            nonlocal left
            await asyncio.sleep(timeout_s)
            left = self._app.ongoing

        looking = asyncio.create_task(look())
        try:
            await self._server.stop(timeout_s)
        finally:
            looking.cancel()
        return left

    async def close(self) -> None:
        """Ends it at once, also one that did not start."""
        if self._server is not None:
            await self._server.stop(None)

    def _credentials(self) -> Any:
        options = self._options
        if not options.ssl_keyfile or not options.ssl_certfile:
            return None
        import grpc

        pair = [pathlib.Path(file).read_bytes() for file in (options.ssl_keyfile, options.ssl_certfile)]
        trusted = pathlib.Path(options.ssl_ca_certs).read_bytes() if options.ssl_ca_certs else None
        return grpc.ssl_server_credentials([tuple(pair)], trusted, trusted is not None)

    def _reflect(self, server: Any) -> None:
        try:
            from grpc_reflection.v1alpha import reflection
        except ImportError:
            logger.debug("grpcio-reflection is not installed: no server reflection.")
            return
        reflection.enable_server_reflection((*self._services.names, reflection.SERVICE_NAME), server)
