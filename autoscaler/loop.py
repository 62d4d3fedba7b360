"""The shell around the reconciler: waits for facts, ticks, carries out effects.

One asyncio loop owns everything. The control store is watched by long polls, and asked for its picture once a tick.
The provider and the setup block, so each of their calls has a thread of its own and a deadline. A call that outlives
its deadline counts as failed and its late result is not used: tags and listings tell what it did.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

from autoscaler.calls import BlockingCalls
from autoscaler.carrying_out import CarryingOut
from autoscaler.config import AutoscalerConfig
from autoscaler.demand import lasting
from autoscaler.effects import Outcome, Terminated
from autoscaler.memory import KEY, NAMESPACE, Memory
from autoscaler.platform_watch import PlatformWatch, either
from autoscaler.provider import NodeSetup, Provider
from autoscaler.reconciler import Reconciler, World
from autoscaler.status import Report, demand_notes, group_notes
from runtime._clients.control import ControlClient
from runtime._transport.channel import CallError
from runtime._wire.messages.control import (
    AutoscalerReport,
    ClusterState,
    KvGet,
    KvPut,
    WatchClusterState,
)

log = logging.getLogger(__name__)

OFFERS_PATIENCE_S = 2.0
"""So long the first decision waits for a listing and for the offers of all types; then what is known must do."""
PLAN_BUDGET_S = 5.0
"""A plan that takes longer is cut short; the rest follows with the next one."""
RETRY_S = 1.0
LASTS_S = 0.1
"""Longer than agents keep a change to themselves."""
TOGETHER_S = 0.01
"""What comes so close together is looked at together."""
WATCH_PAUSE_S = 0.05
"""A busy cluster changes all the time; this is soon enough to hear of it."""
REPORT_EVERY_S = 5.0

_NOW = WatchClusterState(timeout_s=0.0, with_report=False)


class Autoscaler:
    """Keeps the cluster at the size that its demand and the configuration ask for. All methods belong to the
    loop's thread.
    """

    def __init__(
        self,
        config: AutoscalerConfig,
        provider: Provider,
        setup: NodeSetup,
        control: ControlClient,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._provider = provider
        self._control = control
        self._clock = clock
        self._rng = random.Random()
        self._reconciler = Reconciler(config, provider.capabilities, rng=self._rng)
        self._wake = asyncio.Event()
        self._changed_s = 0.0
        """When the cluster last changed, by the loop's clock."""
        self._cluster: ClusterState | None = None
        self._patient_until_s = clock() + OFFERS_PATIENCE_S
        calls = BlockingCalls()
        self._platform = PlatformWatch(config, provider, calls, self, clock)
        self._effects = CarryingOut(config, provider, setup, control, calls, self.ended)
        self._outcomes: list[Outcome] = []
        self._problems: dict[str, str] = {}
        self._looking: list[asyncio.Task[None]] = []
        self._saved = -1
        self._reported = b""
        self._reported_s = 0.0
        self._has_decided = False
        self._report = self._reconciler.report(clock())

    # ------------------------------------------------------------ for the head

    def configure(self, config: AutoscalerConfig, provider: Provider, setup: NodeSetup) -> None:
        """Takes a new configuration into use, from the next tick on; calls under way end with the old one.

        Running machines of another configuration are replaced when idle; those above a lowered maximum are
        drained.
        """
        self._config = config
        self._provider = provider
        self._platform.configure(config, provider)
        self._effects.configure(config, provider, setup)
        self._problems = {key: text for key, text in self._problems.items() if not key.startswith("offers ")}
        self._patient_until_s = self._clock() + OFFERS_PATIENCE_S
        self._wake.set()

    def report(self) -> Report:
        """The picture after the last tick."""
        return self._report

    def look_ahead(self) -> None:
        """Begins to ask the provider what there is and what it offers, which needs no control store yet."""
        if not self._looking:
            self._looking = [
                asyncio.create_task(self._platform.keep_listing(), name="autoscaler listing"),
                asyncio.create_task(self._platform.keep_offers(), name="autoscaler offers"),
            ]

    async def run(self) -> None:
        """Works until cancelled, which ends no machine: another process carries on from what is saved."""
        self.look_ahead()
        tasks = [*self._looking]
        try:
            await self._resume()
            tasks += [
                asyncio.create_task(self._watch(), name="autoscaler watch"),
                asyncio.create_task(self._ticks(), name="autoscaler ticks"),
            ]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            under_way = [*tasks, *self._effects.under_way]
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    # ------------------------------------------------------------ facts

    async def _resume(self) -> None:
        """Carries on from the state an earlier process saved, if there is one and it can be read."""
        while True:
            try:
                saved = await self._control.call(KvGet(NAMESPACE, KEY))
            except CallError as error:
                log.warning("cannot read the saved state yet: %s", error)
                await asyncio.sleep(RETRY_S)
                continue
            if saved.value is None:
                return
            try:
                memory = Memory.from_json(saved.value)
            except ValueError as error:
                log.error("the saved state is of no use, starting from what is listed: %s", error)
                return
            self._reconciler = Reconciler(
                self._config, self._provider.capabilities, memory=memory, rng=self._rng
            )
            return

    async def _watch(self) -> None:
        version = -1
        while True:
            wait_s = self._config.tick_s
            try:
                news = await self._control.call(
                    WatchClusterState(version, wait_s, only_version=True), timeout_s=wait_s + 30.0
                )
            except CallError as error:
                self.problem("control", f"the control store does not answer: {error}")
                await asyncio.sleep(RETRY_S)
                continue
            self.problem("control", "")
            if news.version != version:
                version = news.version
                self._changed_s = asyncio.get_running_loop().time()
                self._wake.set()
                await asyncio.sleep(WATCH_PAUSE_S)

    async def _look(self, is_quiet: bool) -> None:
        """Asks for the picture of now; without an answer, the last one remains.

        Amid changes, a node may have told that a task has taken it before the task's own node tells that it waits no
        longer. So what waits counts only if it does so a moment later as well: a machine too many costs more than a
        moment.
        """
        try:
            picture = await self._control.call(_NOW, timeout_s=self._config.tick_s)
            if picture.demands and not is_quiet:
                await asyncio.sleep(LASTS_S)
                later = await self._control.call(_NOW, timeout_s=self._config.tick_s)
                picture = lasting(picture, later)
            self._cluster = picture
        except CallError as error:
            log.warning("the control store shows no picture: %s", error)
            self._wake.set()  # asked again soon: what woke us is still not known

    @property
    def throttled_until_s(self) -> float:
        """No call to the platform should be made before."""
        return self._reconciler.throttled_until_s

    def wake(self) -> None:
        """Ticks soon."""
        self._wake.set()

    def ended(self, outcome: Outcome) -> None:
        """Takes what came of an effect, for the next tick."""
        self._outcomes.append(outcome)
        if isinstance(outcome, Terminated):
            self._platform.list_soon()
        self._wake.set()

    def problem(self, key: str, text: str) -> None:
        """Notes a standing fault; "" when it is over."""
        if text and self._problems.get(key) != text:
            log.warning("%s", text)
            self._problems[key] = text
            self._wake.set()
        elif not text:
            self._problems.pop(key, None)

    # ------------------------------------------------------------ ticks

    async def _ticks(self) -> None:
        while True:
            await either(self._wake, self._pause_s())
            is_quiet = await self._quiet()
            if not self._platform.has_answered and self._clock() < self._patient_until_s:
                continue
            await self._look(is_quiet)
            if self._cluster is not None:
                await self._tick(self._cluster)

    def _pause_s(self) -> float:
        due_s = self._reconciler.next_s(self._clock())
        if due_s is None:
            return self._config.tick_s
        return max(0.01, min(self._config.tick_s, due_s - self._clock()))

    async def _quiet(self) -> bool:
        """Lets a burst of demand come to its end before planning for it; whether it has come to its end. What became of
        our own doing is no demand, and waits for none; nor does the first decision, which everybody waits for."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + self._config.patience_s
        while self._wake.is_set() and (now := loop.time()) < latest:
            self._wake.clear()
            if self._outcomes or not self._has_decided:
                await asyncio.sleep(TOGETHER_S)
                break
            await either(
                self._wake, min(max(0.0, self._changed_s + self._config.quiet_s - now), latest - now)
            )
        self._wake.clear()
        return loop.time() >= self._changed_s + self._config.quiet_s

    async def _tick(self, cluster: ClusterState) -> None:
        outcomes, self._outcomes = tuple(self._outcomes), []
        platform = self._platform
        world = World(cluster, platform.listing, outcomes, dict(platform.offers), platform.closed())
        now = self._clock()
        began = time.monotonic()
        self._reconciler.configure(self._config, self._provider.capabilities)
        # In a thread, for a large plan must not stop the loop. Nothing else touches the reconciler meanwhile.
        effects = await asyncio.to_thread(
            self._reconciler.step, world, now, lambda: time.monotonic() - began > PLAN_BUDGET_S
        )
        platform.is_unsettled = self._reconciler.is_unsettled
        self._has_decided = True
        self._report = self._reconciler.report(now, tuple(self._problems.values()), time.monotonic() - began)
        await self._save()
        for effect in effects:
            self._effects.start(effect)
        await self._tell(now)

    async def _save(self) -> None:
        """Intents are kept before they are carried out. Failing to is no reason to stand still: tags
        suffice."""
        if self._saved == self._reconciler.table.version:
            return
        version = self._reconciler.table.version
        try:
            memory = self._reconciler.memory().to_json()
            await self._control.call(KvPut(NAMESPACE, KEY, memory), timeout_s=5.0)
        except CallError as error:
            log.warning("cannot save the state: %s", error)
            return
        self._saved = version

    async def _tell(self, now: float) -> None:
        report = self._report
        stable = Report(**{name: getattr(report, name) for name in _STABLE}, at_s=0.0).to_json()
        if stable == self._reported and now - self._reported_s < REPORT_EVERY_S:
            return
        plan = self._reconciler.plan
        message = AutoscalerReport(report.to_json(), demand_notes(plan), group_notes(plan))
        try:
            await self._control.call(message, timeout_s=5.0)
        except CallError as error:
            log.warning("cannot report: %s", error)
            return
        self._reported, self._reported_s = stable, now


_STABLE = tuple(name for name in Report.__dataclass_fields__ if name not in ("at_s", "plan_s"))
"""The parts of a report whose change is worth telling at once."""
