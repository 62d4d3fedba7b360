"""The process through which the head answers for Serve: a program that stands in for it, over real pipes."""

from __future__ import annotations

import asyncio
import os
import pathlib
from collections.abc import Awaitable, Callable

import pytest

from clusterctl.head import serving
from clusterctl.head.serving import ServeGateway

PROGRAM = """
import json, sys
held = []
for line in sys.stdin:
    request = json.loads(line)
    if request["path"] == "/die":
        sys.exit(1)
    answer = {"id": request["id"], "status": 200, "content_type": "text/plain", "text": request["body"]}
    held.append(answer)
    if request["path"] != "/hold":
        for each in reversed(held):
            print(json.dumps(each), flush=True)
        held.clear()
"""


def run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, test: Callable[[ServeGateway], Awaitable[None]]
) -> None:
    (tmp_path / "stand_in_gateway.py").write_text(PROGRAM)
    monkeypatch.setattr(serving, "MODULE", "stand_in_gateway")

    async def main() -> None:
        gateway = ServeGateway({**os.environ, "PYTHONPATH": str(tmp_path)}, str(tmp_path / "logs"))
        try:
            async with asyncio.timeout(30):
                await test(gateway)
        finally:
            await gateway.close()

    asyncio.run(main())


def test_answers_come_in_any_order(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(gateway: ServeGateway) -> None:
        first = asyncio.create_task(gateway.ask("GET", "/hold", {}, b"first"))
        await asyncio.sleep(0)
        second = await gateway.ask("GET", "/", {}, b"second")
        assert ((await first).text, second.text, second.status) == ("first", "second", 200)

    run(tmp_path, monkeypatch, test)


def test_a_process_that_ends_is_replaced(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(gateway: ServeGateway) -> None:
        reply = await gateway.ask("GET", "/die", {}, b"")
        assert reply.status == 503
        assert "serve_gateway.log" in reply.text
        assert gateway._process is not None
        await gateway._process.wait()
        assert (await gateway.ask("GET", "/", {}, b"again")).text == "again"

    run(tmp_path, monkeypatch, test)


def test_it_ends_when_nobody_asks(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "IDLE_S", 0.01)

    async def test(gateway: ServeGateway) -> None:
        await gateway.ask("GET", "/", {}, b"")
        process = gateway._process
        assert process is not None
        await process.wait()
        assert gateway._process is None
        assert (await gateway.ask("GET", "/", {}, b"more")).text == "more"

    run(tmp_path, monkeypatch, test)


def test_an_answer_that_takes_too_long(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "ANSWER_S", 0.5)

    async def test(gateway: ServeGateway) -> None:
        assert (await gateway.ask("GET", "/hold", {}, b"")).status == 504

    run(tmp_path, monkeypatch, test)
