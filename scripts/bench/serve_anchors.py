"""serve.py's server that is what a user would take instead: uvicorn with Starlette or FastAPI."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import serve_work as work
from comparison import Measuring
from data_measuring import Timing, require
from serve_client import ANSWER_S, HOST, dial, request
from serve_engine import BATCH, CALLS, CHAINS
from serve_load import START_S, fetch, load, text, wait_for
from serve_server import FOLDER
from serve_workloads import CONNECTIONS, NOOPS, SHUTDOWN

UVICORN, BARE = "uvicorn", "uvicorn, no framework"
_SERVER = str(Path(__file__).with_name("serve_server.py"))
STOP_S = 10.0


class Uvicorn:
    """Each application by processes of its own.

    Args:
        timing: of the anchors.
        port: where it listens; a second application on the next one.
        folder: of the processes, see serve_server.py.
    """

    tool = UVICORN

    def __init__(self, timing: Timing, port: int, folder: Path) -> None:
        self.t = timing
        self.m: Measuring = timing.m
        self.port = port
        self._folder = folder
        self._main: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def app(self, kind: str, *parameters: int) -> Iterator[None]:
        replicas, version = parameters or (1, 1)
        self._version(version)
        for path in self._folder.glob("up-*"):
            path.unlink()
        with contextlib.ExitStack() as stack:
            if kind == "front":
                stack.enter_context(server(self._folder, "back", self.port + 1))
                wait_for(self.port + 1, request("POST", "/back", b"1"), b"2")
                (up,) = self._folder.glob("up-*")
                up.unlink()
            self._main = stack.enter_context(server(self._folder, kind, self.port, replicas))
            self._until(lambda: self._is_up(kind, replicas), f"{kind} is not up")
            yield

    def _is_up(self, kind: str, replicas: int) -> bool:
        assert self._main is not None
        require(self._main.poll() is None, f"uvicorn has ended with status {self._main.returncode}")
        try:
            if kind in ("bare", "items"):  # without a file
                return bool(fetch(self.port, work.NOOP, ANSWER_S))
            if self.running() >= replicas:
                dial(self.port).close()
                return True
        except (OSError, ValueError):
            pass  # not yet
        return False

    def _until(self, condition: Any, what: str) -> None:
        end = time.monotonic() + START_S
        while not condition():
            require(time.monotonic() < end, f"{what} after {START_S:g} s")
            time.sleep(0.005)

    def _version(self, version: int) -> None:
        (self._folder / "version").write_text(str(version))

    def running(self) -> int:
        return len(self.process_ids())

    def process_ids(self) -> set[int]:
        return {int(path.name.partition("-")[2]) for path in self._folder.glob("up-*")}

    def redeploy(self, kind: str, *parameters: int) -> None:
        """All workers anew, by SIGHUP."""
        replicas, version = parameters
        self._version(version)
        before = self.running()
        assert self._main is not None
        self._main.send_signal(signal.SIGHUP)
        self._until(lambda: self.running() >= before + replicas, "the workers are not replaced")

    # ------------------------------------------------------------ workloads

    def run(self) -> None:
        """What is not the same as with an engine."""
        self.t.take(NOOPS[0], self._bare, BARE)
        self.t.together(list(CALLS), self._calls, UVICORN)
        self.t.take(CHAINS[0], self._chain, UVICORN)
        self.t.take(SHUTDOWN, self._shutdown, UVICORN)

    def _bare(self) -> float:
        with self.app("bare"):
            job: dict[str, Any] = {"requests": text(work.NOOP), "expected": ["ok"]}
            return load(self.m, self.port, connections=CONNECTIONS, **job)["rate"]

    def _calls(self) -> None:
        """Of another process: by http.client one by one, by aiohttp in batches."""
        with self.app("back"):
            connection = http.client.HTTPConnection(HOST, self.port)

            def call() -> None:
                connection.request("POST", "/back", "1")
                require(connection.getresponse().read() == b"2", "a wrong answer")

            self.m.note(CALLS[0], self.m.rate_of(call), UVICORN)
            connection.close()
            self.m.note(CALLS[1], asyncio.run(self._batches()), UVICORN)

    async def _batches(self) -> float:
        import aiohttp

        async with aiohttp.ClientSession() as session:

            async def call(number: int) -> int:
                async with session.post(f"http://{HOST}:{self.port}/back", data=str(number)) as answer:
                    return int(await answer.text())

            done, start = 0, time.perf_counter()
            while (elapsed := time.perf_counter() - start) < self.m.round_s * self.m.rounds:
                found = await asyncio.gather(*[call(number) for number in range(BATCH)])
                require(found == list(range(1, BATCH + 1)), "an answer of a batch is wrong")
                done += BATCH
        return done / elapsed

    def _chain(self) -> float:
        with self.app("front"):
            connection = http.client.HTTPConnection(HOST, self.port)

            def call() -> None:
                connection.request("GET", "/?x=1")
                require(connection.getresponse().read() == b"4", "a wrong answer")

            rate = self.m.rate_of(call)
            connection.close()
            return rate

    def _shutdown(self) -> float:
        with self.app("noop"):
            start = time.perf_counter()
        return time.perf_counter() - start


@contextlib.contextmanager
def server(folder: Path, kind: str, port: int, workers: int = 1) -> Iterator[subprocess.Popen[bytes]]:
    """A process of serve_server.py and its workers, ended on exit."""
    process = subprocess.Popen(
        [sys.executable, _SERVER, kind, str(port), str(workers)],
        start_new_session=True,
        env={**os.environ, FOLDER: str(folder)},
    )
    try:
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def generator_limit(m: Measuring, port: int, folder: Path) -> float:
    """Requests a second of the load generator against constant bytes."""
    with server(folder, "fixed", port):
        wait_for(port, work.NOOP, b"ok")
        job: dict[str, Any] = {"requests": text(work.NOOP), "expected": ["ok"]}
        return load(m, port, connections=CONNECTIONS, **job)["rate"]
