"""One rehearsal under way: the trace is played, work is placed and ends, decisions are asked for and carried
out. Nothing sleeps; the same trace and seed give the same run.

Decisions come as in the autoscaler's loop: `quiet_s` after a change, at most `patience_s` later, every
`tick_s` while something waits or is on its way, and when the decider's own clock asks for one. Listings are
taken when a decision is due, as old as the loop's would be.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable
from functools import partial

from autoscaler.config import AutoscalerConfig
from autoscaler.demand import Shape
from autoscaler.effects import Listing
from autoscaler.provider import ProviderError
from autoscaler.reconciler import World as Picture
from autoscaler.rehearsal.clock import START_S, Clock
from autoscaler.rehearsal.cluster import ACTOR, TASK, Batch, Cluster, Group, Run
from autoscaler.rehearsal.decider import Decider, ReconcilerDecider, Restartable
from autoscaler.rehearsal.platform import Platform, Tally, Timing
from autoscaler.rehearsal.trace import (
    MOMENTARY,
    RESTARTS,
    Actors,
    Fault,
    Groups,
    Requests,
    Tasks,
    Trace,
    TraceError,
    describe,
)
from runtime._core.resources import to_units
from runtime._wire.messages.control import ClusterState, Requester

STALL_S = 7200.0
"""No work, no node and no news for so long: nothing will come of it any more."""
LIMIT_S = 14 * 86400.0
"""No rehearsal goes on for longer after the last entry of its trace."""

FAULT = "fault"
STEP = "step"

Watcher = Callable[["FakeWorld"], None]
"""Called after every moment at which something happened."""


class FakeWorld:
    """One rehearsal.

    Args:
        config: as the autoscaler gets it.
        trace: what happens.
        decider: who sizes the cluster; None: the autoscaler.
        on_event: called with time, `FAULT` or `STEP`, and a line about everything that happened.

    Attributes:
        work_ended_s: when the last work ended, in unix time.

    Raises:
        TraceError: the trace names node types that the configuration does not have.
    """

    def __init__(
        self,
        config: AutoscalerConfig,
        trace: Trace,
        decider: Decider | None = None,
        *,
        timing: Timing | None = None,
        on_event: Callable[[float, str, str], None] = lambda _at_s, _kind, _text: None,
    ) -> None:
        _check_names(config, trace)
        self.config = config
        self.trace = trace
        self.clock = Clock()
        self.cluster = Cluster(random.Random(trace.seed + 2))
        self.decider: Decider = decider or ReconcilerDecider(config)
        self.work_ended_s = START_S
        self._rng = random.Random(trace.seed)
        self._on_event = on_event
        self._batch_numbers = itertools.count(1)
        self._group_numbers = itertools.count(1)
        self._outside = 0  # entries of the trace that are to come
        self._faults = 0  # and the faults among them
        self._progress_s = START_S
        self._requested: dict[str, Requests] = {}
        self._request_numbers: dict[str, int] = {}
        self._listing: Listing | None = None
        self._listing_is_due = True
        self._tick_s = math.inf
        self._woken: tuple[float, float] | None = None
        self._version = 0
        self.platform = Platform(
            config, trace, timing or Timing(), self.clock, self.cluster, self._platform_changed
        )
        self._plan_trace()
        self.wake()

    @property
    def tally(self) -> Tally:
        """What was done so far."""
        return self.platform.tally

    # ------------------------------------------------------------ time

    def run(self, watch: Watcher = lambda _: None) -> str:
        """Lets time pass until the trace's `until_s`; without one until the cluster has come to rest.

        Returns:
            Why it ended: "until", "rest" (nothing can change any more), "stall" (only vain attempts for two
            hours) or "limit".
        """
        until_s = math.inf if self.trace.until_s is None else START_S + self.trace.until_s
        limit_s = self.clock.last_s + LIMIT_S
        watch(self)
        while self.clock.next_s <= min(until_s, limit_s):
            self.clock.advance()
            for run in self.cluster.schedule(self.clock.now):
                self._began(run)
            watch(self)
            if until_s == math.inf:
                why = self._why_over()
                if why:
                    return why
        if until_s == math.inf:
            return "limit"
        self.clock.now = until_s
        watch(self)
        return "until"

    def _why_over(self) -> str:
        # Faults that are still to come matter to nobody when no work is there.
        to_come = self.clock.pending - (0 if self.cluster.has_work else self._faults)
        is_settled = self._woken is None and not self._listing_is_due
        if is_settled and not to_come and self.decider.next_s(self.clock.now) is None:
            return "rest"
        longest_idle_s = max(self.config.idle_timeout_of(kind.name) for kind in self.config.node_types)
        is_stalled = self.clock.now - self._progress_s > STALL_S + longest_idle_s
        if is_stalled and not self._outside and not self.cluster.has_ending_work:
            return "stall"
        return ""

    def _progress(self) -> None:
        self._progress_s = self.clock.now

    def _platform_changed(self, is_progress: bool) -> None:
        if is_progress:
            self._progress()
        self._listing_is_due = True
        self.wake()

    # ------------------------------------------------------------ the trace

    def _plan_trace(self) -> None:
        """Every entry of the trace becomes events."""
        for tasks in self.trace.tasks:
            self._plan(tasks.moments(), partial(self._submit, TASK, tasks))
        for actors in self.trace.actors:
            self._plan(actors.moments(), partial(self._submit, ACTOR, actors))
        for groups in self.trace.groups:
            self._plan(groups.moments(), partial(self._submit_groups, groups))
        for requests in self.trace.requests:
            self._plan(requests.moments(), partial(self._request, requests))
        for fault in self.trace.faults:
            self._plan(fault.moments(), partial(self._strike, fault), faults=1)
            if fault.until_s is not None:
                lasts_s = fault.until_s - fault.at_s
                ends = (at_s + lasts_s for at_s in fault.moments())
                self._plan(ends, partial(self._relent, fault), faults=1)

    def _plan(self, moments: Iterable[float], action: Callable[[], None], faults: int = 0) -> None:
        for at_s in moments:
            self._outside += 1
            self._faults += faults
            self.clock.after(at_s, partial(self._happen, action, faults))

    def _happen(self, action: Callable[[], None], faults: int) -> None:
        self._outside -= 1
        self._faults -= faults
        self._progress()
        action()
        self.wake()

    def _submit(self, kind: str, entry: Tasks | Actors) -> None:
        shape = Shape.of(to_units(entry.resources), entry.selector, entry.fallbacks)
        lasts_s = entry.duration_s
        bounds = (lasts_s[0], lasts_s[1]) if isinstance(lasts_s, list) else lasts_s
        rng = random.Random(f"{self.trace.seed} {next(self._batch_numbers)}")
        self.cluster.submit(Batch(kind, shape, entry.count, bounds, self.clock.now, rng))

    def _submit_groups(self, entry: Groups) -> None:
        selectors = entry.selectors or [{} for _ in entry.bundles]
        bundles = tuple(
            Shape.of(to_units(amounts), selector)
            for amounts, selector in zip(entry.bundles, selectors, strict=True)
        )
        for _ in range(entry.count):
            lasts_s = entry.duration_s
            fixed_s = self._rng.uniform(*lasts_s) if isinstance(lasts_s, list) else lasts_s
            group_id = f"{next(self._group_numbers):018d}".encode()
            self.cluster.submit_group(Group(group_id, entry.strategy, bundles, fixed_s, self.clock.now))

    def _request(self, entry: Requests) -> None:
        number = self._request_numbers.get(entry.owner, 0) + 1
        self._request_numbers[entry.owner] = number
        self._requested[entry.owner] = entry
        if entry.ttl_s:
            self.clock.after(entry.ttl_s, partial(self._expire, entry.owner, number))

    def _expire(self, owner: str, number: int) -> None:
        if self._request_numbers[owner] == number:  # it was not renewed
            del self._requested[owner]
            self._progress()
            self.wake()

    def _strike(self, fault: Fault) -> None:
        self._tell(FAULT, describe(fault))
        if fault.kind not in MOMENTARY:
            self.platform.troubles.begin(fault)
        elif fault.kind in RESTARTS:
            self._restart(forget=fault.kind == "memory_loss")
        elif fault.kind == "spot_loss":
            self.platform.vanish(fault)
        else:
            self.platform.kill_nodes(fault)

    def _restart(self, forget: bool) -> None:
        if isinstance(self.decider, Restartable):
            self.platform.forget_asker()
            self.decider.restart(forget)
            self._listing = None
            self._listing_is_due = True

    def _relent(self, fault: Fault) -> None:
        self._tell(FAULT, f"{describe(fault)} is over")
        self.platform.troubles.end(fault)

    # ------------------------------------------------------------ work

    def _began(self, run: Run) -> None:
        self._progress()
        self.wake()
        if run.lasts_s is not None:
            self.clock.after(run.lasts_s, partial(self._end, run))

    def _end(self, run: Run) -> None:
        if not self.cluster.end(run, self.clock.now):
            return
        self.work_ended_s = self.clock.now
        self._progress()
        nodes = [run.node] if run.group is None else run.group.placed
        if self.cluster.has_waiting or any(node is not None and not node.is_busy for node in nodes):
            self.wake()

    # ------------------------------------------------------------ decisions

    def wake(self) -> None:
        """Something that the decider should know has changed."""
        first_s = self.clock.now if self._woken is None else self._woken[0]
        self._woken = first_s, self.clock.now
        self._version += 1
        self._tick_by(self._due_s())

    def _due_s(self) -> float:
        assert self._woken is not None
        first_s, last_s = self._woken
        return min(first_s + self.config.patience_s, last_s + self.config.quiet_s)

    def _tick_by(self, when_s: float) -> None:
        if when_s < self._tick_s:
            self._tick_s = when_s
            self.clock.call_at(when_s, self._maybe_tick)

    def _maybe_tick(self) -> None:
        if self.clock.now < self._tick_s:
            return  # it was put off or made already
        self._tick_s = math.inf
        if self._woken is not None and self.clock.now < self._due_s():
            self._tick_by(self._due_s())
            return
        self._woken = None
        self._tick()

    def _tick(self) -> None:
        self.tally.decisions += 1
        self._refresh_listing()
        outcomes, self.platform.outcomes = tuple(self.platform.outcomes), []
        picture = Picture(self._state(), self._listing, outcomes, self.platform.offers)
        effects = self.decider.decide(picture, self.platform.provider.capabilities, self.clock.now)
        for line in self.decider.happened():
            self._tell(STEP, line)
        for effect in effects:
            self.platform.carry_out(effect)
        next_s = self.decider.next_s(self.clock.now)
        if next_s is not None:
            self._tick_by(max(self.clock.now + 0.01, next_s))
        if not self._is_quiet():
            self._tick_by(self.clock.now + self.config.tick_s)

    def _is_quiet(self) -> bool:
        """Whether the facts are such that only time can ask for a decision."""
        living = list(self.cluster.living())
        return not (
            len(self.platform.machines) != len(living)  # machines on their way, in either direction
            or any(node.info.state == "DRAINING" or node.is_silent for node in living)
            or self.platform.under_way
            or self.platform.provider.faults.lag_s
            or self._listing_is_due
            or self._requested
            or self.cluster.has_waiting
        )

    def _refresh_listing(self) -> None:
        """Platforms are not asked more often than the loop does, unless something is known to have changed."""
        pause_s = min(1.0, self.config.tick_s)
        is_new = self._listing is not None and self.clock.now - self._listing.started_s < pause_s
        if is_new and not self._listing_is_due:
            return
        try:
            self._listing = self.platform.listing()
        except ProviderError as error:
            self._tell(FAULT, f"listing failed: {error}")
            self._listing_is_due = True
        else:
            self._listing_is_due = False

    def _state(self) -> ClusterState:
        requests = list(self._requested.values())
        return ClusterState(
            self._version,
            self.clock.now,
            self.cluster.reports(self.clock.now),
            self.cluster.demands(),
            self.cluster.pending_groups(),
            [to_units(amounts) for entry in requests for amounts in entry.bundles],
            requested_selectors=[
                one for entry in requests for one in entry.selectors or [{}] * len(entry.bundles)
            ],
            requested_counts=[entry.count for entry in requests for _ in entry.bundles],
            requesters=[Requester(entry.owner, len(entry.bundles)) for entry in requests],
            holdings=self.cluster.holdings(),
        )

    def _tell(self, kind: str, text: str) -> None:
        self._on_event(self.clock.elapsed_s, kind, text)


def _check_names(config: AutoscalerConfig, trace: Trace) -> None:
    names = {kind.name for kind in config.node_types}
    used = [(f"offers.{name}", name) for name in trace.offers]
    used += [(f"faults[{i}].node_type", f.node_type) for i, f in enumerate(trace.faults) if f.node_type]
    for path, name in used:
        if name not in names:
            raise TraceError(f"{path}: there is no node type '{name}'; there are {', '.join(sorted(names))}")
