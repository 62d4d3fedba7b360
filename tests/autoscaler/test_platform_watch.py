from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

from autoscaler.calls import BlockingCalls
from autoscaler.config import AutoscalerConfig
from autoscaler.effects import CallFailed, Outcome
from autoscaler.platform_watch import PlatformWatch, either
from autoscaler.provider import Machine, NodeType, Offer, Throttled, Transient
from autoscaler.simulation import SimulatedProvider
from tests.autoscaler.build import BIG, NOW, SMALL, config, machine

PATIENCE_S = 60.0
OFFER = Offer("z", price=1.0)


class Loop:
    """What the watch tells."""

    throttled_until_s = 0.0

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}
        self.outcomes: list[Outcome] = []
        self.woken = asyncio.Event()

    def wake(self) -> None:
        self.woken.set()

    def problem(self, key: str, text: str) -> None:
        self.problems[key] = text
        self.woken.set()

    def ended(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.woken.set()


class Platform(SimulatedProvider):
    """Answers with what the test set, or raises it."""

    def __init__(self) -> None:
        super().__init__("cluster")
        self.listed: list[Machine] | Exception = []
        self.offered: dict[str, list[Offer] | Exception] = {"head": [OFFER], "small": [OFFER]}
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()

    def list(self) -> list[Machine]:
        answer = self.listed
        self.asked.set()
        assert self.may_answer.wait(PATIENCE_S)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def offers(self, node_type: NodeType) -> list[Offer]:
        answer = self.offered[node_type.name]
        if isinstance(answer, Exception):
            raise answer
        return answer


def play(
    scenario: Callable[[PlatformWatch, Platform, Loop], Awaitable[None]], settings: AutoscalerConfig
) -> None:
    async def main() -> None:
        platform, loop = Platform(), Loop()
        watch = PlatformWatch(settings, platform, BlockingCalls(), loop, lambda: NOW)
        tasks = [asyncio.create_task(watch.keep_listing()), asyncio.create_task(watch.keep_offers())]
        try:
            await scenario(watch, platform, loop)
        finally:
            platform.may_answer.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


def test_the_last_answers_are_kept() -> None:
    async def scenario(watch: PlatformWatch, platform: Platform, loop: Loop) -> None:
        assert watch.closed()["small"] == "the platform is asked what it offers"
        platform.listed = [machine("n")]
        await until(lambda: watch.has_answered)
        assert watch.listing is not None
        assert (watch.listing.started_s, watch.listing.machines) == (NOW, (machine("n"),))
        assert watch.offers["small"] == [OFFER]
        assert watch.closed() == {}

    play(scenario, config(SMALL, tick_s=0.05))


def test_no_answer_is_a_problem_and_the_last_one_remains() -> None:
    async def scenario(watch: PlatformWatch, platform: Platform, loop: Loop) -> None:
        await until(lambda: watch.listing is not None)
        platform.listed = Transient("it is down")
        await until(lambda: "it is down" in loop.problems.get("list", ""))
        assert watch.listing is not None
        platform.listed = []
        await until(lambda: loop.problems["list"] == "")

    play(scenario, config(SMALL, tick_s=0.05))


def test_a_type_without_an_answer_keeps_only_itself_closed() -> None:
    async def scenario(watch: PlatformWatch, platform: Platform, loop: Loop) -> None:
        platform.offered["big"] = Transient("not now")
        await until(lambda: watch.has_answered)
        assert list(watch.closed()) == ["big"]
        assert "not now" in watch.closed()["big"]

    play(scenario, config(SMALL, BIG))


def test_a_type_without_offers_is_closed() -> None:
    async def scenario(watch: PlatformWatch, platform: Platform, loop: Loop) -> None:
        platform.offered["small"] = []
        await until(lambda: watch.has_answered)
        assert watch.closed() == {"small": "no offer in the allowed zones and prices"}

    play(scenario, config(SMALL))


def test_too_many_calls_are_a_fact_for_the_next_tick() -> None:
    async def scenario(watch: PlatformWatch, platform: Platform, loop: Loop) -> None:
        error = Throttled("slow down", retry_after_s=PATIENCE_S)
        platform.listed = error
        await until(lambda: bool(loop.outcomes))
        assert loop.outcomes == [CallFailed(error)]

    play(scenario, config(SMALL))


def test_a_listing_by_an_old_configuration_is_not_used() -> None:
    async def scenario(watch: PlatformWatch, platform: Platform, loop: Loop) -> None:
        platform.may_answer.clear()
        platform.listed = [machine("old")]
        await until(platform.asked.is_set)
        other = Platform()
        watch.configure(config(SMALL), other)
        assert watch.closed()["small"] == "the platform is asked what it offers"
        platform.may_answer.set()
        await until(lambda: watch.has_answered)
        assert watch.listing is not None
        assert watch.listing.machines == ()

    play(scenario, config(SMALL, tick_s=PATIENCE_S))


def test_who_is_cancelled_when_the_event_comes_does_not_go_on() -> None:
    async def main() -> None:
        event = asyncio.Event()
        waiting = asyncio.create_task(either(event, 60.0))
        await asyncio.sleep(0.01)
        event.set()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()

    asyncio.run(main())
