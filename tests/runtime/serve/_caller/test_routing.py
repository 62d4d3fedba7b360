"""Custom routers, over real sockets."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import cloudpickle
import pytest

from runtime.serve.exceptions import RayServeException
from runtime.serve.request_router import (
    FIFOMixin,
    LocalityMixin,
    MultiplexMixin,
    PowerOfTwoChoicesRequestRouter,
    RequestRouter,
)
from tests.runtime.serve._caller.site import Site, ask, call, on_a_site, until, value


class Config:
    """What a `RequestRouterConfig` offers."""

    initial_backoff_s, backoff_multiplier, max_backoff_s = 0.001, 2.0, 0.01

    def __init__(self, router: type[RequestRouter], **kwargs: Any) -> None:
        self._router = router
        self.request_router_kwargs = kwargs

    def get_request_router_class(self) -> type[RequestRouter]:
        return self._router


async def with_router(site: Site, router: type[RequestRouter], **kwargs: Any) -> RequestRouter:
    cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["_"]))
    try:
        site.publish(router=cloudpickle.dumps(Config(router, **kwargs)))
    finally:
        cloudpickle.unregister_pickle_by_value(__import__(__name__, fromlist=["_"]))
    queue = site.queue
    await until(lambda: hasattr(queue._routing, "_router"))
    made: RequestRouter = queue._routing._router
    return made


class ByArgument(RequestRouter):
    """Sends a request to the replica with the number of its first argument, and notes what it hears."""

    def initialize_state(self, first: int) -> None:
        self.first = first
        self.heard: list[tuple[str, str]] = []

    async def choose_replicas(self, candidate_replicas, pending_request=None):
        ordered = sorted(candidate_replicas, key=lambda replica: replica.routing_stats["number"])
        return [[ordered[pending_request.args[0] - self.first]]]

    def on_request_routed(self, pending_request, replica_id, result):
        self.heard.append(("routed", pending_request.metadata.internal_request_id))

    def on_request_completed(self, replica_id, internal_request_id):
        self.heard.append(("completed", internal_request_id))


@on_a_site
async def test_a_router_chooses_by_the_arguments_and_hears_of_the_end(site):
    replicas = [await site.add(slots=2) for _ in range(3)]
    router = await with_router(site, ByArgument, first=10)
    await site.connected(3)
    for number, replica in enumerate(replicas):
        replica.describe([], number=number)
    await until(
        lambda: len(router.curr_replicas) == 3 and all(r.routing_stats for r in router._replicas_list)
    )
    for number in (12, 10, 11, 12):
        exchange_call = call("who")
        exchange = await begin_with(site, exchange_call, (number,))
        assert await value(exchange) == replicas[number - 10].name
    await until(lambda: len(router.heard) == 8)
    assert {kind for kind, _ in router.heard} == {"routed", "completed"}
    assert len({key for _, key in router.heard}) == 4


async def begin_with(site: Site, message: Any, args: tuple[Any, ...]) -> Any:
    from runtime.serve._caller.exchange import Exchange, State

    exchange = Exchange(site.queue, message, arguments=(args, {}))
    site.queue.start(exchange)
    await until(lambda: exchange.state is not State.WAITING)
    return exchange


class Uniform(RequestRouter):
    async def choose_replicas(self, candidate_replicas, pending_request=None):
        return [[random.choice(candidate_replicas)]]


class Ranked(FIFOMixin, MultiplexMixin, LocalityMixin, RequestRouter):
    async def choose_replicas(self, candidate_replicas, pending_request=None):
        model = pending_request.metadata.multiplexed_model_id
        if model:
            return self.rank_replicas_via_multiplex(candidate_replicas, model)
        return [
            self.select_available_replicas(rank)
            for rank in self.rank_replicas_via_locality(candidate_replicas)
        ]


@pytest.mark.parametrize("router", [Uniform, Ranked, PowerOfTwoChoicesRequestRouter])
def test_routers_serve_everything_within_the_slots(router):
    @on_a_site
    async def run(site):
        replicas = [await site.add(slots=2) for _ in range(2)]
        await with_router(site, router)
        answers = await asyncio.gather(*(ask(site, "pause", 0.001) for _ in range(40)))
        assert set(answers) == {replica.name for replica in replicas}
        assert max(replica.most_running for replica in replicas) <= 2

    run()


@on_a_site
async def test_a_rank_that_is_full_leaves_requests_to_the_next(site):
    first, second = await site.add(slots=1), await site.add(slots=1)
    await with_router(site, Ranked)
    await site.connected(2)
    first.describe(["m"])
    await until(lambda: any(link.models for link in site.queue.live_links()))
    running = await site.queue.begin(call("wait", model="m"))
    await until(lambda: first.begun)
    assert await value(await site.queue.begin(call("who", model="m"))) == second.name
    first.code.gate.set()
    assert await value(running) == first.name


class Broken(RequestRouter):
    async def choose_replicas(self, candidate_replicas, pending_request=None):
        raise KeyError("no such thing")


@on_a_site
async def test_a_router_that_raises_fails_the_request(site):
    await site.add()
    await with_router(site, Broken)
    with pytest.raises(RayServeException, match="no such thing"):
        await site.queue.begin(call())
    assert site.queue.waiting == 0


@on_a_site
async def test_requests_go_to_any_replica_if_the_router_cannot_be_made(site):
    site.options["router"] = b"no pickle"
    replica = await site.add()
    assert await ask(site, "who") == replica.name


class Forgetful(RequestRouter):
    def update_replicas(self, replicas):
        raise RuntimeError("which replicas?")

    async def choose_replicas(self, candidate_replicas, pending_request=None):
        return [candidate_replicas]


@on_a_site
async def test_a_router_that_does_not_take_its_replicas_costs_no_connection(site):
    await site.add()
    await with_router(site, Forgetful)
    replica = await site.add()
    await site.connected(2)
    replica.describe(["m"])
    await until(lambda: any("m" in link.models for link in site.queue.links.values()))
    assert await ask(site, "who") in {replica.name for replica in site.replicas}


@on_a_site
async def test_another_router_takes_over_what_waits(site):
    class Never(RequestRouter):
        async def choose_replicas(self, candidate_replicas, pending_request=None):
            return []

    await site.add()
    await with_router(site, Never)
    asked = asyncio.create_task(ask(site, "__call__", 5))
    await until(lambda: site.queue.waiting == 1)
    site.publish(router=b"")
    assert await asked == 5
