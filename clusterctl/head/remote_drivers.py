"""The head's server for remote drivers (`ray://`): which port it has, and that it runs.

It starts when the rest is up, and the head lives on without it: nothing else of the cluster needs it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import socket
import time
from collections.abc import Awaitable, Callable

from runtime._session.daemons import Daemon, DaemonError

from .supervision import ended

log = logging.getLogger(__name__)
USUAL_PORT = 10001
NONE, STARTING, LISTENING, FAILING = "none", "starting", "listening", "failing"
_AGAIN_S = 2.0
_RARELY_S = 60.0
"""How often a server that does not start is tried: first after the one, at last after the other."""
_STEADY_S = 60.0
"""A server that worked for so long has nothing to do with what failed before."""


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
        if free := _free_port(host, port):
            return free
    raise PortInUse(
        f"port {wanted} of {host} is in use by another program: choose another for --ray-client-server-port"
    )


def _free_port(host: str, port: int) -> int:
    """`port` if nobody has it, any if it is 0; 0: there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
            return int(probe.getsockname()[1])
        except OSError:
            return 0


class RemoteDrivers:
    """The server: keeps it alive, and knows what became of it.

    Attributes:
        address: where it listens, or is meant to; "": it cannot.
        state: NONE, STARTING, LISTENING or FAILING.
        problem: why it does not listen.
    """

    def __init__(self, host: str, wanted_port: int) -> None:
        """Raises:
        PortInUse: the port that was asked for is not free.
        """
        self._host = host
        self._may_move = not wanted_port
        self.address = ""
        self.state = NONE
        self.problem = "gRPC is not installed on the head"
        if is_available():
            self.port = choose_port(host, wanted_port)
            self.address = f"{host}:{self.port}"
            self.state, self.problem = STARTING, ""

    @property
    def listens_at(self) -> str:
        """Its address; "" while it does not listen."""
        return self.address if self.state == LISTENING else ""

    def report(self) -> dict[str, str]:
        """For the API."""
        return {"address": self.address, "state": self.state, "problem": self.problem}

    async def keep(
        self,
        start: Callable[[], Daemon],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keeps the server alive until cancelled. If it does not start, or does not stay, the attempts become rarer."""
        daemon: Daemon | None = None
        pause_s = _AGAIN_S
        try:
            while True:
                starting = asyncio.create_task(asyncio.to_thread(start))
                try:
                    daemon = await asyncio.shield(starting)
                    self.state, self.problem = LISTENING, ""
                    began = clock()
                    await ended(daemon)
                    status = daemon.process.wait()
                    self._failed(f"it ended with status {status}; see {daemon.log_path}")
                    if clock() - began >= _STEADY_S:
                        pause_s = _AGAIN_S
                except asyncio.CancelledError:
                    if daemon is None or daemon.process.poll() is not None:
                        daemon = await starting if not starting.done() or not starting.exception() else None
                    raise
                except (DaemonError, OSError) as error:
                    if self._moved():
                        continue
                    self._failed(f"it does not start: {_last_line(error)}")
                await sleep(pause_s)
                pause_s = min(2 * pause_s, _RARELY_S)
        finally:
            if daemon is not None:
                await asyncio.to_thread(daemon.stop)

    def _moved(self) -> bool:
        """Chooses another port if another program has taken ours before we listened there, and nobody asked for it."""
        if not self._may_move or _free_port(self._host, self.port):
            return False
        self.port = choose_port(self._host, 0)
        self.address = f"{self._host}:{self.port}"
        return True

    def _failed(self, problem: str) -> None:
        log.error("the server for remote drivers: %s", problem)
        self.state, self.problem = FAILING, problem


def _last_line(error: Exception) -> str:
    """Of an error that ends with the daemon's log."""
    return str(error).strip().rpartition("\n")[2].strip()
