"""Requests whose replica dies, refuses them or is replaced, over real sockets to stand-in replicas."""

from __future__ import annotations

import asyncio

import pytest

from runtime.exceptions import ActorDiedError
from runtime.serve._caller.exchange import Exchange
from runtime.serve._core.published import Targets
from runtime.serve.exceptions import ReplicaUnavailableError
from tests.runtime.serve._caller.site import ask, call, on_a_site, until, value
from tests.runtime.serve.stand_ins import NODE, StandIn


@on_a_site
async def test_a_refused_request_is_sent_elsewhere(site):
    first, second = await site.add(), await site.add()
    first.refuse_next = second.refuse_next = 1
    assert [await ask(site, "__call__", number) for number in range(4)] == [0, 1, 2, 3]


@on_a_site
async def test_a_request_that_is_always_refused_fails(site):
    replica = await site.add()
    replica.refuse_next = 1 << 20
    with pytest.raises(ReplicaUnavailableError, match=replica.name):
        await value(await site.queue.begin(call()))


@on_a_site
async def test_requests_at_a_replica_that_dies_fail_and_those_that_wait_do_not(site):
    dying = await site.add(slots=1)
    running = await site.queue.begin(call("wait"))
    waiting = asyncio.create_task(ask(site, "who"))
    await until(lambda: site.queue.waiting == 1 and dying.begun)
    dying.close()
    with pytest.raises(ActorDiedError, match="request r"):
        await running.receive()
    site.replicas.remove(dying)
    healthy = await site.add()
    assert await waiting == healthy.name


@on_a_site
async def test_a_replica_that_listens_again_is_connected_again(site):
    replica = await site.add()
    assert await ask(site, "who") == replica.name
    for connection in list(replica._connections):
        connection.close()
    await until(lambda: not site.queue.borrower.replicas)
    assert await ask(site, "who") == replica.name


@on_a_site
async def test_a_request_for_a_connection_that_is_closing_goes_elsewhere(site):
    replica = await site.add(slots=50)
    await asyncio.gather(*(ask(site, "pause", 0.001) for _ in range(40)))
    site.queue.links[
        replica.name
    ]._connection._transport.abort()  # its loss is told in the next turn of the loop
    exchanges = [Exchange(site.queue, call("who")) for _ in range(3)]
    for exchange in exchanges:
        site.queue.start(exchange)
    assert site.queue.waiting == 3
    assert [await value(exchange) for exchange in exchanges] == [replica.name] * 3


@on_a_site
async def test_an_update_fails_no_request(site):
    old = await site.add(slots=3)
    asked = [asyncio.create_task(ask(site, "pause", 0.01)) for _ in range(30)]
    await until(lambda: len(old.begun) >= 6)
    new = await site.add(slots=3)
    site.replicas.remove(old)
    site.publish()
    old.drain()
    served = await asyncio.gather(*asked)
    assert set(served) == {old.name, new.name}
    await until(lambda: old.lender.is_idle)
    await until(lambda: list(site.queue.links) == [new.name])
    site.replicas.append(old)  # so that it is closed


@on_a_site
async def test_a_replica_that_is_listed_again_is_used_again(site):
    replica = await site.add(slots=2)
    running = await site.queue.begin(call("wait"))
    await until(lambda: replica.begun)
    site.replicas.remove(replica)
    site.publish()
    await until(lambda: not site.queue.borrower.replicas)
    site.replicas.append(replica)
    site.publish()
    assert await ask(site, "who") == replica.name
    replica.code.gate.set()
    assert await value(running) == replica.name


@on_a_site
async def test_a_wrong_token_reaches_nobody(site):
    replica = StandIn()
    target = await replica.start()
    try:
        site.keys.publish(
            Targets(1, "running", [type(target)(target.replica, b"wrong", NODE, target.unix, "", 0, 1)])
        )
        with pytest.raises(TimeoutError, match="can be reached"):
            await site.queue.begin(call(), timeout_s=0.05)
        assert not replica.begun
    finally:
        replica.close()
