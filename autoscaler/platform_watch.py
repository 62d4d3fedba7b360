"""Asks the platform what there is and what it offers, over and over, and keeps the last answers.

Belongs to the loop's thread. Each call blocks in a thread of its own (`calls.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from autoscaler.calls import BlockingCalls
from autoscaler.config import AutoscalerConfig
from autoscaler.effects import CallFailed, Listing, Outcome
from autoscaler.provider import NodeType, Offer, Provider, ProviderError, Throttled

OFFERS_EVERY_S = 600.0
OFFERS_AGAIN_S = 10.0


class Listener(Protocol):
    """The autoscaler's loop, which uses the answers."""

    def wake(self) -> None:
        """Something has changed: a tick is due."""

    def problem(self, key: str, text: str) -> None:
        """A standing fault for the operator; "" when it is over."""

    def ended(self, outcome: Outcome) -> None:
        """A fact for the next tick."""

    @property
    def throttled_until_s(self) -> float:
        """No call to the platform should be made before."""


class PlatformWatch:
    """What the platform said last.

    Attributes:
        listing: its machines; None before the first answer under the present configuration.
        offers: per node type.
        is_unsettled: machines are on their way, so listings are frequent.
    """

    def __init__(
        self,
        config: AutoscalerConfig,
        provider: Provider,
        calls: BlockingCalls,
        listener: Listener,
        clock: Callable[[], float],
    ) -> None:
        self.listing: Listing | None = None
        self.offers: dict[str, Sequence[Offer]] = {}
        self.is_unsettled = False
        self._config = config
        self._provider = provider
        self._calls = calls
        self._listener = listener
        self._clock = clock
        self._refusals: dict[str, str] = {}
        self._list_now = asyncio.Event()
        self._offer_now = asyncio.Event()

    def configure(self, config: AutoscalerConfig, provider: Provider) -> None:
        """Asks again: until then nothing is launched, as offers are of the old configuration, and nothing is ended,
        as the listing is."""
        self._config = config
        self._provider = provider
        self.listing = None
        self.offers, self._refusals = {}, {}
        self._list_now.set()
        self._offer_now.set()

    def list_soon(self) -> None:
        """Lists without waiting for the next turn: something was ended."""
        self._list_now.set()

    @property
    def has_answered(self) -> bool:
        """Whether there is a listing, and a word on every node type."""
        kinds = self._config.node_types
        return self.listing is not None and all(
            kind.name in self.offers or kind.name in self._refusals for kind in kinds
        )

    def closed(self) -> Mapping[str, str]:
        """Node types of which nothing may be launched, as their offers are not known, and why."""
        return {
            kind.name: self._refusals.get(kind.name, "the platform is asked what it offers")
            for kind in self._config.node_types
            if kind.name in self._refusals or kind.name not in self.offers
        }

    # ------------------------------------------------------------ listing

    async def keep_listing(self) -> None:
        """Lists until cancelled: often while something is on its way, and rarely otherwise, as platforms count
        calls."""
        while True:
            await self._unthrottled()
            self._list_now.clear()
            await self._list()
            tick_s = self._config.tick_s
            await either(self._list_now, min(1.0, tick_s) if self.is_unsettled else tick_s)

    async def _list(self) -> None:
        started_s, provider = self._clock(), self._provider
        try:
            machines = await self._calls.run(provider.list, "list", self._config.provider_timeout_s)
        except ProviderError as error:
            self._listener.problem("list", f"the provider cannot list machines: {error}")
            await self._refused(error)
            return
        self._listener.problem("list", "")
        if provider is not self._provider:
            return  # a new configuration has come meanwhile, and a listing by it is due
        before, self.listing = self.listing, Listing(started_s, tuple(machines))
        if before is None or before.machines != self.listing.machines or self.is_unsettled:
            self._listener.wake()

    # ------------------------------------------------------------ offers

    async def keep_offers(self) -> None:
        """Asks for the offers of all types until cancelled."""
        while True:
            self._offer_now.clear()
            answers = await asyncio.gather(*(self._ask_offers(kind) for kind in self._config.node_types))
            await either(self._offer_now, OFFERS_EVERY_S if all(answers) else OFFERS_AGAIN_S)

    async def _ask_offers(self, kind: NodeType) -> bool:
        """One that does not answer keeps only its own type waiting; what it offered before holds on."""
        await self._unthrottled()
        problem, provider = f"offers {kind.name}", self._provider
        try:
            offers = await self._calls.run(
                partial(provider.offers, kind), problem, self._config.provider_timeout_s
            )
        except ProviderError as error:
            if provider is not self._provider:
                return False
            self._listener.problem(problem, f"no offers for node type {kind.name!r}: {error}")
            if kind.name not in self.offers:
                self._refusals[kind.name] = f"the platform does not say what it offers: {error}"
                self._listener.wake()
            await self._refused(error)
            return False
        if provider is not self._provider:
            return False  # a new configuration has come meanwhile, and is asked about next
        self._listener.problem(problem, "")
        if offers:
            self.offers[kind.name] = offers
            self._refusals.pop(kind.name, None)
        else:
            self._refusals[kind.name] = "no offer in the allowed zones and prices"
        self._listener.wake()
        return True

    # ------------------------------------------------------------ throttling

    async def _unthrottled(self) -> None:
        """Waits while the platform wants to be left alone."""
        await asyncio.sleep(max(0.0, self._listener.throttled_until_s - self._clock()))

    async def _refused(self, error: ProviderError) -> None:
        """The reconciler hears of the error; when there were too many calls, waits until it has."""
        if isinstance(error, Throttled):
            self._listener.ended(CallFailed(error))
            await asyncio.sleep(error.retry_after_s)


async def either(event: asyncio.Event, timeout_s: float) -> None:
    """Waits for the event, at most so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
