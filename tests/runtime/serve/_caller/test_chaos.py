"""Random updates, deaths, cancellations and resizes under load, over real sockets."""

from __future__ import annotations

import asyncio
import random

import pytest

from runtime.exceptions import ActorDiedError
from tests.runtime.serve._caller.site import Site, a_site, call, until, value
from tests.runtime.serve.stand_ins import StandIn

CALLS = 60


@pytest.mark.parametrize("seed", range(2))
def test_requests_are_answered_or_were_at_a_replica_that_died(seed):
    async def main() -> None:
        async with a_site() as site:
            await run(site, random.Random(seed))

    try:
        asyncio.run(main())
    except BaseException as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error


async def run(site: Site, chance: random.Random) -> None:
    others = [Site() for _ in range(2)]
    everyone = [site, *others]
    gone: list[StandIn] = []
    killed_while_running = 0
    answered, died, cancelled = 0, 0, 0

    def publish() -> None:
        for one in everyone:
            one.replicas = site.replicas
            one.publish()

    async def client(one: Site) -> None:
        nonlocal answered, died, cancelled
        for _ in range(CALLS):
            asked = asyncio.ensure_future(ask(one, chance.choice([0.0, 0.001, 0.01])))
            if chance.random() < 0.1:
                await asyncio.sleep(chance.random() * 0.01)
                asked.cancel()
            try:
                await asked
                answered += 1
            except asyncio.CancelledError:
                cancelled += 1
            except ActorDiedError:
                died += 1

    async def ask(one: Site, pause_s: float) -> None:
        exchange = await one.queue.begin(call("pause", pause_s))
        try:
            assert await value(exchange) == exchange.replica
        except asyncio.CancelledError:
            exchange.cancel()
            raise

    async def trouble() -> None:
        nonlocal killed_while_running
        while True:
            await asyncio.sleep(0.005 * chance.random())
            action = chance.random()
            if len(site.replicas) < 2 or action < 0.2:
                await site.add(chance.choice([1, 2, 4]))
            elif action < 0.4:
                victim = site.replicas.pop(chance.randrange(len(site.replicas)))
                gone.append(victim)
                killed_while_running += len(victim._tasks)
                victim.close()
            elif action < 0.7:
                leaving = site.replicas.pop(chance.randrange(len(site.replicas)))
                gone.append(leaving)
                publish()
                leaving.drain()
            else:
                chance.choice(site.replicas).resize(chance.choice([1, 3]))
            publish()

    making_trouble = asyncio.create_task(trouble())
    try:
        await asyncio.gather(*(client(one) for one in everyone for _ in range(4)))
    finally:
        making_trouble.cancel()
        for one in others:
            await one.caller.close()
        for replica in gone:
            replica.close()
    assert answered + died + cancelled == len(everyone) * 4 * CALLS
    assert answered > CALLS
    # A request may have been on its way to a replica that was killed, besides those that it ran.
    assert died <= killed_while_running + sum(replica.lender.slots for replica in gone)
    await until(lambda: all(one.queue.waiting == 0 for one in everyone))
    assert not any(replica.without_slot for replica in [*gone, *site.replicas])
