"""Runs a `RequestRouter` of the user: it ranks the replicas for each request, and the first with a slot gets it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import pickle
from typing import Any

from runtime.serve._wire.messages import Call
from runtime.serve.exceptions import RayServeException
from runtime.serve.request_router import PendingRequest, RequestMetadata, RequestRouter, RunningReplica

from .exchange import Exchange, State
from .routing import Routed

log = logging.getLogger(__name__)

_numbers = itertools.count(1)  # of requests, which may share a request id

RANK_S = 0.01
"""How long a request waits for a slot of one rank before the next rank may have it, too."""


class CustomRouting:
    """See `routing.Routing`.

    Args:
        config: cloudpickle of a `RequestRouterConfig`.
        node: id of this node, in hex.
    """

    def __init__(self, queue: Routed, config: bytes, node: str) -> None:
        self._queue = queue
        self._running: dict[str, RunningReplica] = {}
        chosen = pickle.loads(config)
        cls = chosen.get_request_router_class()
        self._router: RequestRouter = cls(
            deployment_id=queue.deployment_id,
            self_node_id=node,
            prefer_local_node_routing=True,
            initial_backoff_s=chosen.initial_backoff_s,
            backoff_multiplier=chosen.backoff_multiplier,
            max_backoff_s=chosen.max_backoff_s,
        )
        self._router.initialize_state(**(chosen.request_router_kwargs or {}))
        self._is_closed = False

    def allowed(self, exchange: Exchange) -> frozenset[str] | None:
        """None at first: the router is asked for each request."""
        return None if self._is_closed else frozenset()

    def wait(self, exchange: Exchange) -> None:
        """Asks the router until the request is sent."""
        if not self._is_closed:
            self._queue.spawn(self._route(exchange))

    def replicas_changed(self) -> None:
        """Tells the router which replicas take requests, and what they have told."""
        running: dict[str, RunningReplica] = {}
        for link in self._queue.live_links():
            name = link.target.replica
            replica = self._running.get(name) or RunningReplica(link.target, self._queue.borrower)
            replica.describe(link.target, link.models, link.statistics)
            running[name] = replica
        lost = [replica for name, replica in self._running.items() if name not in running]
        self._running = running
        try:
            for replica in lost:
                self._router.on_replica_actor_died(replica.replica_id)
            self._router.update_replicas(list(running.values()))
        except Exception:  # of the user's code; the connections to the replicas must not suffer
            log.exception("The request router of %s did not take its replicas", self._queue.deployment_id)

    def close(self) -> None:
        """Lets all requests go everywhere."""
        self._is_closed = True

    async def _route(self, exchange: Exchange) -> None:
        router, queue = self._router, self._queue
        pending = _pending(exchange)
        attempt = 0
        while exchange.state is State.WAITING and not self._is_closed:
            candidates = list(self._running.values())
            try:
                ranks = await router.choose_replicas(candidates, pending) if candidates else []
            except Exception as error:
                log.exception("The request router of %s raised", queue.deployment_id)
                queue.forget(exchange)
                failure = RayServeException(f"The request router of {queue.deployment_id} raised {error!r}.")
                failure.__cause__ = error
                exchange.fail(failure)
                return
            allowed: frozenset[str] = frozenset()
            for rank in ranks:
                allowed |= {replica.name for replica in rank if replica.name in self._running}
                queue.allow(exchange, allowed)
                if exchange.state is State.WAITING and allowed:
                    await asyncio.sleep(RANK_S)
                if exchange.state is not State.WAITING:
                    break
            else:
                await asyncio.sleep(router._compute_backoff_s(attempt))
                attempt += 1
        if self._is_closed and exchange.state is State.WAITING:
            queue.allow(exchange, None)
        if exchange.link is not None:
            self._routed(exchange, pending)

    def _routed(self, exchange: Exchange, pending: PendingRequest) -> None:
        replica = self._running.get(exchange.replica)
        if replica is None:
            return
        replica_id = replica.replica_id
        try:
            self._router.on_request_routed(pending, replica_id, exchange)
        except Exception:
            log.exception("on_request_routed of %s raised", self._queue.deployment_id)

        def completed() -> None:
            try:
                self._router.on_request_completed(replica_id, pending.metadata.internal_request_id)
            except Exception:
                log.exception("on_request_completed of %s raised", self._queue.deployment_id)

        exchange.when_ended(completed)


def _pending(exchange: Exchange) -> PendingRequest:
    message = exchange.message
    args, kwargs = exchange.arguments
    request: list[Any] = list(args) if isinstance(message, Call) else [message]
    meta = message.meta
    return PendingRequest(
        args=request,
        kwargs=kwargs,
        metadata=RequestMetadata(
            request_id=meta.request_id,
            internal_request_id=f"{meta.request_id}-{next(_numbers)}",
            call_method=message.method if isinstance(message, Call) else "__call__",
            route=meta.route,
            app_name=meta.app,
            multiplexed_model_id=meta.model_id,
            session_id=meta.session_id,
            is_streaming=isinstance(message, Call) and message.stream,
        ),
    )
