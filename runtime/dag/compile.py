"""From a graph to a static schedule for each actor. Pure.

The calls of an actor run in the order in which they were bound. A result that other processes need goes through one
channel with all of them as readers; each takes it right before the first call that uses it. `check` executes the
schedules symbolically, with channels of the given capacity: processes that wait only for one channel at a time end up
in the same state whatever their speed, so one execution shows whether any can block for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

INPUT = -1
"""The producer that is the input of the execution."""
WHOLE = ""
"""The part of the input that is all of it, where other parts of it are used as well."""
DRIVER = "driver"
"""The name of the process that executes."""


class Use(msgspec.Struct, frozen=True):
    """Stands for a value in arguments: what a producer made, or a part of it.

    Attributes:
        producer: the index of a call, or INPUT.
        part: which of several results; of the input: a position, a keyword or WHOLE; None: what the channel brings.
    """

    producer: int
    part: int | str | None = None


class Call(msgspec.Struct, frozen=True):
    """One call of the graph.

    Attributes:
        index: its place in the order of binding.
        actor: whose method it is: an actor's id in hex.
        method: its name.
        args, kwargs: with `Use` in place of nodes, in containers too.
        function: what is called in the actor's process in place of a method.
    """

    index: int
    actor: str
    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    function: Callable[..., Any] | None = None


class Step(msgspec.Struct, frozen=True):
    """What an actor does for one call: takes from channels, calls, writes to the call's channel if it has one.

    Attributes:
        call: the call.
        takes: the producers whose channels are read before it, in this order.
        puts: whether the result goes to a channel.
        drops: the producers whose values are not used any more afterwards.
    """

    call: Call
    takes: tuple[int, ...]
    puts: bool
    drops: tuple[int, ...]


class Plan(msgspec.Struct, frozen=True):
    """A compiled graph, without handles and channels: it can be pickled.

    Attributes:
        schedules: the steps of each actor for one execution.
        readers: the names of the processes that read a producer's channel.
        outputs: what an execution gives.
        has_list: whether the graph ends in several outputs.
        parts: the positions and keywords of the input that are used. Without any, its channel brings the one argument,
            otherwise all positional and keyword arguments.
    """

    schedules: Mapping[str, tuple[Step, ...]]
    readers: Mapping[int, tuple[str, ...]]
    outputs: tuple[Use, ...]
    has_list: bool
    parts: tuple[int | str, ...]

    @property
    def output_producers(self) -> tuple[int, ...]:
        """The producers whose channels the driver reads, in this order."""
        return tuple(sorted({use.producer for use in self.outputs}))

    def writer_of(self, producer: int) -> str:
        """The name of the process that writes a producer's channel."""
        if producer == INPUT:
            return DRIVER
        return next(a for a, steps in self.schedules.items() if any(s.call.index == producer for s in steps))


class DeadlockError(ValueError):
    """A schedule can block for ever.

    Attributes:
        waits: for each process that waits, what it waits for.
    """

    def __init__(self, waits: Mapping[str, str]) -> None:
        self.waits = dict(waits)
        listed = "; ".join(f"{who} waits {what}" for who, what in self.waits.items())
        super().__init__(f"This schedule blocks for ever: {listed}.")


def uses_in(value: Any) -> Iterator[Use]:
    """The uses in a value, in containers too."""
    if isinstance(value, Use):
        yield value
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from uses_in(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from uses_in(part)


def plan(calls: Sequence[Call], outputs: Sequence[Use], has_list: bool) -> Plan:
    """Makes the schedules.

    Args:
        calls: in the order of binding.
        outputs: what an execution gives.
    """
    by_actor: dict[str, list[Call]] = {}
    for call in calls:
        by_actor.setdefault(call.actor, []).append(call)
    home = {call.index: call.actor for call in calls} | {INPUT: DRIVER}
    readers: dict[int, dict[str, None]] = {}
    for call in calls:
        for use in uses_in((call.args, dict(call.kwargs))):
            if home[use.producer] != call.actor:
                readers.setdefault(use.producer, {})[call.actor] = None
    for use in outputs:
        readers.setdefault(use.producer, {})[DRIVER] = None
    schedules = {actor: _schedule(own, readers) for actor, own in by_actor.items()}
    used = [use for call in calls for use in uses_in((call.args, dict(call.kwargs)))] + list(outputs)
    parts = dict.fromkeys(use.part for use in used if use.producer == INPUT and use.part not in (None, WHOLE))
    return Plan(
        schedules,
        {producer: tuple(names) for producer, names in readers.items()},
        tuple(outputs),
        has_list,
        tuple(part for part in parts if part is not None),
    )


def _schedule(calls: Sequence[Call], readers: Mapping[int, Mapping[str, None]]) -> tuple[Step, ...]:
    own = {call.index for call in calls}
    used = [
        list(dict.fromkeys(use.producer for use in uses_in((call.args, dict(call.kwargs))))) for call in calls
    ]
    steps = []
    taken: set[int] = set()
    for position, call in enumerate(calls):
        takes = [one for one in used[position] if one not in own and one not in taken]
        taken.update(takes)
        later = {one for following in used[position + 1 :] for one in following}
        drops = [one for one in {*used[position], call.index} if one not in later]
        steps.append(Step(call, tuple(takes), call.index in readers, tuple(drops)))
    return tuple(steps)


class Process(msgspec.Struct):
    """One process in a symbolic execution: its endless program of takes and puts, and how far it is."""

    name: str
    program: Sequence[tuple[str, int]]  # ("take" or "put", producer)
    rounds: int
    at: int = 0

    @property
    def is_done(self) -> bool:
        """Whether all rounds are over."""
        return self.at >= len(self.program) * self.rounds

    @property
    def next(self) -> tuple[str, int]:
        """What it does next."""
        return self.program[self.at % len(self.program)]


class World:
    """Processes and the channels between them, each with a number of values that its readers are behind.

    Args:
        plan: what runs.
        capacity: of every channel.
        rounds: executions.
    """

    def __init__(self, plan: Plan, capacity: int, rounds: int) -> None:
        self.plan = plan
        self.capacity = capacity
        self.processes = [
            Process(actor, program_of(steps), rounds) for actor, steps in plan.schedules.items()
        ]
        # The driver is two programs: what it writes does not wait for what it reads, within the capacity.
        self.processes.append(Process(DRIVER, [("put", INPUT)], rounds))
        outputs = [("take", one) for one in plan.output_producers if one != INPUT]
        self.processes.append(Process(f"{DRIVER} (results)", outputs, rounds))
        self.written = dict.fromkeys(plan.readers, 0)
        self.taken = {(one, name): 0 for one, names in plan.readers.items() for name in names}

    def can_go(self, process: Process) -> bool:
        """Whether its next operation would not wait."""
        if process.is_done:
            return False
        operation, producer = process.next
        if operation == "take":
            return self.taken[producer, _reader(process)] < self.written[producer]
        behind = [self.taken[producer, name] for name in self.plan.readers.get(producer, ())]
        return not behind or self.written[producer] - min(behind) < self.capacity

    def go(self, process: Process) -> None:
        """Does its next operation."""
        operation, producer = process.next
        if operation == "take":
            self.taken[producer, _reader(process)] += 1
        elif producer in self.written:
            self.written[producer] += 1
        process.at += 1

    def waits(self) -> dict[str, str]:
        """What the processes that are not done wait for."""
        found = {}
        for process in self.processes:
            if not process.is_done:
                operation, producer = process.next
                what = "the input" if producer == INPUT else f"the result of call {producer}"
                found[process.name] = f"to {'take' if operation == 'take' else 'write'} {what}"
        return found


def program_of(steps: Sequence[Step]) -> list[tuple[str, int]]:
    """The takes and puts of one execution."""
    program = []
    for step in steps:
        program += [("take", producer) for producer in step.takes]
        if step.puts:
            program.append(("put", step.call.index))
    return program


def _reader(process: Process) -> str:
    return DRIVER if process.name.startswith(DRIVER) else process.name


def check(plan: Plan, capacity: int) -> None:
    """Executes the schedules symbolically until the channels have been full and empty again.

    Raises:
        DeadlockError: a process waits for ever.
    """
    world = World(plan, capacity, capacity + 2)
    while True:
        ready = [process for process in world.processes if world.can_go(process)]
        if not ready:
            break
        for process in ready:
            while world.can_go(process):
                world.go(process)
    if waits := world.waits():
        raise DeadlockError(waits)
