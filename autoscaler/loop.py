"""The shell around the reconciler: waits for facts, ticks, carries out effects.

One asyncio loop owns everything. The control store is watched by long polls, and asked for its picture once a tick.
The provider and the setup block, so each of their calls has a thread of its own and a deadline. A call that outlives
its deadline counts as failed and its late result is not used: tags and listings tell what it did.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from autoscaler.calls import BlockingCalls
from autoscaler.config import AutoscalerConfig
from autoscaler.demand import lasting
from autoscaler.effects import (
    CallFailed,
    Create,
    Created,
    Drain,
    Drained,
    Effect,
    Listing,
    Outcome,
    Resume,
    Resumed,
    SetUp,
    SetUpEnded,
    Terminate,
    Terminated,
)
from autoscaler.memory import KEY, NAMESPACE, Memory
from autoscaler.provider import (
    NodeSetup,
    NodeType,
    Offer,
    Provider,
    ProviderError,
    SetupError,
    Throttled,
)
from autoscaler.reconciler import Reconciler, World
from autoscaler.status import Report, demand_notes, group_notes
from runtime._clients.control import ControlClient
from runtime._transport.channel import CallError
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.control import (
    AutoscalerReport,
    ClusterState,
    DrainNode,
    KvGet,
    KvPut,
    ResumeNode,
    WatchClusterState,
)

log = logging.getLogger(__name__)
T = TypeVar("T")

OFFERS_EVERY_S = 600.0
OFFERS_AGAIN_S = 10.0
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
        self._setup = setup
        self._control = control
        self._clock = clock
        self._rng = random.Random()
        self._reconciler = Reconciler(config, provider.capabilities, rng=self._rng)
        self._wake = asyncio.Event()
        self._changed_s = 0.0
        """When the cluster last changed, by the loop's clock."""
        self._list_now = asyncio.Event()
        self._offer_now = asyncio.Event()
        self._cluster: ClusterState | None = None
        self._listing: Listing | None = None
        self._offers: dict[str, Sequence[Offer]] = {}
        self._closed: dict[str, str] = {}
        self._patient_until_s = clock() + OFFERS_PATIENCE_S
        self._calls = BlockingCalls()
        self._outcomes: list[Outcome] = []
        self._problems: dict[str, str] = {}
        self._effects: set[asyncio.Task[None]] = set()
        self._looking: list[asyncio.Task[None]] = []
        self._saved = -1
        self._reported = b""
        self._reported_s = 0.0
        self._unsettled = False
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
        self._setup = setup
        # Nothing is launched of a type before the provider was asked for its offers again.
        self._offers, self._closed = {}, {}
        self._problems = {key: text for key, text in self._problems.items() if not key.startswith("offers ")}
        # Nothing is ended before the provider has listed what it has by the new configuration.
        self._listing = None
        self._list_now.set()
        self._patient_until_s = self._clock() + OFFERS_PATIENCE_S
        self._offer_now.set()
        self._wake.set()

    def report(self) -> Report:
        """The picture after the last tick."""
        return self._report

    def look_ahead(self) -> None:
        """Begins to ask the provider what there is and what it offers, which needs no control store yet."""
        if not self._looking:
            self._looking = [
                asyncio.create_task(self._keep_listing(), name="autoscaler listing"),
                asyncio.create_task(self._keep_offers(), name="autoscaler offers"),
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
            under_way = [*tasks, *self._effects]
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
                self._problem("control", f"the control store does not answer: {error}")
                await asyncio.sleep(RETRY_S)
                continue
            self._problem("control", "")
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

    async def _keep_listing(self) -> None:
        while True:
            await self._unthrottled()
            self._list_now.clear()
            started_s, provider = self._clock(), self._provider
            try:
                machines = await self._ask(provider.list, "list")
            except ProviderError as error:
                self._problem("list", f"the provider cannot list machines: {error}")
                await self._refused(error)
            else:
                self._problem("list", "")
                if provider is not self._provider:
                    continue  # a new configuration has come meanwhile
                listing = Listing(started_s, tuple(machines))
                if self._listing is None or listing.machines != self._listing.machines or self._unsettled:
                    self._wake.set()
                self._listing = listing
            await _either(self._list_now, self._listing_pause_s())

    def _listing_pause_s(self) -> float:
        """Listings are frequent while something is on its way, and rare otherwise: platforms count calls."""
        return min(1.0, self._config.tick_s) if self._unsettled else self._config.tick_s

    async def _keep_offers(self) -> None:
        while True:
            self._offer_now.clear()
            kinds = self._config.node_types
            answers = await asyncio.gather(*(self._ask_offers(kind) for kind in kinds))
            await _either(self._offer_now, OFFERS_EVERY_S if all(answers) else OFFERS_AGAIN_S)

    async def _ask_offers(self, kind: NodeType) -> bool:
        """One that does not answer keeps only its own type waiting; what it offered before holds on."""
        await self._unthrottled()
        problem = f"offers {kind.name}"
        try:
            offers = await self._ask(partial(self._provider.offers, kind), problem)
        except ProviderError as error:
            self._problem(problem, f"no offers for node type {kind.name!r}: {error}")
            if kind.name not in self._offers:
                self._closed[kind.name] = f"the platform does not say what it offers: {error}"
                self._wake.set()
            await self._refused(error)
            return False
        self._problem(problem, "")
        if offers:
            self._offers[kind.name] = offers
            self._closed.pop(kind.name, None)
        else:
            self._closed[kind.name] = "no offer in the allowed zones and prices"
        self._wake.set()
        return True

    async def _unthrottled(self) -> None:
        """Waits while the platform wants to be left alone."""
        await asyncio.sleep(max(0.0, self._reconciler.throttled_until_s - self._clock()))

    async def _refused(self, error: ProviderError) -> None:
        """The reconciler hears of the error; when there were too many calls, waits until it has."""
        if isinstance(error, Throttled):
            self._ended(CallFailed(error))
            await asyncio.sleep(error.retry_after_s)

    def _problem(self, key: str, text: str) -> None:
        if text and self._problems.get(key) != text:
            log.warning("%s", text)
            self._problems[key] = text
            self._wake.set()
        elif not text:
            self._problems.pop(key, None)

    # ------------------------------------------------------------ ticks

    async def _ticks(self) -> None:
        while True:
            await _either(self._wake, self._pause_s())
            is_quiet = await self._quiet()
            knows = self._has_offers() and self._listing is not None
            if not knows and self._clock() < self._patient_until_s:
                continue
            await self._look(is_quiet)
            if self._cluster is not None:
                await self._tick(self._cluster)

    def _has_offers(self) -> bool:
        return all(kind.name in self._offers or kind.name in self._closed for kind in self._config.node_types)

    def _closed_types(self) -> dict[str, str]:
        """Nothing is launched of a type before the provider has said what it offers."""
        return {
            kind.name: self._closed.get(kind.name, "the platform is asked what it offers")
            for kind in self._config.node_types
            if kind.name in self._closed or kind.name not in self._offers
        }

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
            await _either(
                self._wake, min(max(0.0, self._changed_s + self._config.quiet_s - now), latest - now)
            )
        self._wake.clear()
        return loop.time() >= self._changed_s + self._config.quiet_s

    async def _tick(self, cluster: ClusterState) -> None:
        outcomes, self._outcomes = tuple(self._outcomes), []
        world = World(cluster, self._listing, outcomes, dict(self._offers), self._closed_types())
        now = self._clock()
        began = time.monotonic()
        self._reconciler.configure(self._config, self._provider.capabilities)
        # In a thread, for a large plan must not stop the loop. Nothing else touches the reconciler meanwhile.
        effects = await asyncio.to_thread(
            self._reconciler.step, world, now, lambda: time.monotonic() - began > PLAN_BUDGET_S
        )
        self._unsettled = self._reconciler.is_unsettled
        self._has_decided = True
        self._report = self._reconciler.report(now, tuple(self._problems.values()), time.monotonic() - began)
        await self._save()
        for effect in effects:
            self._carry_out(effect)
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

    # ------------------------------------------------------------ effects

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Create):
            work = self._create(effect)
        elif isinstance(effect, Terminate):
            work = self._terminate(effect)
        elif isinstance(effect, SetUp):
            work = self._set_up(effect)
        elif isinstance(effect, Drain):
            work = self._drain(effect)
        else:
            work = self._call_back(effect)
        task = asyncio.create_task(work)
        self._effects.add(task)
        task.add_done_callback(self._effects.discard)

    def _ended(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        self._wake.set()

    async def _create(self, effect: Create) -> None:
        request = effect.request
        if self._provider.capabilities.machines_join:
            request = replace(request, join_tokens=self._setup.join_tokens(request))
        try:
            result = await self._ask(lambda: self._provider.create(request), "create")
        except ProviderError as error:
            log.warning("creating %d x %s failed: %s", request.count, request.node_type.name, error)
            self._ended(Created(request.token, error=error))
        else:
            for refusal in result.errors:
                log.warning("a machine of type %s was refused: %s", request.node_type.name, refusal)
            self._ended(Created(request.token, result))

    async def _terminate(self, effect: Terminate) -> None:
        ids = effect.machine_ids
        try:
            answers = await self._ask(lambda: self._provider.terminate(ids), "terminate")
        except ProviderError as error:
            log.warning("terminating %d machines failed: %s", len(ids), error)
            answers = dict.fromkeys(ids, error)
        self._ended(Terminated({machine_id: answers.get(machine_id) for machine_id in ids}))
        self._list_now.set()

    async def _set_up(self, effect: SetUp) -> None:
        name = effect.instance_id
        try:
            await self._calls.run(
                lambda: self._setup.run(effect.machine, effect.node_type, name, effect.log_path),
                f"setup {name}",
                self._config.deadlines.setting_up_s,
            )
        except SetupError as error:
            log.warning("setting up %s failed: %s", name, error)
            self._ended(SetUpEnded(name, error))
        except ProviderError as error:
            log.warning("setting up %s failed: %s", name, error)
            self._ended(SetUpEnded(name, SetupError("reach the machine", str(error))))
        else:
            self._ended(SetUpEnded(name))

    async def _drain(self, effect: Drain) -> None:
        try:
            await self._control.call(
                DrainNode(effect.node_id, effect.reason, effect.only_if_idle), timeout_s=15.0
            )
        except CallError as error:
            if error.kind == ErrorKind.NOT_FOUND:
                self._ended(Drained(effect.instance_id))  # no such node any more: nothing to keep work off
            else:
                self._ended(Drained(effect.instance_id, refused=str(error)))
        else:
            self._ended(Drained(effect.instance_id))

    async def _call_back(self, effect: Resume) -> None:
        try:
            await self._control.call(ResumeNode(effect.node_id, effect.reason), timeout_s=15.0)
        except CallError as error:
            self._ended(Resumed(effect.instance_id, failure=str(error)))
        else:
            self._ended(Resumed(effect.instance_id))

    async def _ask(self, call: Callable[[], T], name: str) -> T:
        """One of the provider's calls, with its deadline."""
        return await self._calls.run(call, name, self._config.provider_timeout_s)


_STABLE = tuple(name for name in Report.__dataclass_fields__ if name not in ("at_s", "plan_s"))
"""The parts of a report whose change is worth telling at once."""


async def _either(event: asyncio.Event, timeout_s: float) -> None:
    """Waits for the event, at most so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
