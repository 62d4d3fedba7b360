"""The workloads of serve.py over HTTP: of whatever serves the applications of serve_work.py."""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import serve_work as work
from comparison import Measuring
from data_input import MIB
from data_measuring import Timing, require
from figures import progress
from processes import counters, used_between
from serve_client import request
from serve_load import Load, expect, fetch, load, text, wait_for
from store_watch import marked, memory_bytes

SETTLE_S = 1.5
"""How long a load runs before and after what happens under it."""
RECOVERY_S = 60.0
LOAD_S = 120.0
"""A load that is ended from outside runs at most so long."""
IDLE_S = 6.0
CONNECTIONS = 32
CLIENTS = 64
"""Of the digits."""
UNDER_LOAD = 8
NOOP = ("no-op, 1 connection: p50", "no-op, 1 connection: p99")
NOOPS = ("no-op, 32 connections", "no-op, 32 connections: p99")
REST = ("idle: CPU", "memory: 1 replica")
ITEM, ITEMS = "FastAPI, 1 connection: p50", "FastAPI, 32 connections"
CHAIN = "a chain of two, 32 connections"
STREAMS = ("32 streams of 200 chunks", "32 streams of 200 chunks: first chunk, p50")
BODIES = ("body of 1 MiB: p50", "body of 10 MiB: p50", "answer of 10 MiB: p50")
BATCHES = ("batches of 32", "batches of 32: share of a plain loop", "batches of 32: p99")
DEPLOY = ("deploy 1 replica", "delete 1 replica")
TWENTY = ("deploy 20 replicas", "delete 20 replicas", "memory: each further replica")
REDEPLOY = (
    "redeploy under load",
    "redeploy under load: failed requests",
    "redeploy under load: until only the new one answers",
    "redeploy under load: longest gap",
)
KILLED = (
    "a killed replica: until another one answers",
    "a killed replica: failed requests",
    "a killed replica: longest gap",
)
SHUTDOWN = "shutdown with 1 application"


class Server(Protocol):
    """What serves the applications.

    Attributes:
        tool: its name among the anchors; "" for an engine.
        port: where it listens.
    """

    tool: str
    port: int

    def app(self, kind: str, *parameters: int) -> AbstractContextManager[None]:
        """Serves an application, which answers on entry; on exit it has ended."""

    def running(self) -> int:
        """How many replicas there are."""

    def redeploy(self, kind: str, *parameters: int) -> None:
        """Replaces the application, and returns when that is done."""

    def process_ids(self) -> set[int]:
        """Of the replicas of "who"."""


class Workloads:
    """Of one server.

    Args:
        timing: of its engine, or of the anchors.
        server: serves.
        folder: for the model of the digits.
        replicas: how many "twenty" are.
    """

    def __init__(self, timing: Timing, server: Server, folder: Path, replicas: int) -> None:
        self.t = timing
        self.m: Measuring = timing.m
        self.server = server
        self._model = folder / "model"
        self._replicas = replicas

    def run(self) -> None:
        self.noop()
        self.items()
        self.t.take(CHAIN, self._chain, self.server.tool)
        self.t.together(list(STREAMS), self._streams, self.server.tool)
        self.t.together(list(BODIES), self._bodies, self.server.tool)
        self.t.together(list(BATCHES), self._batches, self.server.tool)
        self.t.together(list(DEPLOY), self._deploy, self.server.tool)
        self.t.together(list(TWENTY), self._twenty, self.server.tool)
        self.t.together(list(REDEPLOY), self._redeploy, self.server.tool)
        self.t.together(list(KILLED), self._killed, self.server.tool)

    def noop(self) -> None:
        """And what one replica needs at rest."""

        def part() -> None:
            with self.server.app("noop"):
                self._expect(work.NOOP, b"ok")
                job = {"requests": text(work.NOOP), "expected": ["ok"]}
                if self.m.wants(*NOOP):
                    self._latency(NOOP, load(self.m, self.server.port, connections=1, **job))
                if self.m.wants(*NOOPS):
                    found = load(self.m, self.server.port, connections=CONNECTIONS, **job)
                    self._note(NOOPS[0], found["rate"])
                    self._note(NOOPS[1], found["p99_ms"])
                if self.m.wants(*REST):
                    self._note(REST[0], idle_percent())
                    self._note(REST[1], memory_bytes() / MIB)

        self.t.together([*NOOP, *NOOPS, *REST], part, self.server.tool)

    def items(self) -> None:
        def part() -> None:
            with self.server.app("items"):
                self._expect(work.ITEM, work.ITEM_ANSWER)
                job = {"requests": text(work.ITEM), "expected": [work.ITEM_ANSWER.decode()]}
                if self.m.wants(ITEM):
                    self._note(ITEM, load(self.m, self.server.port, connections=1, **job)["p50_ms"])
                if self.m.wants(ITEMS):
                    found = load(self.m, self.server.port, connections=CONNECTIONS, **job)
                    self._note(ITEMS, found["rate"])

        self.t.together([ITEM, ITEMS], part, self.server.tool)

    def _chain(self) -> float:
        with self.server.app("front"):
            self._expect(work.DOUBLE, b"10")
            job = {"requests": text(work.DOUBLE), "expected": ["10"]}
            return load(self.m, self.server.port, connections=CONNECTIONS, **job)["rate"]

    def _streams(self) -> None:
        with self.server.app("stream"):
            self._expect(work.NOOP, work.STREAM_TEXT.encode())
            job: dict[str, Any] = {"requests": text(work.NOOP), "expected": [work.STREAM_TEXT]}
            job |= {"connections": CONNECTIONS, "streams": True, "seconds": LOAD_S}
            load(self.m, self.server.port, each=1, **job)
            found = load(self.m, self.server.port, each=3, **job)
            self._note(STREAMS[0], found["count"] * work.CHUNKS / found["seconds"])
            self._note(STREAMS[1], found["first_ms"])

    def _bodies(self) -> None:
        with self.server.app("body"):
            data, port = os.urandom(3_000_000), self.server.port
            self._expect(request("POST", "/?full=1", data), work.digest(data).encode())
            status, big = fetch(port, work.NOOP)
            require((status, len(big)) == (200, work.BIG_BYTES), f"{status} and {len(big)} bytes")
            job: dict[str, Any] = {"connections": 1, "path": "/", "least": 5}
            for name, size in ((BODIES[0], MIB), (BODIES[1], 10 * MIB)):
                self._note(name, load(self.m, port, body_bytes=size, **job)["p50_ms"])
            self._note(BODIES[2], load(self.m, port, requests=text(work.NOOP), **job)["p50_ms"])

    def _batches(self) -> None:
        import numpy as np

        rows, answers, model = work.digits(self._model)
        with self.server.app("digits"):
            requests = [request("POST", "/", json.dumps(row).encode()) for row in rows]
            for each, answer in list(zip(requests, answers, strict=True))[:3]:
                self._expect(each, answer.encode())
            block = np.array(rows[: work.BATCH])
            plain = self.m.rate_of(lambda: model.predict(block), work.BATCH)
            job: dict[str, Any] = {"requests": text(*requests), "expected": answers, "warm_up_s": 1}
            found = load(self.m, self.server.port, connections=CLIENTS, **job)
        self._note(BATCHES[0], found["rate"])
        self._note(BATCHES[1], found["rate"] / plain)
        self._note(BATCHES[2], found["p99_ms"])

    def _deploy(self) -> None:
        deployed, deleted = [], []
        for _ in range(self.m.rounds):
            start = time.perf_counter()
            with self.server.app("noop"):
                wait_for(self.server.port, work.NOOP, b"ok")
                deployed.append(time.perf_counter() - start)
                start = time.perf_counter()
            deleted.append(time.perf_counter() - start)
        self._note(DEPLOY[0], statistics.median(deployed))
        self._note(DEPLOY[1], statistics.median(deleted))

    def _twenty(self) -> None:
        with self.server.app("who", 1, 1):
            one = memory_bytes()
        start = time.perf_counter()
        with self.server.app("who", self._replicas, 1):
            deploy_s = time.perf_counter() - start
            running = self.server.running()
            require(running == self._replicas, f"{running} replicas run")
            with self._load(2 * self._replicas, seconds=SETTLE_S) as client:
                seen = client.result()["seen"]
            require(len(seen) > self._replicas / 2, f"only {len(seen)} replicas have answered")
            each = (memory_bytes() - one) / (self._replicas - 1)
            start = time.perf_counter()
        self._note(TWENTY[0], deploy_s)
        self._note(TWENTY[1], time.perf_counter() - start)
        self._note(TWENTY[2], each / MIB)

    def _redeploy(self) -> None:
        with self.server.app("who", 2, 1), self._load(UNDER_LOAD) as client:
            time.sleep(SETTLE_S)
            start = time.monotonic()
            self.server.redeploy("who", 2, 2)
            redeploy_s = time.monotonic() - start
            time.sleep(SETTLE_S)
            found = client.result(stop=True)
        seen = found["seen"]
        old = [last for name, (_, last, _) in seen.items() if name.startswith("v1 ")]
        require(old and any(name.startswith("v2 ") for name in seen), f"these have answered: {list(seen)}")
        self._failures(found)
        self._note(REDEPLOY[0], redeploy_s)
        self._note(REDEPLOY[1], found["failed"])
        self._note(REDEPLOY[2], max(old) - start)
        self._note(REDEPLOY[3], found["gap_ms"])

    def _killed(self) -> None:
        with self.server.app("who", 2, 1), self._load(UNDER_LOAD) as client:
            time.sleep(SETTLE_S)
            before = self.server.process_ids()
            require(len(before) == 2, f"replicas run as {before}")
            victim = int(fetch(self.server.port, work.NOOP)[1].split()[1])
            start = time.monotonic()
            os.kill(victim, signal.SIGKILL)
            while not self.server.process_ids() - before:
                require(time.monotonic() < start + RECOVERY_S, f"no other replica in {RECOVERY_S:g} s")
                time.sleep(0.02)
            found_s = time.monotonic()
            time.sleep(SETTLE_S)
            found = client.result(stop=True)
        # The load may see it earlier, or, on connections that are kept, never.
        firsts = [
            first for name, (first, _, _) in found["seen"].items() if int(name.split()[1]) not in before
        ]
        self._failures(found)
        self._note(KILLED[0], min([found_s, *firsts]) - start)
        self._note(KILLED[1], found["failed"])
        self._note(KILLED[2], found["gap_ms"])

    def _load(self, connections: int, seconds: float = LOAD_S) -> Load:
        """Of requests for "who"."""
        requests = text(work.NOOP)
        return Load(
            port=self.server.port, connections=connections, requests=requests, distinct=True, seconds=seconds
        )

    def _failures(self, found: dict[str, Any]) -> None:
        if found["failed"]:
            progress(f"serve: {found['failed']} of {found['count']} requests failed: {found['kinds']}")

    def _latency(self, names: tuple[str, str], found: dict[str, float]) -> None:
        self._note(names[0], found["p50_ms"])
        self._note(names[1], found["p99_ms"])

    def _expect(self, question: bytes, answer: bytes) -> None:
        expect(self.server.port, question, answer)

    def _note(self, name: str, value: float) -> None:
        self.m.note(name, value, self.server.tool)


def idle_percent() -> float:
    """CPU time of all marked processes but this one, in percent of a core."""
    time.sleep(SETTLE_S)
    pids = marked() - {os.getpid()}
    before = {pid: counters(pid) for pid in pids}
    time.sleep(IDLE_S)
    return 100 / IDLE_S * sum(used_between(before[pid], counters(pid)).cpu_s for pid in pids)
