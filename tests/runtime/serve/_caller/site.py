"""A caller on the event loop of a test, with stand-in replicas behind real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from runtime.serve._caller.caller import Caller
from runtime.serve._caller.exchange import Exchange
from runtime.serve._caller.queue import Queue
from runtime.serve._core.published import Demand, Targets
from runtime.serve._wire import values
from runtime.serve._wire.messages import Call, Meta, Result
from tests.runtime.serve.stand_ins import NODE, Keys, StandIn

LIMIT_S = 20.0


class Site:
    """A caller, its followed keys and some replicas."""

    def __init__(self) -> None:
        self.demands: list[Demand] = []
        self.replicas: list[StandIn] = []
        self.options: dict[str, object] = {}
        self._epoch = 0
        self.caller = Caller(asyncio.get_running_loop(), NODE, self._follow, self.demands.append)

    def _follow(self, deliver: Callable[[bytes, bytes | None], None]) -> Keys:
        self.keys = Keys(deliver)
        return self.keys

    @property
    def queue(self) -> Queue:
        return self.caller.queue("app", "D")

    async def add(self, slots: int = 5) -> StandIn:
        replica = StandIn(slots)
        await replica.start()
        self.replicas.append(replica)
        self.publish()
        return replica

    def publish(self, **options: object) -> None:
        self._epoch += 1
        self.options.update(options)
        targets = [replica.target for replica in self.replicas]
        self.keys.publish(
            Targets(**{"epoch": self._epoch, "state": "running", "replicas": targets, **self.options})
        )

    async def connected(self, count: int = 1) -> None:
        await until(lambda: len(self.queue.borrower.replicas) == count)


@asynccontextmanager
async def a_site() -> AsyncIterator[Site]:
    site = Site()
    try:
        async with asyncio.timeout(LIMIT_S):
            yield site
    finally:
        await site.caller.close()
        for replica in site.replicas:
            replica.close()
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - conditions of several objects
        await asyncio.sleep(0.002)


def call(
    method: str = "__call__", *args: object, stream: bool = False, model: str = "", number: str = "r"
) -> Call:
    return Call(0, method, Meta(number, "app", model_id=model), values.dump_arguments(args, {}).body, stream)


async def value(exchange: Exchange) -> object:
    message = await exchange.receive()
    assert isinstance(message, Result), message
    return exchange.load(message.body)


async def ask(site: Site, method: str = "__call__", *args: object) -> object:
    return await value(await site.queue.begin(call(method, *args)))


def on_a_site(test: Callable[[Site], Awaitable[None]]) -> Callable[[], None]:
    """A test that is a coroutine function of a `Site`."""

    def run() -> None:
        async def main() -> None:
            async with a_site() as site:
                await test(site)

        asyncio.run(main())

    # Not all of functools.wraps: pytest would look for the parameter.
    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run
