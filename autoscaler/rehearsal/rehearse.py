"""One rehearsal from beginning to end: the timeline of nodes, queue and cost, and what it comes to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.config import AutoscalerConfig
from autoscaler.demand import Gang, Shape
from autoscaler.provider import Machine, MachineState
from autoscaler.rehearsal.clock import START_S
from autoscaler.rehearsal.cluster import Group, Waits
from autoscaler.rehearsal.decider import Decider
from autoscaler.rehearsal.meter import HOUR_S
from autoscaler.rehearsal.platform import Tally, Timing
from autoscaler.rehearsal.trace import MOMENTARY, Fault, Trace, describe
from autoscaler.rehearsal.world import FAULT, STEP, FakeWorld
from runtime._core.resources import UNIT, to_units

__all__ = [
    "DRAINING",
    "ENDING",
    "FAULT",
    "RUNNING",
    "STARTING",
    "STEP",
    "Event",
    "Result",
    "Sample",
    "Summary",
    "rehearse",
]

STARTING = "starting"
RUNNING = "running"
DRAINING = "draining"
ENDING = "ending"
STATES = (STARTING, RUNNING, DRAINING, ENDING)
"""What a worker's machine can be: without a node yet; with one; with one that takes no new work; without one
any more, or being ended."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster from one moment on.

    Attributes:
        nodes: node type -> state -> machines. Workers only.
        queue: what waits, as text -> how many.
        working: tasks, actors and groups that run.
        cost: paid so far.
    """

    at_s: float
    nodes: Mapping[str, Mapping[str, int]]
    queue: Mapping[str, int]
    working: int
    cost: float

    @property
    def machines(self) -> int:
        return sum(count for states in self.nodes.values() for count in states.values())

    def in_state(self, state: str) -> int:
        return sum(states.get(state, 0) for states in self.nodes.values())

    @property
    def waiting(self) -> int:
        return sum(self.queue.values())


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, in words. `kind`: `FAULT` (of the trace) or `STEP` (of the decider)."""

    at_s: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Mishap:
    """A fault of the trace, in words; `until_s` is None when it is the affair of a moment."""

    at_s: float
    until_s: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Waited:
    """How long work of one kind waited, from being asked for until it began. Work lost with its node waits
    anew, and counts again."""

    count: int
    mean_s: float
    p50_s: float
    p95_s: float
    max_s: float

    @classmethod
    def of(cls, *waits: Waits) -> Waited:
        samples = sorted(sample for one in waits for sample in one.samples)
        count = sum(number for _, number in samples)
        if not count:
            return cls(0, 0.0, 0.0, 0.0, 0.0)
        mean_s = sum(waited_s * number for waited_s, number in samples) / count
        return cls(count, mean_s, _quantile(samples, 0.5), _quantile(samples, 0.95), samples[-1][0])


def _quantile(samples: Sequence[tuple[float, int]], share: float) -> float:
    """The least wait that at least `share` of all did not exceed."""
    wanted = share * sum(number for _, number in samples)
    seen = 0
    for waited_s, number in samples:
        seen += number
        if seen >= wanted:
            return waited_s
    return samples[-1][0]


@dataclass(frozen=True, slots=True)
class Unserved:
    """What still waited at the end, and why."""

    what: str
    count: int
    why: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What a rehearsal comes to.

    Attributes:
        ended: why it ended, see `FakeWorld.run`.
        end_s: when it ended: all machines up to then are paid.
        makespan_s: when the last work ended.
        cost: of all workers (not the head), by type in `cost_of`.
        node_hours: per node type, from a machine's creation until it was gone.
        utilization: per resource, the share of what was paid that work held which was not lost.
        waited: per kind of work ("task", "actor", "group") and in all ("all").
        interrupted: pieces of work that lost their node, or were lost with it.
        most_machines: at one time.
        tally: launches, removals, failures, decisions.
    """

    name: str
    ended: str
    end_s: float
    makespan_s: float
    cost: float
    cost_of: Mapping[str, float]
    node_hours: Mapping[str, float]
    utilization: Mapping[str, float]
    waited: Mapping[str, Waited]
    finished: Mapping[str, int]
    interrupted: Mapping[str, int]
    most_machines: int
    tally: Tally
    unserved: tuple[Unserved, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """A rehearsal: `samples` in order of time, each valid until the next."""

    summary: Summary
    samples: tuple[Sample, ...]
    events: tuple[Event, ...]
    mishaps: tuple[Mishap, ...] = ()

    def at(self, at_s: float) -> Sample:
        """The cluster as it was at a time."""
        found = self.samples[0]
        for sample in self.samples:
            if sample.at_s > at_s:
                break
            found = sample
        return found

    def thinned(self, columns: int) -> list[Sample]:
        """At most two samples for each of `columns` equal parts of the time: with the fullest queue, and the last."""
        end_s = max(self.summary.end_s, 1e-9)
        parts: dict[int, list[Sample]] = {}
        for sample in self.samples:
            parts.setdefault(min(columns - 1, int(sample.at_s / end_s * columns)), []).append(sample)
        out: list[Sample] = []
        for part in parts.values():
            fullest = max(part, key=lambda sample: sample.waiting)
            out += [part[-1]] if fullest is part[-1] else [fullest, part[-1]]
        return out


def rehearse(
    config: AutoscalerConfig, trace: Trace, decider: Decider | None = None, *, timing: Timing | None = None
) -> Result:
    """Runs a trace against a configuration.

    Args:
        config: node types with their limits, as the autoscaler gets it.
        trace: demand and faults; `trace.seed` decides all that is drawn.
        decider: who sizes the cluster; None: the autoscaler itself.
        timing: how long the platform takes.

    Raises:
        TraceError: the trace does not suit the configuration.
    """
    events: list[Event] = []
    world = FakeWorld(
        config,
        trace,
        decider,
        timing=timing,
        on_event=lambda at_s, kind, text: events.append(Event(at_s, kind, text)),
    )
    recorder = _Recorder()
    ended = world.run(recorder.watch)
    world.cluster.settle(world.clock.now)
    recorder.finish(world)
    summary = _summary(world, ended, recorder)
    return Result(
        summary, tuple(recorder.samples), tuple(events), tuple(_mishaps(trace.faults, summary.end_s))
    )


def _mishaps(faults: Iterable[Fault], end_s: float) -> Iterator[Mishap]:
    for fault in faults:
        for at_s in fault.moments():
            if at_s > end_s:
                continue
            over_s: float | None = None
            if fault.kind not in MOMENTARY:
                over_s = end_s if fault.until_s is None else min(end_s, at_s + fault.until_s - fault.at_s)
            yield Mishap(at_s, over_s, describe(fault))


@dataclass(slots=True)
class _Recorder:
    """Keeps a sample whenever nodes, queue or running work changed."""

    samples: list[Sample] = field(default_factory=list)
    labels: dict[Shape, str] = field(default_factory=dict)
    nodes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    counted_at: tuple[int, tuple[Machine, ...]] = (-1, ())

    def watch(self, world: FakeWorld) -> None:
        """Keeps a sample if something changed."""
        sample = self._sample(world)
        last = self.samples[-1] if self.samples else None
        if last is None or (last.nodes, last.queue, last.working) != (
            sample.nodes,
            sample.queue,
            sample.working,
        ):
            self.samples.append(sample)

    def finish(self, world: FakeWorld) -> None:
        """Keeps a last sample, whatever it is."""
        self.samples.append(self._sample(world))

    def _sample(self, world: FakeWorld) -> Sample:
        return Sample(
            world.clock.elapsed_s, self._nodes(world), self._queue(world), _working(world), _cost(world)
        )

    def _nodes(self, world: FakeWorld) -> Mapping[str, Mapping[str, int]]:
        """Counted anew only when machines or nodes changed: most moments are ends of tasks."""
        if self.counted_at != (world.cluster.version, world.platform.machines):
            self.counted_at = world.cluster.version, world.platform.machines
            self.nodes = _count(world)
        return self.nodes

    def _queue(self, world: FakeWorld) -> dict[str, int]:
        queue: dict[str, int] = {}
        for shape, count in world.cluster.waiting().items():
            label = self.labels.get(shape)
            if label is None:
                label = self.labels[shape] = str(shape)
            queue[label] = queue.get(label, 0) + count
        for group in world.cluster.waiting_groups():
            label = describe_group(group)
            queue[label] = queue.get(label, 0) + 1
        return queue


def describe_group(group: Group) -> str:
    """A group as the autoscaler writes it."""
    return str(Gang(group.id, group.strategy, group.bundles))


def _cost(world: FakeWorld) -> float:
    return sum(world.platform.meter.cost_by_type(world.clock.now).values())


def _working(world: FakeWorld) -> int:
    cluster = world.cluster
    ended = sum(cluster.finished.values()) + sum(cluster.interrupted.values())
    return sum(cluster.started.values()) - ended


def _count(world: FakeWorld) -> dict[str, dict[str, int]]:
    states = {node.machine_id: node.info.state for node in world.cluster.nodes.values()}
    nodes: dict[str, dict[str, int]] = {}
    for machine in world.platform.machines:
        if machine.is_head:
            continue
        known = states.get(machine.id)
        if machine.state is MachineState.STOPPING or known == "DEAD":
            state = ENDING
        elif known is None:
            state = STARTING
        else:
            state = DRAINING if known == "DRAINING" else RUNNING
        counts = nodes.setdefault(machine.node_type, {})
        counts[state] = counts.get(state, 0) + 1
    return nodes


# ---------------------------------------------------------------- the summary


def _summary(world: FakeWorld, ended: str, recorder: _Recorder) -> Summary:
    cluster = world.cluster
    seconds = world.platform.meter.seconds_by_type(world.clock.now)
    costs = world.platform.meter.cost_by_type(world.clock.now)
    waited = {kind: Waited.of(waits) for kind, waits in cluster.waits.items()}
    waited["all"] = Waited.of(*cluster.waits.values())
    return Summary(
        name=world.trace.name,
        ended=ended,
        end_s=world.clock.elapsed_s,
        makespan_s=world.work_ended_s - START_S,
        cost=sum(costs.values()),
        cost_of=costs,
        node_hours={name: spent / HOUR_S for name, spent in seconds.items()},
        utilization=_utilization(world, seconds),
        waited=waited,
        finished=dict(cluster.finished),
        interrupted=dict(cluster.interrupted),
        most_machines=max(sample.machines for sample in recorder.samples),
        tally=world.tally,
        unserved=_unserved(world),
    )


def _utilization(world: FakeWorld, seconds: Mapping[str, float]) -> dict[str, float]:
    paid: dict[str, float] = {}
    held: dict[str, float] = {}
    for kind in world.config.node_types:
        for name, amount in to_units(kind.resources).items():
            paid[name] = paid.get(name, 0.0) + amount * seconds.get(kind.name, 0.0) / UNIT
            used = world.cluster.held.get((kind.name, name), 0.0)
            held[name] = held.get(name, 0.0) + used / UNIT
    return {
        name: held[name] / paid[name]
        for name in paid
        if paid[name] and (held[name] or name in ("CPU", "GPU"))
    }


def _unserved(world: FakeWorld) -> tuple[Unserved, ...]:
    notes = world.decider.unserved()
    why = {note.demand: note.why for note in notes if not note.group}
    why_group = {note.group: note.why for note in notes if note.group}
    busy = "the nodes that could hold it are busy"
    counts: dict[tuple[str, str], int] = {}
    waiting = {str(shape): count for shape, count in world.cluster.waiting().items()}
    for what, count in waiting.items():
        counts[what, why.get(what, busy)] = count
    for group in world.cluster.waiting_groups():
        key = describe_group(group), why_group.get(group.id, busy)
        counts[key] = counts.get(key, 0) + 1
    for note in notes:  # the minimum, and explicit requests
        if not note.group and note.demand not in waiting:
            counts[note.demand, note.why] = note.count
    return tuple(Unserved(what, count, why) for (what, why), count in counts.items())
