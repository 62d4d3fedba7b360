"""An ingress in front of a stand-in replica, on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("httptools")

from runtime.serve._core.published import Route, Routes
from runtime.serve._event_loops import new_event_loop
from runtime.serve._ingress.http_app import HttpIngress
from runtime.serve._ingress.http_server import HttpServer, bind
from runtime.serve._ingress.options import HttpOptions
from runtime.serve._ingress.routes import RouteTable
from tests.runtime.serve._ingress.stand_in import Caller, Replica

T = TypeVar("T")
new_event_loop().close()  # libuv keeps a pipe for signals from the first loop on: not a leak

ROUTES = [
    Route("/", "app", "d"),
    Route("/sub", "nested", "d"),
    Route("/full", "full", "full"),
    Route("/gone", "gone", "gone"),
    Route("/busy", "busy", "busy"),
]


class Served:
    """An ingress with all that it needs. `run` executes a coroutine on its loop."""

    def __init__(self, path: str, **options: Any) -> None:
        self.loop = new_event_loop()
        self.thread = threading.Thread(target=self._turn)
        self.thread.start()
        self.table = RouteTable()
        self.replica = Replica()
        self.caller = Caller(path)
        self.options = HttpOptions(**{"port": 0, **options})
        self.run(self._start(path))
        self.port = self.server.port

    def _turn(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    async def _start(self, path: str) -> None:
        await self.replica.listen(path)
        await self.caller.connect()
        self.app = HttpIngress(self.table, self.caller.queue, self.options.request_timeout_s)
        self.server = HttpServer(self.options, self.app, bind("127.0.0.1", self.options.port))
        await self.server.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def until(self, condition: Callable[[], object]) -> None:
        """Waits for it, up to the time limit of a test."""

        async def wait() -> None:
            async with asyncio.timeout(20):
                while not condition():  # noqa: ASYNC110  another thread may make it true
                    await asyncio.sleep(0.002)

        self.run(wait())

    def is_idle(self) -> bool:
        """Nothing of any request is left."""
        return not (self.app.ongoing or self.caller.open or self.caller.waiting or self.replica.running)

    def close(self) -> None:
        async def end() -> None:
            await self.server.drain(0)
            self.caller.connection.close()
            self.replica.server.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)

        self.run(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


@pytest.fixture
def serve(tmp_path: Any) -> Iterator[Callable[..., Served]]:
    """Starts an ingress with these options and the usual routes."""
    begun: list[Served] = []

    def start(**options: Any) -> Served:
        served = Served(f"{tmp_path}/r{len(begun)}", **options)
        begun.append(served)
        served.table.update(Routes(1, ROUTES))
        return served

    yield start
    for served in begun:
        served.close()
