"""Random programs over several processes, delivered in random orders: no object is freed while something refers to it,
no reader waits for ever, and nothing is left once nobody refers to anything.
"""

from __future__ import annotations

import random

import pytest

from runtime._ownership.records import INLINE, INLINE_ERROR, Entry
from runtime._wire.messages.worker import Value
from tests.runtime._ownership.fakes import LOSSES, PLAIN, Network, Process, object_name

STEPS = 120
SEEDS = 250


class Program:
    """What the processes of one run do, at random."""

    def __init__(self, seed: int, kills: int) -> None:
        self.rng = random.Random(seed)
        self.network = Network("a", "b", "c")
        self.refs: dict[Process, list[Entry]] = {process: [] for process in self.network.processes}
        self.pending: list[tuple[Process, Entry]] = []
        self.completions: dict[int, int] = {}
        self.readers: dict[int, tuple[Process, Entry]] = {}
        self.made = 0
        self.kills = kills

    @property
    def alive(self) -> list[Process]:
        return [process for process in self.network.processes if process.alive]

    def run(self) -> None:
        choices = [self.make, self.make_inside, self.give, self.give, self.drop, self.drop, self.drop]
        choices += [self.read, self.finish] + [self.deliver] * 5
        for step in range(STEPS):
            if self.kills and step == STEPS // 2:
                self.network.kill(self.rng.choice(self.network.processes[1:]))
            self.rng.choice(choices)()
            self.check()
        self.end()

    def make(self) -> None:
        """An object of a process, whose value comes at once or later."""
        process = self.rng.choice(self.alive)
        self.made += 1
        entry = process.objects.own(object_name(f"o{self.made}"), 1)
        self.refs[process].append(entry)
        if self.rng.random() < 0.5:
            process.objects.set_value(entry, PLAIN)
        else:
            self.pending.append((process, entry))
            entry.hold()  # its task

    def make_inside(self) -> None:
        """An object whose value contains references."""
        process = self.rng.choice(self.alive)
        inner = self.some(process)
        if inner is None:
            return
        self.made += 1
        entry = process.objects.own(object_name(f"o{self.made}"), 1)
        process.objects.table.contain(entry, [inner])
        process.objects.set_value(entry, Value(INLINE, b"", (), process.objects.nested_of([inner])))
        self.refs[process].append(entry)

    def some(self, process: Process) -> Entry | None:
        self.collect()
        return self.rng.choice(self.refs[process]) if self.refs[process] else None

    def collect(self) -> None:
        """What has arrived belongs to the program of its process."""
        for process in self.network.processes:
            self.refs[process] += process.received
            process.received.clear()

    def give(self) -> None:
        process = self.rng.choice(self.alive)
        others = [other for other in self.alive if other is not process]
        entry = self.some(process)
        if entry is not None and others:
            process.give(entry, self.rng.choice(others))

    def drop(self) -> None:
        process = self.rng.choice(self.alive)
        entry = self.some(process)
        if entry is not None:
            self.refs[process].remove(entry)
            process.drop(entry)
            if self.rng.random() < 0.7:
                process.drain()

    def read(self) -> None:
        """Waits for a value, holding a reference meanwhile, as a program does."""
        process = self.rng.choice(self.alive)
        entry = self.some(process)
        if entry is None:
            return
        number = len(self.completions)
        self.completions[number] = 0
        self.readers[number] = process, entry
        entry.hold()

        def ready() -> None:
            self.completions[number] += 1
            value = entry.value
            assert value is not None
            if value.kind == INLINE_ERROR:
                assert self.network.killed, f"{value.data.decode()} although nobody died"
                assert value.data in LOSSES
            for object_id, _owner in value.nested:
                inner = process.entries.get(object_id)
                if inner is not None:  # the reader takes what is inside
                    inner.hold()
                    self.refs[process].append(inner)
            process.drop(entry)

        process.objects.call_when_ready(entry, ready)

    def finish(self) -> None:
        """A task gives its result."""
        if self.pending:
            process, entry = self.pending.pop(self.rng.randrange(len(self.pending)))
            if process.alive:
                process.objects.set_value(entry, PLAIN)
                process.objects.release(entry)

    def deliver(self) -> None:
        busy = self.network.busy()
        if busy:
            self.rng.choice(busy).deliver()
            self.collect()

    def check(self) -> None:
        """What a process holds and has registered, its owner knows."""
        owners = {process.address.worker_id: process for process in self.alive}
        for process in self.alive:
            for entry in process.entries.values():
                assert entry.holds >= 0
                owner = owners.get(entry.owner.worker_id) if entry.owner is not None else None
                if owner is None or not entry.registered:
                    continue
                theirs = owner.entries.get(entry.object_id)
                lost = entry.value is not None and entry.value.data in LOSSES
                if theirs is None or process.address.worker_id not in (theirs.borrowers or ()):
                    assert lost, f"{entry.object_id!r} was freed while {process.name} borrowed it"
                    assert self.network.killed

    def end(self) -> None:
        """Everything is delivered, finished and dropped: nothing is left, and every reader was called once."""
        while self.pending:
            self.finish()
        self.network.run_at_random(self.rng)
        waiting = [self.readers[number] for number, count in self.completions.items() if count != 1]
        assert not [reader for reader in waiting if reader[0].alive], "a completion was lost, or came twice"
        while True:
            self.collect()
            left = [(process, entry) for process in self.alive for entry in self.refs[process]]
            if not left and not any(process.released for process in self.alive) and not self.network.busy():
                break
            for process, entry in left:
                self.refs[process].remove(entry)
                process.drop(entry)
            for process in self.alive:
                process.drain()
            self.network.run_at_random(self.rng)
        for process in self.alive:
            assert not process.borrowing.unanswered
            if not self.network.killed:  # else what was on its way to the dead is held for ever here
                assert not process.lent
                assert not process.entries, f"{process.name} keeps {list(process.entries.values())}"
            assert not process.raised


@pytest.mark.parametrize("kills", [0, 1])
@pytest.mark.parametrize("seeds", [range(start, start + 50) for start in range(0, SEEDS, 50)], ids=str)
def test_nothing_is_freed_early_lost_or_left(seeds: range, kills: int) -> None:
    for seed in seeds:
        try:
            Program(seed, kills).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}, {kills} kills: {error}") from error
