"""A cluster that nobody uses ends by itself. What counts as use, and when it is time, is decided purely from facts;
`Autostop` gathers them on the head, where everything that counts can be seen.

In doubt the cluster is in use: what cannot be found out counts as use.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autoscaler.status import Report
from clusterctl.jobs.records import JobRecord
from clusterctl.spec.definition import Autostop as Policy
from runtime._clients.control import ControlClient
from runtime._transport.channel import CallError
from runtime._wire.messages import control as messages

from . import log_ins

log = logging.getLogger(__name__)

_LOOK_S = 5.0
_SOON_S = 0.2
_ANSWER_S = 10.0
SETUPS_COUNT_S = 3600.0
_SETTING_UP = frozenset({"REQUESTED", "ALLOCATED", "SETTING_UP"})


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the cluster's use.

    Attributes:
        jobs: submitted and not ended.
        drivers: programs that are connected.
        working: nodes that something holds, such as a detached actor.
        waiting: requests, placement groups and explicit requests that wait for a place or hold one.
        setups: machines that are on their way to become nodes.
        log_ins: sessions of people on the head's machine.
        unknown: what could not be found out.
        touched_s: unix time of the last request that changed something.
    """

    jobs: Sequence[str] = ()
    drivers: int = 0
    working: int = 0
    waiting: int = 0
    setups: Sequence[str] = ()
    log_ins: Sequence[str] = ()
    unknown: Sequence[str] = ()
    touched_s: float = 0.0


def uses(facts: Facts) -> list[str]:
    """What the cluster is used for, in words; empty: it is idle."""
    found = []
    if facts.jobs:
        found.append(f"jobs: {', '.join(facts.jobs)}")
    for count, one, more in (
        (facts.drivers, "program is connected", "programs are connected"),
        (facts.working, "node works", "nodes work"),
        (facts.waiting, "request waits or holds its place", "requests wait or hold their place"),
    ):
        if count:
            found.append(f"{count} {one if count == 1 else more}")
    if facts.setups:
        found.append(f"being set up: {', '.join(facts.setups)}")
    if facts.log_ins:
        found.append(f"log-ins: {', '.join(facts.log_ins)}")
    return [*found, *(f"not known: {what}" for what in facts.unknown)]


@dataclass(frozen=True, slots=True)
class Idleness:
    """Since when the cluster has been idle without a break.

    Attributes:
        is_used: it is not idle.
        wanted_s: unix time of the last use but for set-ups, or of the last request that changed something.
    """

    since_s: float
    is_used: bool = False
    wanted_s: float = 0.0

    def after(self, facts: Facts, now: float) -> Idleness:
        """As of `now`. Use restarts the clock, and so does a request that changed something. Set-ups that nobody but
        min_workers waits for may fail again and again, at a cost: they count for a while only."""
        if uses(replace(facts, setups=())):
            return Idleness(now, True, now)
        wanted_s = max(self.wanted_s or self.since_s, facts.touched_s)
        if facts.setups and now - wanted_s < SETUPS_COUNT_S:
            return Idleness(now, True, wanted_s)
        return Idleness(max(self.since_s, facts.touched_s), False, wanted_s)

    def is_over(self, policy: Policy, now: float) -> bool:
        """Whether it is time to end."""
        return not self.is_used and now - self.since_s >= policy.idle_minutes * 60


class Autostop:
    """Watches the cluster's use on its head. Belongs to the event loop.

    Args:
        jobs: lists all submitted jobs.
        report: the autoscaler's.
        end: ends the cluster, for good or not, and whatever uses it or not; returns when its end can no longer be
            stopped. It may find that there is a use after all, and return False.
        on_set: called with each policy that is set while it runs.
    """

    def __init__(
        self,
        control: ControlClient,
        jobs: Callable[[], Sequence[JobRecord]],
        report: Callable[[], Report],
        end: Callable[[bool, bool], Awaitable[bool]],
        policy: Policy | None,
        clock: Callable[[], float] = time.time,
        on_set: Callable[[Policy | None], None] = lambda policy: None,
    ) -> None:
        self._on_set = on_set
        self._control = control
        self._jobs = jobs
        self._report = report
        self._end = end
        self._clock = clock
        self._configured = self._policy = policy
        self._changed = asyncio.Event()
        self._idle = Idleness(clock())
        self._touched_s = clock()
        self._ends_now = False

    def configure(self, policy: Policy | None) -> None:
        """A new spec: what it says counts from now on, if it says something new."""
        if policy != self._configured:
            self._configured = policy
            self.set(policy)

    def set(self, policy: Policy | None) -> None:
        """Another policy until the next change; None: the cluster stays. The idle time begins anew."""
        self._policy = policy
        self._on_set(policy)
        self.touch()

    def end_now(self, down: bool) -> None:
        """Ends the cluster whatever uses it."""
        self._policy, self._ends_now = Policy(idle_minutes=0.0, down=down), True
        self._changed.set()

    def touch(self) -> None:
        """Somebody has just used the cluster."""
        self._touched_s = self._clock()
        self._changed.set()

    async def state(self) -> dict[str, Any]:
        """What `clusterctl autostop` shows."""
        policy = self._policy
        used_for = uses(await self._look())
        is_idle = policy is not None and not used_for
        return {
            "idle_minutes": None if policy is None else policy.idle_minutes,
            "down": policy is not None and policy.down,
            "uses": used_for,
            "idle_s": max(0.0, self._clock() - self._idle.since_s) if is_idle else 0.0,
        }

    async def run(self) -> None:
        """Watches until the cluster ends."""
        while True:
            policy = self._policy
            self._changed.clear()
            if policy is None:
                await self._changed.wait()  # nothing happens before somebody wants it
                continue
            facts = Facts() if self._ends_now else await self._look()
            now = self._clock()
            self._idle = self._idle.after(facts, now)
            if self._ends_now or self._idle.is_over(policy, now):
                log.info("the cluster ends: idle for %.0f s", now - self._idle.since_s)
                if await self._end(policy.down, self._ends_now):
                    return
                self._touched_s = self._clock()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(_LOOK_S, max(_SOON_S, policy.idle_minutes * 60 / 4))):
                    await self._changed.wait()

    async def _look(self) -> Facts:
        unknown = []
        drivers = working = waiting = 0
        try:
            running = (await self._control.call(messages.ListJobs(), _ANSWER_S)).jobs
            drivers = sum(1 for job in running if job.state == "RUNNING")
            state = await self._control.call(messages.WatchClusterState(timeout_s=0.0), _ANSWER_S)
            working = sum(1 for node in state.nodes if node.state != "DEAD" and not node.idle_since_s)
            waiting = sum(item.count for item in state.demands) + len(state.groups) + len(state.requesters)
        except CallError as error:
            unknown.append(f"the control store does not answer ({error})")
        try:
            people = await asyncio.to_thread(log_ins.found)
        except OSError as error:
            people = []
            unknown.append(f"who is logged in ({error})")
        instances = self._report().instances
        return Facts(
            jobs=[job.submission_id for job in self._jobs() if not job.status.is_final],
            drivers=drivers,
            working=working,
            waiting=waiting,
            setups=[instance.id for instance in instances if instance.state in _SETTING_UP],
            log_ins=people,
            unknown=unknown,
            touched_s=self._touched_s,
        )
