"""Requests over real sockets to stand-in replicas, on the caller's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from runtime.exceptions import ActorDiedError
from runtime.serve._caller import demand
from runtime.serve._caller.caller import Caller
from runtime.serve._caller.exchange import Exchange
from runtime.serve._caller.queue import Queue
from runtime.serve._core.published import Demand, Targets
from runtime.serve._wire import values
from runtime.serve._wire.messages import Call, Chunk, End, Event, Failure, Http, Item, Meta, Result, Start
from runtime.serve.exceptions import BackPressureError, DeploymentUnavailableError, ReplicaUnavailableError
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


# ---------------------------------------------------------------- deaths, refusals, updates


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


# ---------------------------------------------------------------- streams and HTTP


@on_a_site
async def test_items_of_a_stream_come_in_order(site):
    await site.add()
    exchange = await site.queue.begin(call("count", 300, stream=True))
    got = []
    while isinstance(message := await exchange.receive(), Item):
        got.append(exchange.load(message.body))
    assert isinstance(message, End)
    assert got == list(range(300))


@on_a_site
async def test_a_stream_waits_for_a_slow_reader(site):
    replica = await site.add()
    exchange = await site.queue.begin(call("count", 64, 100_000, stream=True))
    await until(lambda: replica.items_sent >= 10)
    await asyncio.sleep(0.05)
    assert replica.items_sent < 16, "a window of 1 MiB is full"
    count = 0
    while isinstance(await exchange.receive(), Item):
        count += 1
    assert count == 64


@on_a_site
async def test_a_stream_that_fails_gives_its_items_first(site):
    await site.add()
    exchange = await site.queue.begin(call("count_and_fail", 2, stream=True))
    kinds = [type(await exchange.receive()) for _ in range(3)]
    assert kinds == [Item, Item, Failure]


def http(
    kind: str = "http", body: bytes = b"", more: bool = False, method: str = "POST", path: str = "/x"
) -> Http:
    address = ("127.0.0.1", 1)
    meta = Meta("r", "app", "/")
    return Http(
        0, meta, kind, method, "http", "1.1", path, path.encode(), b"", "", [], address, address, body, more
    )


@on_a_site
async def test_bodies_larger_than_the_window_pass_both_ways(site):
    await site.add()
    exchange = await site.queue.begin(http(body=b"first", more=True))
    parts = [bytes([number]) * 300_000 for number in range(10)]

    async def send() -> None:
        for part in parts:
            await exchange.send(part, more=True)
        await exchange.send(b"", more=False)

    sending = asyncio.create_task(send())
    start = await exchange.receive()
    assert isinstance(start, Start)
    body = bytearray()
    while True:
        message = await exchange.receive()
        assert isinstance(message, Chunk)
        body += message.body
        if not message.more:
            break
    await sending
    assert bytes(body) == b"first" + b"".join(parts)


async def statuses(exchange: Exchange) -> list[int]:
    """The status of an answer that is read to its end."""
    seen = []
    while True:
        message = await exchange.receive()
        if isinstance(message, Start):
            seen.append(message.status)
        elif isinstance(message, Chunk) and not message.more:
            return seen


@on_a_site
async def test_an_idempotent_request_is_repeated_once_when_its_replica_dies(site):
    first = await site.add(slots=1)
    exchanges = [await site.queue.begin(http(method="GET", path="/wait"))]
    await until(lambda: first.begun)
    first.close()
    site.replicas.remove(first)
    second = await site.add(slots=1)
    await until(lambda: second.begun)
    second.code.gate.set()
    assert await statuses(exchanges[0]) == [200]
    assert exchanges[0].replica == second.name


@on_a_site
async def test_a_request_that_two_replicas_died_of_fails(site):
    exchange = None
    for _ in range(2):
        replica = await site.add(slots=1)
        exchange = exchange or await site.queue.begin(http(method="GET", path="/wait"))
        await until(lambda replica=replica: replica.begun)
        replica.close()
        site.replicas.remove(replica)
        site.publish()
    with pytest.raises(ActorDiedError):
        await exchange.receive()


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_other_requests_are_not_repeated(method):
    """A POST never, and a GET whose answer has begun neither."""

    @on_a_site
    async def run(site):
        replica = await site.add(slots=1)
        path = "/wait" if method == "POST" else "/begin"
        exchange = await site.queue.begin(http(method=method, path=path))
        await until(lambda: replica.begun)
        if path == "/begin":
            assert isinstance(await exchange.receive(), Start)
        replica.close()
        site.replicas.remove(replica)
        await site.add()
        with pytest.raises(ActorDiedError):
            await exchange.receive()

    run()


@on_a_site
async def test_the_body_of_a_refused_request_goes_where_it_is_taken(site):
    replica = await site.add()
    replica.refuse_next = 3
    exchange = await site.queue.begin(http(body=b"1", more=True))
    await until(lambda: exchange.refusals == 3)
    await exchange.send(b"2", more=False)
    body = b""
    while not isinstance(message := await exchange.receive(), Chunk) or message.more:
        body += message.body if isinstance(message, Chunk) else b""
    assert body == b"12"
    with pytest.raises(RuntimeError, match="has ended"):
        await exchange.receive()


@on_a_site
async def test_events_of_a_websocket_pass_both_ways(site):
    await site.add()
    exchange = await site.queue.begin(http("websocket", more=True))
    assert await exchange.receive() == Event(exchange.number, {"type": "websocket.accept"})
    await exchange.send_event({"type": "websocket.receive", "text": "hello"})
    echo = await exchange.receive()
    assert isinstance(echo, Event)
    assert echo.event["text"] == "hello"
    await exchange.send(b"", more=False)
    assert isinstance(await exchange.receive(), End)


@on_a_site
async def test_sending_to_a_replica_that_dies_ends(site):
    replica = await site.add()
    exchange = await site.queue.begin(http(body=b"", more=True))
    await until(lambda: replica.begun)
    replica._bodies.clear()  # it reads nothing: its connection breaks at the first part
    for _ in range(20):
        await exchange.send(bytes(200_000), more=True)
    with pytest.raises(ActorDiedError):
        await exchange.receive()


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
