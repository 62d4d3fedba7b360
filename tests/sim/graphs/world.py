"""A compiled graph in virtual time: real schedules, rings, blocks and executions; actors of chance."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from runtime._extension.channels import Pickled
from runtime._extension.channels.blocks import Blocks
from runtime._extension.channels.positions import ReaderPositions, WriterPositions
from runtime.dag.compile import DRIVER, INPUT, Plan, Step
from runtime.dag.compiled import CompiledDAG
from tests.sim.events import Events

SLOT_BYTES = 4096
LARGE_BYTES = 4 << 20


class SimValue:
    """A value, and the reader's claim on the block that it lies in."""

    def __init__(self, value: int, free: Callable[[], None]) -> None:
        self.value = value
        self.free = free


class SimChannel:
    """A ring and its blocks without memory."""

    def __init__(self, capacity: int, readers: Sequence[str]) -> None:
        self.names = list(readers)
        self.writer = WriterPositions(capacity, len(readers))
        self.readers = {name: ReaderPositions(capacity) for name in readers}
        self.looked_at: dict[int, set[str]] = {}  # who may still look at a block
        self.blocks = Blocks(0, lambda offset: offset not in self.looked_at, lambda _size: None)
        self.slots: list[tuple[int, int | None]] = [(0, None)] * capacity
        self.wakes: list[Callable[[], None]] = []

    def put(self, value: int, size_bytes: int) -> None:
        assert self.writer.room, "a writer of a graph never waits"
        offset = None
        if size_bytes > SLOT_BYTES:
            offset = self.blocks.allocate(size_bytes)
            assert offset not in self.looked_at, "the block of a value that somebody looks at"
            self.looked_at[offset] = set(self.names)
        self.slots[self.writer.slot] = value, offset
        self.writer.wrote()
        for positions in self.readers.values():
            positions.publish(1)
        wakes, self.wakes = self.wakes, []
        for wake in wakes:
            wake()

    def take(self, name: str) -> SimValue:
        value, offset = self.slots[self.readers[name].take()]
        self.writer.took(self.names.index(name), 1)

        def free() -> None:
            if offset is not None:
                self.looked_at[offset].discard(name)
                if not self.looked_at[offset]:
                    del self.looked_at[offset]

        return SimValue(value, free)


class SimGraph:
    """The actors of a plan, the channels between them, and the real `CompiledDAG` that executes it."""

    def __init__(self, events: Events, made: Plan, capacity: int) -> None:
        self.events = events
        self.channels = {one: SimChannel(capacity, names) for one, names in made.readers.items()}
        for actor, steps in made.schedules.items():
            self._go_on(self._actor(actor, steps))
        self.graph = CompiledDAG.__new__(CompiledDAG)
        self.graph._set_up(made, {}, False, capacity, False, 10**6, SLOT_BYTES)
        self.graph._input = Input(self)  # type: ignore[assignment]
        self.graph._outputs = {one: Output(self, one) for one in made.output_producers}  # type: ignore[misc]
        self.graph._is_open = True

    @property
    def size_bytes(self) -> int:
        """The memory of all channels."""
        return sum(channel.blocks.size_bytes for channel in self.channels.values())

    def some_bytes(self) -> int:
        return self.events.rng.choice((100, 100, 1 << 16, LARGE_BYTES))

    def _go_on(self, actor: Iterator[Any]) -> None:
        waits_for = next(actor)
        if isinstance(waits_for, SimChannel):
            waits_for.wakes.append(lambda: self._go_on(actor))
        else:
            self.events.at(waits_for, lambda: self._go_on(actor))

    def _actor(self, name: str, steps: Sequence[Step]) -> Iterator[SimChannel | float]:
        """Gives a channel that it waits for, or the seconds that it computes."""
        rng = self.events.rng
        while True:
            values: dict[int, SimValue] = {}
            for step in steps:
                for producer in step.takes:
                    channel = self.channels[producer]
                    while not channel.readers[name].available:
                        yield channel
                    values[producer] = channel.take(name)
                yield rng.expovariate(2.0)
                result = sum(values[arg.producer].value for arg in step.call.args) + step.call.index
                if step.puts:
                    self.channels[step.call.index].put(result, self.some_bytes())
                values[step.call.index] = SimValue(result, lambda: None)
                for producer in step.drops:
                    if (dropped := values.pop(producer, None)) is not None:
                        # Some actors keep what they were given for a while.
                        self.events.at(rng.choice((0.0, 0.0, 60.0)), dropped.free)


class Input:
    """What the graph writes its input to."""

    def __init__(self, world: SimGraph) -> None:
        self._world = world

    def write(self, pickled: Pickled, _timeout_s: float | None) -> None:
        assert isinstance(pickled, bytes)
        self._world.channels[INPUT].put(pickle.loads(pickled), self._world.some_bytes())


class Output:
    """What the graph reads a result from. The world goes on while it waits."""

    def __init__(self, world: SimGraph, producer: int) -> None:
        self._world = world
        self._channel = world.channels[producer]

    def take_until(self, _deadline: float | None) -> int:
        while not self._channel.readers[DRIVER].available:
            self._world.events.advance(self._world.events.now + 1000)
        taken = self._channel.take(DRIVER)
        self._world.events.at(self._world.events.rng.choice((0.0, 30.0)), taken.free)
        return taken.value


def expected(made: Plan, value: int) -> list[int]:
    """What an execution gives."""
    found = {INPUT: value}
    for call in sorted(
        (step.call for steps in made.schedules.values() for step in steps), key=lambda call: call.index
    ):
        found[call.index] = sum(found[arg.producer] for arg in call.args) + call.index
    return [found[use.producer] for use in made.outputs]
