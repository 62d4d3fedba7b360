"""Random generators and readers in random orders: every item is taken once and in order, a worker that may go on hears
of it, what it keeps for us is released once per run, and nothing is left or freed early.
"""

from __future__ import annotations

import random
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from runtime._core import ids
from runtime._ownership.records import INLINE, INLINE_ERROR, STORED
from runtime._ownership.streams import NONE, ReaderState, SourceState, Stream, Streams
from runtime._wire.messages.worker import (
    Borrowed,
    ReleaseHold,
    StreamConsumed,
    StreamItem,
    StreamPaused,
    Value,
)
from tests.runtime._ownership.fakes import Network, WorkerLink, address_of

STEPS = 120
SEEDS = 300
TASK = b"t" * 24
ERROR = Value(INLINE_ERROR, b"outside")
RAISED = Value(INLINE_ERROR, b"raised")
OTHER = address_of("other")


class Source:
    """One attempt of the task, in a worker: it yields items in order and pauses when it is too far ahead."""

    def __init__(self, name: str, limit: int) -> None:
        self.link: Any = WorkerLink(address_of(name))
        self.limit = limit
        self.next = 0
        self.consumed = 0
        self.has_paused = False
        self.keeps = False
        """It has sent references, and was not told to let go of them."""

    def hear(self) -> None:
        """Takes what the caller has sent."""
        for message in self.link.sent:
            if isinstance(message, StreamConsumed):
                assert message.task_id == TASK
                self.consumed = 1 << 30 if message.consumed < 0 else message.consumed
                self.has_paused = False
            else:
                assert isinstance(message, ReleaseHold)
                assert self.keeps, "it was told twice to let go"
                self.keeps = False
        self.link.sent.clear()


class World:
    """One stream, its task, its reader, and the owner of what is inside the items."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.process = Network("caller").processes[0]
        self.objects, self.entries = self.process.objects, self.process.entries
        self.other = self.process.workers[OTHER.worker_id] = WorkerLink(OTHER)
        self.objects.forget_task = lambda _entry: None
        self.streams = Streams(self.objects, self.process.borrowing, self.process)
        self.task: Any = SimpleNamespace(push=SimpleNamespace(task_id=TASK), stores=lambda _entry: None)
        self.completed = self.objects.own(ids.object_id(TASK, 1), 1)
        self.collects = self.rng.random() < 0.2
        self.stream: Stream = self.streams.open(self.task, self.completed, self.collects)
        self.length = self.rng.randrange(12)
        """How many values the generator has."""
        self.limit = self.rng.choice((1, 2, 1 << 30))
        self.attempts = 0
        self.source = self.attempt()
        self.sources = [self.source]
        self.arriving: deque[tuple[str, Any]] = deque()
        self.taken: list[Any] = []
        self.count_taken = 0
        self.peeked: list[Any] = []

    def attempt(self) -> Source:
        self.attempts += 1
        return Source(f"w{self.attempts}", self.limit)

    def run(self) -> None:
        choices = [self.work] * 6 + [self.arrive] * 6 + [self.take] * 4
        choices += [self.peek, self.drop, self.register, self.crash, self.lose, self.abandon]
        for _ in range(STEPS):
            self.rng.choice(choices)()
            self.check()
        self.end()

    # ------------------------------------------------------------ the worker

    def work(self) -> None:
        source = self.source
        source.hear()
        if source.next > self.length or source.has_paused or self.stream.source is SourceState.ENDED:
            return
        if source.next == self.length:
            source.next += 1
            self.arriving.append(("end", RAISED if self.rng.random() < 0.2 else None))
        elif source.next - source.consumed >= source.limit:
            self.arriving.append(("pause", StreamPaused(TASK, source.consumed)))
            source.has_paused = True
        else:
            self.arriving.append(("item", StreamItem(TASK, source.next, self.value(source))))
            source.next += 1

    def value(self, source: Source) -> Value:
        nested = ()
        if self.rng.random() < 0.4:
            source.keeps = True
            nested = ((source.next.to_bytes(28, "big"), OTHER),)
        if self.rng.random() < 0.4:
            return Value(STORED, b"", (), nested, (source.link.peer.worker_id,), 10)
        return Value(INLINE, b"x", (), nested)

    def arrive(self) -> None:
        """The next message of the worker comes."""
        if not self.arriving:
            return
        kind, message = self.arriving.popleft()
        if kind == "item":
            self.stream.item(self.source.link, message, self.task)
        elif kind == "pause":
            self.streams.on_paused(self.source.link, message, 0)
        else:
            self.over(message)

    def over(self, error: Value | None) -> None:
        is_first = self.stream.source is SourceState.YIELDING
        self.stream.raised = error is RAISED
        value = self.stream.end(error)
        if is_first:
            collected = self.collects and error is not ERROR
            assert value is ERROR or value.data == (b"collected" if collected else NONE.data)
            self.completed.value = value

    def crash(self) -> None:
        """The worker dies: with what has not arrived. The task is tried again, or it ends."""
        if self.stream.source is SourceState.ENDED or self.rng.random() < 0.7:
            return
        self.arriving.clear()
        self.source.keeps = False
        self.source.link.close()
        if self.rng.random() < 0.5:
            self.source = self.attempt()
            self.sources.append(self.source)
        else:
            self.over(ERROR)

    # ------------------------------------------------------------ the reader

    def take(self) -> None:
        if self.stream.reader in (ReaderState.ABANDONED, ReaderState.COLLECTING, ReaderState.COLLECTED):
            return
        upcoming = self.stream.peek() if self.rng.random() < 0.3 else None
        if not self.stream.items:
            return
        ref = self.stream.items.popleft()
        if self.stream.waiting is not None:
            self.stream.resume()
        assert upcoming in (None, ref)
        self.taken.append(ref)
        if ref.entry is not self.completed:
            assert ref.entry.object_id == ids.object_id(TASK, self.count_taken + 2), "out of order, or twice"
            self.count_taken += 1

    def peek(self) -> None:
        if self.stream.reader in (ReaderState.TAKING, ReaderState.AWAITING):
            self.peeked.append(self.stream.peek())

    def drop(self) -> None:
        kept = self.rng.choice((self.taken, self.peeked))
        if kept:
            del kept[self.rng.randrange(len(kept))]
            self.process.drain()

    def abandon(self) -> None:
        if self.stream.reader in (ReaderState.TAKING, ReaderState.AWAITING) and self.rng.random() < 0.1:
            self.stream.abandon()

    # ------------------------------------------------------------ others

    def register(self) -> None:
        """The owner of what is inside answers."""
        if self.other.calls:
            self.other.calls.pop(0)(Borrowed())

    def lose(self) -> None:
        """Every copy of an item is lost. The task runs again when it has ended."""
        for ref in self.taken:
            entry = ref.entry
            if entry.value is not None and entry.value.kind == STORED:
                entry.value = None
                self.stream.lose(entry)
                break
        self.repeat()

    def repeat(self) -> None:
        if self.stream.lost and self.stream.source is SourceState.ENDED:
            self.stream.begin_again()
            self.source = self.attempt()
            self.sources.append(self.source)

    # ------------------------------------------------------------ what must hold

    def check(self) -> None:
        stream = self.stream
        assert all(entry.holds >= 0 for entry in self.entries.values())
        for ref in [*stream.items, *self.taken, *self.peeked]:
            assert self.entries.get(ref.entry.object_id) is ref.entry, "it was freed early"
        if stream.waiting is not None:  # the worker waits rightly
            assert stream.reader in (ReaderState.TAKING, ReaderState.AWAITING)
            assert not stream.lost
        if stream.reader is ReaderState.AWAITING:
            assert not stream.items or stream.ended

    def end(self) -> None:
        """Everything arrives, is taken and dropped."""
        for _ in range(1000):
            self.work()
            self.arrive()
            self.take()
            self.register()
            self.repeat()
            if self.stream.source is SourceState.ENDED and not self.arriving and not self.stream.lost:
                break
        else:
            raise AssertionError("the task or its reader waits for ever")
        while self.stream.items and not self.collects:
            if self.stream.reader is ReaderState.ABANDONED:
                raise AssertionError("an abandoned stream has items")
            self.take()
        while self.other.calls:
            self.register()
        for source in self.sources:
            source.hear()
        assert not any(source.keeps for source in self.sources), "a worker keeps references for ever"
        assert all(ref.entry.value is not None for ref in self.peeked + self.taken), "a completion was lost"
        self.peeked.clear()
        self.taken.clear()
        if self.stream.reader in (ReaderState.TAKING, ReaderState.AWAITING):
            self.stream.abandon()
        self.process.drop(self.completed)
        self.process.drain()
        left = [entry for entry in self.entries.values() if entry.owner is None]
        assert not left, f"left: {left}"
        assert not self.entries
        assert not self.process.raised


@pytest.mark.parametrize("seeds", [range(start, start + 50) for start in range(0, SEEDS, 50)], ids=str)
def test_items_come_once_in_order_and_nothing_is_left(seeds: range) -> None:
    for seed in seeds:
        try:
            World(seed).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
