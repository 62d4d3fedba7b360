"""serve.py's server that is an engine with Ray Serve's API, and the workloads that only such a one has."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import serve_apps
import serve_work as work
from comparison import Measuring
from data_measuring import Timing, require
from serve_client import ANSWER_S, HOST
from serve_load import Load, fetch, text, wait_for
from serve_workloads import LOAD_S, RECOVERY_S, SETTLE_S, SHUTDOWN

APP = "app"
START = ("init to first answer", "start to first answer")
CALLS = ("handle calls, one by one", "handle calls, batches of 100")
CHAINS = ("a chain of two by handle, one by one", "a chain of two by handle, batches of 100")
ITEMS = "stream of a handle"
SCALING = (
    "load step: until 4 replicas answer",
    "load step: failed requests",
    "load ends: until 1 replica is left",
)
ZERO = "from zero replicas: first answer"
BATCH, STREAM_ITEMS = 100, 500
CLIENTS = 16


class Engine:
    """One engine, on one cluster of two CPUs.

    Args:
        timing: of it.
        port: where it is to listen.
        folder: for the model of the digits.
    """

    tool = ""

    def __init__(self, timing: Timing, port: int, folder: Path) -> None:
        self.t = timing
        self.m: Measuring = timing.m
        self.port = port
        self._serve: Any = importlib.import_module(f"{self.m.module}.serve")
        self.m.ray.cloudpickle.register_pickle_by_value(work)
        self.m.ray.cloudpickle.register_pickle_by_value(serve_apps)
        self._apps = serve_apps.apps(self._serve, folder / "model")

    def start(self) -> None:
        """The cluster, Serve, and a first application until it answers."""
        begin = time.perf_counter()
        self.m.init(2)
        start = time.perf_counter()
        self._serve.start(http_options={"host": HOST, "port": self.port})
        self._run("noop")
        wait_for(self.port, work.NOOP, b"ok")
        end = time.perf_counter()
        self._serve.delete(APP)
        self.m.note(START[0], end - begin)
        self.m.note(START[1], end - start)

    def end(self) -> None:
        """Of everything, whatever has happened."""
        with contextlib.suppress(Exception):
            self._serve.shutdown()
        self.m.ray.shutdown()

    def _run(self, kind: str, *parameters: int) -> Any:
        return self._serve.run(self._apps[kind](*parameters), name=APP, route_prefix="/")

    @contextlib.contextmanager
    def app(self, kind: str, *parameters: int) -> Iterator[None]:
        with self._handle(kind, *parameters):
            yield

    @contextlib.contextmanager
    def _handle(self, kind: str, *parameters: int) -> Iterator[Any]:
        try:
            yield self._run(kind, *parameters)
        finally:
            self._serve.delete(APP)

    def running(self) -> int:
        deployments = self._serve.status().applications[APP].deployments.values()
        return sum(each.replica_states.get("RUNNING", 0) for each in deployments)

    def redeploy(self, kind: str, *parameters: int) -> None:
        self._run(kind, *parameters)

    def process_ids(self) -> set[int]:
        """From answers: two replicas' unless one of them does not answer."""
        found: set[int] = set()
        for _ in range(8):
            with contextlib.suppress(OSError, ValueError):
                status, body = fetch(self.port, work.NOOP, ANSWER_S)
                if status == 200:
                    found.add(int(body.split()[1]))
        return found

    # ------------------------------------------------------------ workloads

    def run(self) -> None:
        """What the anchors have nothing like."""
        self.t.together([*CALLS, ITEMS], self._calls)
        self.t.together(list(CHAINS), self._chains)
        self.t.together(list(SCALING), self._scaling)
        self.t.take(ZERO, self._zero)
        self.t.take(SHUTDOWN, self._shutdown)

    def _calls(self) -> None:
        with self._handle("back") as handle:
            require(handle.remote(4).result(timeout_s=30) == 5, "a handle's answer is wrong")
            streams = handle.options(method_name="stream", stream=True)

            def batch() -> None:
                found = [each.result() for each in [handle.remote(number) for number in range(BATCH)]]
                require(found == list(range(1, BATCH + 1)), "an answer of a batch is wrong")

            def stream() -> None:
                found = list(streams.remote(STREAM_ITEMS))
                require(found == list(range(STREAM_ITEMS)), "an item of a stream is wrong")

            self.m.rate(CALLS[0], lambda: require(handle.remote(1).result() == 2, "a wrong answer"))
            self.m.rate(CALLS[1], batch, BATCH)
            self.m.rate(ITEMS, stream, STREAM_ITEMS)

    def _chains(self) -> None:
        with self._handle("front") as handle:
            double = handle.double

            def batch() -> None:
                found = [each.result() for each in [double.remote(number) for number in range(BATCH)]]
                require(found == [2 * number + 2 for number in range(BATCH)], "an answer of a batch is wrong")

            self.m.rate(CHAINS[0], lambda: require(double.remote(1).result() == 4, "a wrong answer"))
            self.m.rate(CHAINS[1], batch, BATCH)

    def _scaling(self) -> None:
        job: dict[str, Any] = {"connections": CLIENTS, "requests": text(work.NOOP), "distinct": True}
        with self.app("steps", 1):
            with Load(port=self.port, seconds=LOAD_S, **job) as client:
                start = time.monotonic()
                while self.running() < 4 and time.monotonic() < start + RECOVERY_S:
                    time.sleep(0.1)
                time.sleep(SETTLE_S)
                found = client.result(stop=True)
            firsts = sorted(first for first, _, _ in found["seen"].values())
            require(len(firsts) >= 4, f"{len(firsts)} replicas after {RECOVERY_S:g} s")
            end = time.monotonic()
            while (left := self.running()) > 1:
                require(
                    time.monotonic() < end + RECOVERY_S, f"{left} replicas {RECOVERY_S:g} s after the load"
                )
                time.sleep(0.05)
        self.m.note(SCALING[0], firsts[3] - start)
        self.m.note(SCALING[1], found["failed"])
        self.m.note(SCALING[2], time.monotonic() - end)

    def _zero(self) -> float:
        with self.app("steps", 0):
            time.sleep(SETTLE_S)
            require(self.running() == 0, f"{self.running()} replicas run before the first request")
            start = time.perf_counter()
            status, body = fetch(self.port, work.NOOP, RECOVERY_S)
            require(status == 200 and body.startswith(b"v1 "), f"{status} {body[:80]!r}")
            return time.perf_counter() - start

    def _shutdown(self) -> float:
        self._run("noop")
        start = time.perf_counter()
        self._serve.shutdown()
        return time.perf_counter() - start
