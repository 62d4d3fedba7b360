"""Slots, limits and models: which request goes to which replica, and when. Real sockets, stand-in replicas."""

from __future__ import annotations

import asyncio

import pytest

from runtime.serve._caller import demand
from runtime.serve._core.published import Demand
from runtime.serve.exceptions import BackPressureError, DeploymentUnavailableError
from tests.runtime.serve._caller.site import Site, ask, call, on_a_site, until, value

# ---------------------------------------------------------------- slots


@on_a_site
async def test_a_request_waits_for_the_first_replica(site):
    asked = asyncio.create_task(ask(site, "__call__", 7))
    await until(lambda: site.queue.waiting == 1)
    await site.add()
    assert await asked == 7


@on_a_site
async def test_a_replica_never_runs_more_than_its_slots(site):
    replica = await site.add(slots=2)
    assert len(await asyncio.gather(*(ask(site, "pause", 0.001) for _ in range(40)))) == 40
    assert replica.most_running == 2


@on_a_site
async def test_four_callers_share_one_slot(site):
    replica = await site.add(slots=1)
    others = [Site() for _ in range(3)]
    for other in others:
        other.replicas.append(replica)
        other.publish()
    try:
        everyone = [site, *others]
        answers = await asyncio.gather(*(ask(one, "pause", 0.0) for one in everyone for _ in range(25)))
        assert answers == [replica.name] * 100
        assert replica.most_running == 1
        await until(lambda: replica.lender.ongoing == 0)
        # An idle caller's slot goes to the next that wants it.
        for one in everyone:
            assert await ask(one, "who") == replica.name
    finally:
        for other in others:
            await other.caller.close()


@on_a_site
async def test_a_batch_is_spread_over_all_replicas(site):
    replicas = [await site.add(slots=50) for _ in range(2)]
    await site.connected(2)
    served = await asyncio.gather(*(ask(site, "pause", 0.01) for _ in range(40)))
    assert sorted(served.count(replica.name) for replica in replicas) == [20, 20]


@on_a_site
async def test_a_new_replica_gets_its_part_though_the_old_one_has_slots_left(site):
    old = await site.add(slots=100)
    await asyncio.gather(*(ask(site, "pause", 0.002) for _ in range(20)))
    assert site.queue.borrower.in_hand(old.name) >= 20
    new = await site.add(slots=100)
    await site.connected(2)

    async def client() -> None:
        for _ in range(30):
            await ask(site, "pause", 0.001)

    before = len(old.begun)
    await asyncio.gather(*(client() for _ in range(8)))
    share = len(new.begun) / (len(new.begun) + len(old.begun) - before)
    assert 0.3 < share < 0.7


@on_a_site
async def test_more_slots_take_what_waits(site):
    replica = await site.add(slots=1)
    waiting = [asyncio.create_task(ask(site, "wait")) for _ in range(3)]
    await until(lambda: len(replica.begun) == 1)
    replica.resize(3)
    await until(lambda: len(replica.begun) == 3)
    replica.code.gate.set()
    await asyncio.gather(*waiting)


# ---------------------------------------------------------------- limits


@on_a_site
async def test_back_pressure_begins_when_the_queue_is_full(site):
    replica = await site.add(slots=2)
    site.publish(most_queued=1)
    tasks = [asyncio.create_task(ask(site, "wait")) for _ in range(3)]
    await until(lambda: len(replica.begun) == 2 and site.queue.waiting == 1)
    with pytest.raises(BackPressureError) as raised:
        await site.queue.begin(call())
    assert (raised.value.num_queued_requests, raised.value.max_queued_requests) == (1, 1)
    replica.code.gate.set()
    await asyncio.gather(*tasks)
    assert await ask(site, "__call__", 1) == 1


@on_a_site
async def test_a_burst_that_replicas_have_slots_for_is_no_back_pressure(site):
    replica = await site.add(slots=20)
    site.publish(most_queued=1)
    assert await asyncio.gather(*(ask(site, "pause", 0.001) for _ in range(20))) == [replica.name] * 20


@on_a_site
async def test_a_wait_has_a_limit(site):
    replica = await site.add(slots=1)
    running = await site.queue.begin(call("wait"))
    with pytest.raises(TimeoutError, match=r"0\.02 s"):
        await site.queue.begin(call(), timeout_s=0.02)
    assert site.queue.waiting == 0
    replica.code.gate.set()
    assert await value(running) == replica.name


@on_a_site
async def test_a_cancelled_wait_leaves_the_queue(site):
    replica = await site.add(slots=1)
    running = await site.queue.begin(call("wait"))
    waiting = asyncio.create_task(site.queue.begin(call()))
    await until(lambda: site.queue.waiting == 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert site.queue.waiting == 0
    replica.code.gate.set()
    await value(running)


@on_a_site
async def test_cancelling_a_request_cancels_its_code_and_frees_its_slot(site):
    replica = await site.add(slots=1)
    exchange = await site.queue.begin(call("wait", number="cancelled"))
    await until(lambda: replica.begun)
    exchange.cancel()
    assert await ask(site, "who") == replica.name
    assert replica.cancelled == ["cancelled"]
    with pytest.raises(asyncio.CancelledError):
        await exchange.receive()


@pytest.mark.parametrize(("state", "message"), [("failed", "its constructor raised"), ("gone", "deleted")])
def test_an_unavailable_deployment_is_told_at_once(state, message):
    @on_a_site
    async def run(site):
        waiting = asyncio.create_task(site.queue.begin(call()))
        await until(lambda: site.queue.waiting == 1)
        site.publish(state=state, message=message if state == "failed" else "")
        with pytest.raises(DeploymentUnavailableError, match=message):
            await waiting
        with pytest.raises(DeploymentUnavailableError, match=message):
            await site.queue.begin(call())
        site.publish(state="running", message="")
        await site.add()
        assert await ask(site, "__call__", 1) == 1

    run()


@on_a_site
async def test_a_replica_that_is_listed_again_has_a_link(site):
    replica = await site.add()
    await site.connected()
    for turns in range(12):  # the end of its connection takes some turns of the loop
        site.publish(replicas=[])
        for _ in range(turns):
            await asyncio.sleep(0)
        site.options.pop("replicas")
        site.publish()
        assert await ask(site, "who") == replica.name


@on_a_site
async def test_the_queue_of_a_deleted_deployment_is_dropped(site):
    replica = await site.add(slots=1)
    queue = site.queue
    running = await queue.begin(call("wait"))
    await until(lambda: replica.begun)
    site.keys.publish(None)
    with pytest.raises(DeploymentUnavailableError, match="deleted"):
        await queue.begin(call())
    assert site.queue is queue  # a request still runs
    replica.code.gate.set()
    assert await value(running) == replica.name
    await until(lambda: queue.is_dropped)
    assert site.queue is not queue
    with pytest.raises(DeploymentUnavailableError, match="deleted"):
        await site.queue.begin(call())
    site.publish()
    assert await ask(site, "who") == replica.name


@on_a_site
async def test_the_controller_hears_of_requests_that_wait(site):
    site.publish(scales=True)
    waiting = asyncio.create_task(ask(site, "__call__", 1))
    await until(lambda: site.demands)
    assert site.demands[0] == Demand(site.caller.name, {("app", "D"): 1})
    await site.add()
    await waiting
    await until(lambda: site.demands[-1].queued == {})


def test_the_controller_hears_again_of_requests_that_still_wait(monkeypatch):
    monkeypatch.setattr(demand, "REPEAT_S", 0.01)

    @on_a_site
    async def run(site):
        site.publish(scales=True)
        waiting = asyncio.create_task(ask(site, "__call__", 1))
        await until(lambda: len(site.demands) >= 3)
        assert {each.queued["app", "D"] for each in site.demands} == {1}
        await site.add()
        await waiting
        await until(lambda: site.demands[-1].queued == {})

    run()


# ---------------------------------------------------------------- models


@on_a_site
async def test_a_request_for_a_model_goes_where_it_is_loaded(site):
    first, second = await site.add(slots=1), await site.add(slots=1)
    await site.connected(2)
    first.describe(["m1"])
    second.describe(["m2"])
    await until(lambda: all(link.models for link in site.queue.live_links()))
    for _ in range(5):
        assert await value(await site.queue.begin(call("who", model="m2"))) == second.name
        assert await value(await site.queue.begin(call("who", model="m1"))) == first.name


@on_a_site
async def test_a_request_for_a_new_model_goes_to_the_replica_with_the_fewest(site):
    first, second = await site.add(), await site.add()
    await site.connected(2)
    first.describe(["m1"])
    await until(lambda: any(link.models for link in site.queue.live_links()))
    for _ in range(3):
        assert await value(await site.queue.begin(call("who", model="m3"))) == second.name
