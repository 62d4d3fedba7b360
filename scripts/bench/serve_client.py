"""The load generator of serve.py: closed loops over sockets, in a process of its own, by the standard library alone.

Reads a job from standard input, one line of JSON, and prints what it saw as another. A further line on standard input
ends the load. A failed request is any answer but the right one with status 200, a connection that is closed before its
answer, or none within 5 s after the end; nothing is sent twice.

A job is an object of
    port             on this machine
    connections      each sends its next request when it has the answer to the last one
    seconds          of load, after `warm_up_s` that are not counted
    requests         whole requests as text in latin-1, sent by turns; or
    body_bytes       a POST of so many random bytes to `path`; expected: "SIZE CRC32-of-each-4099th-byte"
    expected         the body of the answer to each request; null accepts any
    each             each connection ends after so many requests, without a warm-up; 0 for no end
    least            on one connection: at least so many requests
    distinct         whether different answers are told apart, with their times
    streams          whether the first chunk ("token 0") is timed
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
import zlib
from typing import Any

HOST = "127.0.0.1"
ANSWER_S = 5.0
"""How long answers may take after the end of the load."""
RETRY_S = 0.02
"""Pause before a connection that failed is made anew."""
FIRST_CHUNK = b"token 0\n"
_UNLIMITED = 1 << 60


def request(method: str, path: str, body: bytes = b"", kind: str = "application/json") -> bytes:
    """A whole request of HTTP/1.1."""
    head = f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n"
    if body or method == "POST":
        head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def parse(data: bytes | bytearray) -> tuple[int, bytes, bool] | None:
    """Status, body and whether the connection ends, of a complete answer; None while something is missing."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(data[:end]).lower() + b"\r\n"
    begin, at = end + 4, head.find(b"\r\ncontent-length:")
    if at >= 0:
        size = int(head[at + 17 : head.index(b"\r\n", at + 2)])
        if len(data) < begin + size:
            return None
        body = bytes(data[begin : begin + size])
    elif b"chunked" in head:
        if not data.endswith(b"0\r\n\r\n"):
            return None
        body = _joined(bytes(data[begin:]))
    else:
        raise ValueError(f"an answer without a length: {head[:200]!r}")
    return int(data[9:12]), body, b"\r\nconnection: close" in head


def _joined(rest: bytes) -> bytes:
    """The body of chunks."""
    parts: list[bytes] = []
    at = 0
    while True:
        line = rest.index(b"\r\n", at)
        size = int(rest[at:line], 16)
        if size == 0:
            return b"".join(parts)
        parts.append(rest[line + 2 : line + 2 + size])
        at = line + 4 + size


def dial(port: int, timeout_s: float = ANSWER_S) -> socket.socket:
    """A connection."""
    made = socket.create_connection((HOST, port), timeout=timeout_s)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class Record:
    """What was seen so far.

    Args:
        distinct: whether different answers are told apart.
    """

    def __init__(self, distinct: bool) -> None:
        self._distinct = distinct
        self._times: list[float] = []
        self.firsts: list[float] = []
        self._failed = 0
        self._kinds: dict[str, int] = {}
        self._seen: dict[str, list[float]] = {}  # answer: first time, last time, count
        self._begin = self._last = time.monotonic()
        self._gap_s = 0.0

    def fail(self, kind: str) -> None:
        self._failed += 1
        self._kinds[kind] = self._kinds.get(kind, 0) + 1

    def answer(self, start: float, now: float, status: int, body: bytes, expected: bytes | None) -> None:
        if status != 200:
            self.fail(f"status {status}: {body[:80].decode(errors='replace')}")
            return
        if expected is not None and body != expected:
            self.fail("wrong answer")
            return
        self._times.append(now - start)
        self._gap_s = max(self._gap_s, now - self._last)
        self._last = now
        if self._distinct:
            of = self._seen.setdefault(body.decode(), [now, now, 0])
            of[1] = now
            of[2] += 1

    def result(self, end: float) -> dict[str, Any]:
        """Rates are per second until `end`; times in ms; `seen` has monotonic times in s."""
        elapsed = end - self._begin
        return {
            "count": len(self._times),
            "seconds": elapsed,
            "rate": len(self._times) / elapsed,
            "failed": self._failed,
            "kinds": self._kinds,
            "p50_ms": _quantile_ms(self._times, 0.5),
            "p99_ms": _quantile_ms(self._times, 0.99),
            "first_ms": _quantile_ms(self.firsts, 0.5),
            "gap_ms": 1000 * max(self._gap_s, end - self._last),
            "seen": self._seen,
        }


def _quantile_ms(values: list[float], share: float) -> float | None:
    values = sorted(values)
    return 1000 * values[min(len(values) - 1, int(share * len(values)))] if values else None


def one(job: dict[str, Any], requests: list[bytes], expected: list[bytes | None]) -> dict[str, Any]:
    """The load of a single connection, with blocking calls."""
    connection, distinct = dial(job["port"]), bool(job.get("distinct"))
    record, count, warm = Record(distinct), 0, True
    timed = time.monotonic() + job.get("warm_up_s", 0.3)
    end = timed + job["seconds"]
    while (start := time.monotonic()) < end or count < job.get("least", 0):
        if warm and start >= timed:
            warm, record, count = False, Record(distinct), 0
        which = count % len(requests)
        count += 1
        start = time.monotonic()
        connection.sendall(requests[which])
        data = bytearray()
        while (answer := parse(data)) is None:
            part = connection.recv(1 << 20)
            if not part:
                raise ConnectionError("closed before the answer")
            data += part
        status, body, ends = answer
        record.answer(start, time.monotonic(), status, body, expected[which])
        if ends:
            connection = dial(job["port"])
    return record.result(time.monotonic())


class Connection:
    """One of many: its socket, what has come of the answer, and which request it waits for."""

    __slots__ = ("data", "first", "left", "socket", "start", "which")

    def __init__(self, left: int) -> None:
        self.socket: socket.socket | None = None
        self.data: bytearray | None = None
        self.left = left
        self.first = False
        self.which = 0
        self.start = 0.0


class Many:
    """The load of many connections in one thread, until its time is over, each has sent `each`, or a line comes."""

    def __init__(self, job: dict[str, Any], requests: list[bytes], expected: list[bytes | None]) -> None:
        self._job = job
        self._requests = requests
        self._expected = expected
        self._poll = select.epoll()
        self._open: dict[int, Connection] = {}
        self._again: list[tuple[float, Connection]] = []
        self._record = Record(bool(job.get("distinct")))
        self._sent = self._done = 0
        self._stopped: float | None = None

    def run(self) -> dict[str, Any]:
        job, total = self._job, self._job["connections"]
        each = job.get("each", 0)
        timed = 0.0 if each else time.monotonic() + job.get("warm_up_s", 0.3)
        end = (timed or time.monotonic()) + job["seconds"]
        stdin = sys.stdin.fileno()
        self._poll.register(stdin, select.EPOLLIN)
        for _ in range(total):
            self._connect(Connection(each or _UNLIMITED))
        while self._done < total:
            now = time.monotonic()
            if timed and now >= timed:
                timed, self._record = 0.0, Record(bool(job.get("distinct")))
            if self._stopped is None and now >= end:
                self._stopped = now
            if self._stopped is not None and now > self._stopped + ANSWER_S:
                for _ in range(total - self._done):
                    self._record.fail(f"no answer in {ANSWER_S:g} s")
                break
            while self._again and self._again[0][0] <= now:
                self._reconnect(self._again.pop(0)[1])
            for fd, _ in self._poll.poll(RETRY_S if self._again or self._stopped is not None else 0.2):
                if fd == stdin:
                    self._poll.unregister(stdin)
                    self._stopped = self._stopped or time.monotonic()
                elif (connection := self._open.get(fd)) is not None:
                    self._receive(connection)
        return self._record.result(self._stopped or time.monotonic())

    def _connect(self, connection: Connection) -> None:
        try:
            made = dial(self._job["port"])
        except OSError as error:
            self._lost(connection, f"connect: {type(error).__name__}")
            return
        made.setblocking(False)
        connection.socket = made
        self._open[made.fileno()] = connection
        self._poll.register(made, select.EPOLLIN)
        self._send(connection)

    def _reconnect(self, connection: Connection) -> None:
        if self._stopped is not None or connection.left <= 0:
            self._done += 1
        else:
            self._connect(connection)

    def _send(self, connection: Connection) -> None:
        connection.which = self._sent % len(self._requests)
        self._sent += 1
        connection.data, connection.first = None, False
        connection.left -= 1
        connection.start = time.monotonic()
        assert connection.socket is not None
        try:
            connection.socket.send(self._requests[connection.which])
        except OSError as error:
            self._lost(connection, type(error).__name__)

    def _lost(self, connection: Connection, why: str) -> None:
        """Connects anew, after a failure later."""
        if why:
            self._record.fail(why)
        self._close(connection)
        self._again.append((time.monotonic() + (RETRY_S if why else 0), connection))

    def _close(self, connection: Connection) -> None:
        if connection.socket is not None:
            self._open.pop(connection.socket.fileno(), None)
            connection.socket.close()  # and so it is no longer polled
            connection.socket = None

    def _receive(self, connection: Connection) -> None:
        assert connection.socket is not None
        data: bytes | bytearray
        try:
            data = connection.socket.recv(262144)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(connection, type(error).__name__)
            return
        if not data:
            self._lost(connection, "closed before the answer")
            return
        if connection.data is not None:
            connection.data += data
            data = connection.data
        answer, now = parse(data), time.monotonic()
        if self._job.get("streams") and not connection.first and data.find(FIRST_CHUNK) >= 0:
            connection.first = True
            self._record.firsts.append(now - connection.start)
        if answer is None:
            if connection.data is None:
                connection.data = bytearray(data)
            return
        status, body, ends = answer
        self._record.answer(connection.start, now, status, body, self._expected[connection.which])
        if self._stopped is not None or connection.left <= 0:
            self._done += 1
            self._close(connection)
        elif ends:
            self._lost(connection, "")
        else:
            self._send(connection)


def main() -> None:
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as lines:  # reads no more than the line
        job = json.loads(lines.readline())
    expected: list[bytes | None]
    if size := job.get("body_bytes"):
        body = os.urandom(4096) * (size // 4096)
        requests = [request("POST", job["path"], body, "application/octet-stream")]
        expected = [f"{len(body)} {zlib.crc32(body[::4099])}".encode()]
    else:
        requests = [text.encode("latin-1") for text in job["requests"]]
        texts = job.get("expected")
        expected = [text.encode("latin-1") for text in texts] if texts else [None] * len(requests)
    run = one if job["connections"] == 1 else lambda *all_of_it: Many(*all_of_it).run()
    print(json.dumps(run(job, requests, expected)), flush=True)


if __name__ == "__main__":
    main()
