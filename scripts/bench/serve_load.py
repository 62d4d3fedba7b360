"""Starts the load generator of serve.py, and asks single questions over HTTP."""

from __future__ import annotations

import contextlib
import json
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from comparison import Measuring
from data_measuring import require
from serve_client import ANSWER_S, HOST, dial, parse

_CLIENT = str(Path(__file__).with_name("serve_client.py"))
START_S = 60.0
"""How long an application may take until it answers."""


def text(*requests: bytes) -> list[str]:
    """Requests as a job has them."""
    return [each.decode("latin-1") for each in requests]


class Load:
    """A running load generator, ended on exit.

    Args:
        job: see serve_client.py.
    """

    def __init__(self, **job: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", _CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._send(job)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def result(self, stop: bool = False) -> dict[str, Any]:
        """What it saw; the load is ended before if `stop`, else it ends by itself."""
        if stop:
            self._send("stop")
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        require(line, "the load generator failed")
        found: dict[str, Any] = json.loads(line)
        return found

    def _send(self, what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        self._process.stdin.flush()


def load(m: Measuring, port: int, **job: Any) -> dict[str, float]:
    """The medians of the rounds of a load. A failed request is an error."""
    rounds = []
    for _ in range(m.rounds):
        with Load(**{"port": port, "seconds": m.round_s, **job}) as running:
            rounds.append(running.result())
    kinds = [each["kinds"] for each in rounds if each["failed"]]
    require(not kinds, f"failed requests: {kinds}")
    require(all(each["count"] for each in rounds), "a round has no answer")
    names = ("count", "seconds", "rate", "p50_ms", "p99_ms", "first_ms")
    return {
        name: statistics.median(each[name] for each in rounds)
        for name in names
        if all(each[name] is not None for each in rounds)
    }


def fetch(port: int, request: bytes, timeout_s: float = 30.0) -> tuple[int, bytes]:
    """Status and body of one request, on a connection of its own."""
    with dial(port, timeout_s) as connection:
        connection.sendall(request)
        data = bytearray()
        while (answer := parse(data)) is None:
            part = connection.recv(1 << 20)
            if not part:
                raise ConnectionError("closed before the answer")
            data += part
    return answer[0], answer[1]


def expect(port: int, request: bytes, body: bytes) -> None:
    """Raises if the answer is another one."""
    found = fetch(port, request)
    require(found == (200, body), f"{found[0]} {found[1][:80]!r} in place of {body[:80]!r}")


def wait_for(port: int, request: bytes, body: bytes, timeout_s: float = START_S) -> None:
    """Asks until the answer is right."""
    end, found = time.monotonic() + timeout_s, "none"
    while time.monotonic() < end:
        try:
            status, got = fetch(port, request, ANSWER_S)
            if (status, got) == (200, body):
                return
            found = f"{status} {got[:80]!r}"
        except (OSError, ValueError) as error:
            found = repr(error)
        time.sleep(0.005)
    raise TimeoutError(f"no right answer in {timeout_s:g} s; the last: {found}")


def free_port() -> int:
    """One that is free now, as is the next one."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind((HOST, 0))
            port: int = first.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                second.bind((HOST, port + 1))
                return port
