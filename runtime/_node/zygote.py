"""The agent's side of the worker zygote: requests forks and kills, and receives exits."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from typing import Any, Protocol, cast

from runtime._system import files

from .child import end_session, has_ended, send_signal
from .zygote_spawn import SpawnedZygote

log = logging.getLogger(__name__)
_START_TIMEOUT_S = 30.0
_END_S = 2.0
_LAST_WORDS_S = 0.5
"""How long a zygote that has closed its socket may take to end: podman outlives its container by a moment."""


class ZygoteEvents(Protocol):
    """Callbacks for the owner of a zygote, on its loop."""

    def worker_forked(self, token: int, pid: int, out: str, err: str) -> None:
        """The process of a fork request runs."""

    def worker_not_forked(self, token: int, error: str) -> None:
        """There will be no process."""

    def worker_exited(self, pid: int, status: int) -> None:
        """It ended: exit code, or the negated signal number."""

    def zygote_preloaded(self, refusal: str, missing: dict[str, str]) -> None:
        """Its imports are done, and it can be forked unless there is a `refusal`. `missing`: see
        `runtime._process.preloading.Preloaded`."""

    def zygote_lost(self, reason: str) -> None:
        """The zygote ended unasked, and its workers with it."""


class Zygote(asyncio.Protocol):
    """One zygote process."""

    def __init__(self, events: ZygoteEvents, spawned: SpawnedZygote) -> None:
        self._events = events
        self._log_path = spawned.log_path
        self._process = spawned.process
        self._socket = spawned.connection
        self._transport: asyncio.WriteTransport | None = None
        self._rest = b""
        self._stopping = False
        self._ready: asyncio.Future[None] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def came_up(self) -> bool:
        """Whether it was ready at some time."""
        ready = self._ready
        return ready is not None and ready.done() and not ready.cancelled() and ready.exception() is None

    async def start(self) -> None:
        """Begins to listen. It takes requests at once; `wait_ready` says when it has come up."""
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        await loop.create_unix_connection(lambda: self, sock=self._socket)

    async def wait_ready(self) -> None:
        """Raises RuntimeError, with the end of its log, when the zygote could not come up."""
        assert self._ready is not None
        async with asyncio.timeout(_START_TIMEOUT_S):
            await asyncio.shield(self._ready)

    def preload(self, request: dict[str, Any]) -> None:
        """Has it import modules; `zygote_preloaded` follows. Nothing else may be asked until then."""
        self._send({"op": "preload", **request})

    def fork(self, request: dict[str, Any]) -> None:
        """Asks for a worker; see `runtime._process.zygote` for the fields."""
        self._send({"op": "fork", **request})

    def kill(self, pid: int) -> None:
        """Kills a worker at once; does nothing when it has ended. The zygote knows, so no other process is
        hit."""
        self._send({"op": "kill", "pid": pid})

    async def stop(self) -> None:
        """Ends the zygote, all its workers, and what they started: it does so itself, if it can within 2 s."""
        self._stopping = True
        if self._transport is not None:
            self._transport.close()
        else:
            self._socket.close()
        send_signal(self._process, signal.SIGTERM)  # it ends its workers with all that they started
        send_signal(self._process, signal.SIGCONT)
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        has_ended(self._process, _END_S)
        end_session(self._process)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._stopping:
            return
        has_ended(self._process, _LAST_WORDS_S)
        status = end_session(self._process)  # what its workers started is left, if it was killed
        reason = f"the worker zygote ended ({describe_exit(status)}): {_tail(self._log_path)}"
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(RuntimeError(reason))
            self._ready.exception()  # marks it as seen: perhaps nobody waits
        self._events.zygote_lost(reason)

    def _hear(self, fact: dict[str, Any]) -> None:
        if "forked" in fact:
            self._events.worker_forked(fact["forked"], fact["pid"], fact["out"], fact["err"])
        elif "exited" in fact:
            self._events.worker_exited(fact["exited"], fact["status"])
        elif "preloaded" in fact:
            self._events.zygote_preloaded(fact["preloaded"]["refusal"], fact["preloaded"]["missing"])
        elif "failed" in fact:
            self._events.worker_not_forked(fact["failed"], fact["error"])
        elif self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def _send(self, request: dict[str, Any]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(json.dumps(request).encode() + b"\n")


def describe_exit(status: int) -> str:
    """`exit code 3`, or `killed by signal 15 (SIGTERM)`."""
    if status >= 0:
        return f"exit code {status}"
    if status == -signal.SIGKILL:
        return "killed by signal 9 (SIGKILL), which may have been the system's OOM killer, for want of memory"
    try:
        return f"killed by signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"killed by signal {-status}"


def _tail(path: str, limit: int = 2000) -> str:
    try:
        return files.tail(path, limit) or "its log is empty"
    except OSError as error:
        return f"no log: {error}"
