"""Which replicas a request may go to.

By default all: the borrower takes one that has a slot. A request for a multiplexed model first waits a while for the
replicas that have loaded it, then for those with the fewest models. A custom router ranks the replicas of each request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from runtime.serve._core.slots import Borrower
from runtime.serve.context import DeploymentID

from .exchange import Exchange
from .link import Link

MATCHING_S = 1.0
"""How long a request waits for the replicas that have loaded its model, and then for those with the fewest."""


class Routing(Protocol):
    """Decides for the requests of a queue."""

    def allowed(self, exchange: Exchange) -> frozenset[str] | None:
        """The replicas that a new request may go to; None for all."""

    def wait(self, exchange: Exchange) -> None:
        """A request waits: `Queue.allow` may let it go elsewhere later."""

    def replicas_changed(self) -> None:
        """Replicas came, went or have told something."""

    def close(self) -> None:
        """Decides nothing any more. Requests that wait may go everywhere."""


class Routed(Protocol):
    """The queue whose requests are routed."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of all that belongs to it."""

    @property
    def borrower(self) -> Borrower[Exchange]:
        """The slots of all replicas, and the requests that wait."""

    @property
    def deployment_id(self) -> DeploymentID:
        """The deployment."""

    def live_links(self) -> list[Link]:
        """Of the replicas that take requests."""

    def allow(self, exchange: Exchange, allowed: frozenset[str] | None) -> None:
        """A request that waits may go to these replicas; None for all."""

    def forget(self, exchange: Exchange) -> None:
        """A request does not wait any more."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine until it ends or the caller is closed."""


class ByModel:
    """The default."""

    def __init__(self, queue: Routed) -> None:
        self._queue = queue

    def allowed(self, exchange: Exchange) -> frozenset[str] | None:
        model = exchange.message.meta.model_id
        if not model:
            return None
        having = self._having(model)
        return having or self._fewest()

    def wait(self, exchange: Exchange) -> None:
        if exchange.message.meta.model_id:
            having = bool(self._having(exchange.message.meta.model_id))
            self._later(exchange, self._to_fewest if having else self._to_all)

    def replicas_changed(self) -> None:
        pass  # what waits hears of it by its timer

    def close(self) -> None:
        pass

    def _later(self, exchange: Exchange, step: Callable[[Exchange], None]) -> None:
        exchange.timer = self._queue.loop.call_later(MATCHING_S, step, exchange)

    def _to_fewest(self, exchange: Exchange) -> None:
        self._later(exchange, self._to_all)
        self._queue.allow(exchange, self._having(exchange.message.meta.model_id) | self._fewest())

    def _to_all(self, exchange: Exchange) -> None:
        self._queue.allow(exchange, None)

    def _having(self, model: str) -> frozenset[str]:
        return frozenset(link.target.replica for link in self._queue.live_links() if model in link.models)

    def _fewest(self) -> frozenset[str]:
        links = self._queue.live_links()
        fewest = min((len(link.models) for link in links), default=0)
        return frozenset(link.target.replica for link in links if len(link.models) == fewest)
