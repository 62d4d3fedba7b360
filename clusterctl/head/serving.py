"""Passes requests of Ray Serve's REST API on to a process that is a program of the cluster, which the head is not. The
process starts with the first request, and ends after some time without any."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

log = logging.getLogger(__name__)
MODULE = "runtime.serve._operations.gateway"
IDLE_S = 60.0
ANSWER_S = 85.0
"""A request that takes longer is answered with 504; the process goes on with it."""
END_S = 5.0
_LINE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer."""

    status: int
    content_type: str
    text: str


class ServeGateway:
    """See the module.

    Args:
        environment: of the process; the cluster's address is in it.
        folder: for the log of the process.
    """

    def __init__(self, environment: Mapping[str, str], folder: str) -> None:
        self._environment = dict(environment)
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._starting = asyncio.Lock()
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._sent: dict[int, asyncio.subprocess.Process] = {}  # which process has each request

    async def ask(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Reply:
        """The answer to a request; 503 if the process ends before it, 504 if it takes too long."""
        number = next(self._numbers)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        request = {
            "id": number,
            "method": method,
            "path": path,
            "query": dict(query),
            "body": body.decode(errors="replace"),
        }
        try:
            async with asyncio.timeout(ANSWER_S):
                process = self._sent[number] = await self._running()
                assert process.stdin is not None
                process.stdin.write(json.dumps(request).encode() + b"\n")
                await process.stdin.drain()
                return await answer
        except TimeoutError:
            return _failure(
                504, f"Serving did not answer within {ANSWER_S:g} s: {method} {path} may still be done."
            )
        except OSError as error:
            return _failure(
                503, f"The process that answers for Serve has ended: {error}; see {self.log_file}."
            )
        finally:
            self._waiting.pop(number, None)
            self._sent.pop(number, None)
            self._end_later()

    @property
    def log_file(self) -> Path:
        """Of the process."""
        return Path(self._folder, "serve_gateway.log")

    async def close(self) -> None:
        """Ends the process."""
        if self._idle is not None:
            self._idle.cancel()
        process, reader = self._process, self._reader
        self._process = self._reader = None
        if process is None or reader is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(END_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        await reader

    async def _running(self) -> asyncio.subprocess.Process:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        async with self._starting:  # one at a time
            process = self._process
            if process is not None and process.returncode is None:
                return process
            output = await asyncio.to_thread(self._open_log)
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    MODULE,
                    env=self._environment,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=output,
                    limit=_LINE_BYTES,
                    start_new_session=True,
                )
            finally:
                output.close()
            log.info("the process that answers for Serve has the id %d", process.pid)
            self._process = process
            self._reader = asyncio.create_task(self._read(process), name="answers of Serve")
            return process

    def _open_log(self) -> BinaryIO:
        os.makedirs(self._folder, exist_ok=True)
        return open(self.log_file, "ab")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Hands answers out until the process ends."""
        assert process.stdout is not None
        while line := await process.stdout.readline():
            said: dict[str, Any] = json.loads(line)
            waiting = self._waiting.get(said["id"])
            if waiting is not None and not waiting.done():
                waiting.set_result(Reply(said["status"], said["content_type"], said["text"]))
        for number, sent in self._sent.items():
            # A request that came meanwhile goes to the next process.
            if sent is process and not self._waiting[number].done():
                self._waiting[number].set_result(
                    _failure(503, f"The process that answers for Serve has ended; see {self.log_file}.")
                )

    def _end_later(self) -> None:
        if self._waiting or self._process is None:
            return
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end_idle)

    def _end_idle(self) -> None:
        self._idle = None
        process = self._process
        if process is not None and not self._waiting and process.stdin is not None:
            self._process = None
            process.stdin.close()  # it ends by itself


def _failure(status: int, message: str) -> Reply:
    return Reply(status, "application/json", json.dumps({"error": message}))
