"""The head's server for remote drivers (`ray://`): which port it has, and that it runs.

It starts when the rest is up, and the head lives on without it: nothing else of the cluster needs it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import socket
from collections.abc import Callable

from runtime._session.daemons import Daemon, DaemonError

from .supervision import ended

log = logging.getLogger(__name__)
USUAL_PORT = 10001
_AGAIN_S = 2.0


class PortInUse(OSError):
    """Another program listens at the port that was asked for."""


def is_available() -> bool:
    """Whether gRPC is installed here."""
    return importlib.util.find_spec("grpc") is not None


def choose_port(host: str, wanted: int) -> int:
    """The port to listen at: `wanted`, or, if that is 0, the usual one, or any when another program has that.

    Raises:
        PortInUse: `wanted` is not free.
    """
    for port in (wanted,) if wanted else (USUAL_PORT, 0):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host.strip("[]"), port))
                return int(probe.getsockname()[1])
            except OSError:
                continue
    raise PortInUse(
        f"port {wanted} of {host} is in use by another program: choose another for --ray-client-server-port"
    )


async def keep(start: Callable[[], Daemon]) -> None:
    """Keeps the server alive until cancelled."""
    daemon: Daemon | None = None
    try:
        while True:
            starting = asyncio.create_task(asyncio.to_thread(start))
            try:
                daemon = await asyncio.shield(starting)
                await ended(daemon)
                log.error("the server for remote drivers ended; starting it again")
            except asyncio.CancelledError:
                if daemon is None or daemon.process.poll() is not None:
                    daemon = await starting if not starting.done() or not starting.exception() else None
                raise
            except (DaemonError, OSError) as error:
                log.error("the server for remote drivers does not start: %s", error)
            await asyncio.sleep(_AGAIN_S)
    finally:
        if daemon is not None:
            await asyncio.to_thread(daemon.stop)
