"""Notifies drivers why their actors and placement groups wait. For tasks, the agents do so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from runtime._control.actor_queue import Line
from runtime._control.context import Context
from runtime._control.group_table import Group
from runtime._core.lease_queue import INFEASIBLE_PATIENCE_S, PATIENCE_S
from runtime._core.placement import is_group_resource
from runtime._core.resources import describe, why_infeasible
from runtime._wire.messages.control import AUTOSCALER, AutoscalerReport, LogBatch

REPEAT_S = 30.0
_LOOK_S = 0.5
_NO_PID = 0
_MOST_BUNDLES = 4
_REQUESTED = "requested "  # what the autoscaler's notes of explicit requests begin with

_Waiting = tuple[bytes, str, int, bool, str]
"""A job, what waits for what, how many of it, whether no node of now can ever hold it, and why."""


@dataclass(slots=True)
class _Wait:
    """What has been waiting since when; equal requests of a job are reported as one."""

    since: float
    told: dict[str, float] = field(default_factory=dict)  # reason -> when


class WaitingNotes:
    """Looks at what waits while anything does.

    Args:
        actors: those that no node has room for.
        groups: those with bundles that have no node.
        requests: what programs requested explicitly: (job, what, how many of it).
        send: takes lines for a job's driver.
    """

    def __init__(
        self,
        context: Context,
        actors: Callable[[], Iterable[Line]],
        groups: Callable[[], Iterable[Group]],
        requests: Callable[[], Iterable[tuple[bytes, str, int]]],
        send: Callable[[LogBatch], None],
    ) -> None:
        self._context = context
        self._lines = actors
        self._groups = groups
        self._requests = requests
        self._send = send
        self._waits: dict[tuple[bytes, str], _Wait] = {}
        self._shapes: dict[str, str] = {}
        self._of_groups: dict[bytes, str] = {}
        self._looks_soon = False
        self._has_refused_requests = False

    def learn(self, report: AutoscalerReport) -> None:
        """Takes the autoscaler's reasons."""
        self._shapes = dict(report.notes)
        self._of_groups = dict(report.group_notes)
        self._has_refused_requests = any(text.startswith(_REQUESTED) for text in self._shapes)
        self.wake()

    def wake(self) -> None:
        """Something may wait, or wait no longer."""
        if not self._looks_soon and (
            self._waits or self._has_refused_requests or any(self._lines()) or any(self._groups())
        ):
            self._looks_soon = True
            self._context.after(_LOOK_S, self._look)

    def _look(self) -> None:
        self._looks_soon = False
        now = self._context.now()
        found: dict[tuple[bytes, str], tuple[int, bool, str]] = {}
        waiting = (*self._waiting_actors(), *self._waiting_groups(), *self._waiting_requests())
        for job_id, what, number, hopeless, why in waiting:
            count = found[job_id, what][0] if (job_id, what) in found else 0
            found[job_id, what] = (count + number, hopeless, why)
        self._waits = {key: self._waits.get(key) or _Wait(now) for key in found}
        for (job_id, what), (count, hopeless, why) in found.items():
            wait = self._waits[job_id, what]
            patience = INFEASIBLE_PATIENCE_S if hopeless else PATIENCE_S
            if now - wait.since >= patience and now - wait.told.get(why, -REPEAT_S) >= REPEAT_S:
                wait.told[why] = now
                line = f"{count} {what}: {why}"
                self._send(LogBatch(job_id, b"", "", _NO_PID, AUTOSCALER, True, [line]))
        self.wake()

    def _waiting_actors(self) -> Iterable[_Waiting]:
        for line in self._lines():
            placement = line.first.spec.placement
            if any(is_group_resource(name) for name in placement.resources):
                continue  # its group is what waits, or somebody else in it is busy
            strategy = placement.strategy
            wanted = describe(placement.resources, strategy.labels, strategy.fallbacks)
            why = "every node that could hold it is busy"
            if line.infeasible:
                why = why_infeasible(strategy.labels)
            why += _in_brackets(self._shapes.get(wanted))
            for (job_id, class_name, is_spare), count in line.counts.items():
                if is_spare and not line.infeasible:
                    continue
                yield job_id, f"{class_name} actor(s) wait for {wanted}", count, line.infeasible, why

    def _waiting_groups(self) -> Iterable[_Waiting]:
        alike: dict[tuple[bytes, str, str | None], tuple[Group, int]] = {}
        for group in self._groups():
            key = group.request.job_id, group.shape, self._of_groups.get(group.pg_id)
            alike[key] = group, alike[key][1] + 1 if key in alike else 1
        for (job_id, _, reason), (group, count) in alike.items():
            bundles = ", ".join(describe(bundle) for bundle in group.request.bundles[:_MOST_BUNDLES])
            if len(group.request.bundles) > _MOST_BUNDLES:
                bundles += f", ... {len(group.request.bundles)} in all"
            why = "its bundles do not fit on what the nodes have free" + _in_brackets(reason)
            what = f"placement group(s) wait for {group.request.strategy} [{bundles}]"
            yield job_id, what, count, reason is not None, why

    def _waiting_requests(self) -> Iterable[_Waiting]:
        if not self._has_refused_requests:
            return
        for job_id, wanted, count in self._requests():
            reason = self._shapes.get(_REQUESTED + wanted)
            if reason is not None:
                yield job_id, f"x {wanted}, requested explicitly, are not all there", count, False, reason


def _in_brackets(reason: str | None) -> str:
    return f" ({reason})" if reason else ""
