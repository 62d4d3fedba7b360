"""Mutilated requests: the ingress must answer or close, and nothing may be left of them.

`SERVE_FUZZ_REQUESTS=1000000 SERVE_FUZZ_SEED=7` makes the test a long one.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import random
import re
from collections.abc import Callable

import pytest

from runtime.serve._ingress.http_connection import HttpConnection
from tests.runtime.serve._ingress.conftest import Served

Serve = Callable[..., Served]

REQUESTS = int(os.environ.get("SERVE_FUZZ_REQUESTS", "500"))
SEED = int(os.environ.get("SERVE_FUZZ_SEED", "1"))
AT_ONCE = 20

SEEDS = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /sub/inspect?a=%20 HTTP/1.1\r\nHost: x\r\nX-Request-Id: 1\r\nAccept: */*\r\n\r\n",
    b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;a=b\r\nabc\r\n0\r\nT: 1\r\n\r\n",
    b"PUT /deaf HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc",
    b"GET /chunks/3 HTTP/1.1\r\nHost: x\r\n\r\nGET /half HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab",
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\x81\x85\x00\x00\x00\x00hello\x88\x80\x00\x00\x00\x00",
    b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    b"HEAD /-/routes HTTP/1.1\r\nHost: x\r\nx-request-timeout-seconds: nan\r\n\r\n",
]
TOKENS = [
    *(bytes((byte,)) for byte in b"\r\n\x00 :\t\xff%/?#*;="),
    *b"\r\n|\r\n\r\n|%zz|//|HTTP/1.1|HTTP/2.0|PRI * |-1|0\r\n\r\n|ffffffffffffffff\r\n| folded\r\n".split(
        b"|"
    ),
    b"Content-Length: 99999999999999999999\r\n",
    b"Content-Length: 7\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Connection: close\r\n",
    b"Host: \xc3\xa9\r\n",
    b"GET http://a/b HTTP/1.1\r\n",
    b"x-request-timeout-seconds: 0.01\r\n",
    b"x-request-disconnect-disabled: ?1\r\n",
    b"A" * 5000,
    b"A: b\r\n" * 300,
]


def mutilate(rng: random.Random) -> bytes:
    data = bytearray(rng.choice(SEEDS))
    for _ in range(rng.randrange(5)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0:
                data[at:at] = rng.choice(TOKENS)
            case 1:
                del data[at : at + rng.randrange(1, 9)]
            case 2 if at < len(data):
                data[at] = rng.randrange(256)
            case 3:
                data[at:at] = data[rng.randrange(len(data) + 1) :][: rng.randrange(40)]
            case 4:
                data += rng.choice(SEEDS)
            case 5:
                del data[at:]
    return bytes(data)


async def exchange(port: int, data: bytes, rng: random.Random) -> bytes:
    """Sends it in pieces and leaves, at once or after a part of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        cut = rng.randrange(len(data) + 1)
        for piece in (data[:cut], data[cut:]):
            writer.write(piece)
            await asyncio.sleep(0)
        if rng.random() < 0.2:
            writer.write_eof()
        if rng.random() < 0.8:
            async with asyncio.timeout(0.05):
                while part := await reader.read(1 << 16):
                    answer += part
    except (TimeoutError, OSError):
        pass
    finally:
        if rng.random() < 0.5:
            writer.transport.abort()
        else:
            writer.close()
    return answer


def test_mutilated_requests(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    served = serve()
    rng = random.Random(SEED)
    jobs = [mutilate(rng) for _ in range(REQUESTS)]

    async def client(own: list[bytes], seed: int) -> list[tuple[bytes, bytes]]:
        rng = random.Random(seed)
        return [(data, await exchange(served.port, data, rng)) for data in own]

    async def clients() -> list[tuple[bytes, bytes]]:
        parts = await asyncio.gather(*(client(jobs[i::AT_ONCE], i) for i in range(AT_ONCE)))
        return list(itertools.chain(*parts))

    answered = 0
    for data, answer in asyncio.run(clients()):
        if answer:
            answered += 1
            assert re.match(rb"HTTP/1\.1 (100|101|200|400|403|404|405|408|413|426|431|500|503) ", answer), (
                SEED,
                data,
            )
    assert answered > REQUESTS // 4, SEED
    served.until(lambda: served.is_idle() and not served.server._state.connections)
    assert not served.server._state.tasks
    gc.collect()
    assert sum(isinstance(one, HttpConnection) for one in gc.get_objects()) <= 1  # one may wait for its timer
    assert [record for record in caplog.records if record.name == "asyncio"] == []
