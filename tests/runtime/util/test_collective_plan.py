"""The plans of collective operations: carried out for all members at once, over channels of bounded capacity."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.under_test import OWN

if not OWN:
    pytest.skip("the module's own functions", allow_module_level=True)

from runtime.util.collective import plan
from runtime.util.collective.types import ReduceOp

UFUNCS = {
    ReduceOp.SUM: np.add,
    ReduceOp.AVERAGE: np.add,
    ReduceOp.PRODUCT: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
}


class Member:
    """One member, a step at a time."""

    def __init__(self, rank: int, steps: Sequence[plan.Step], buffers: list[Any], op: ReduceOp) -> None:
        self.rank = rank
        self.steps = deque(steps)
        self.buffers = buffers
        self.op = op

    def at(self, span: plan.Span) -> Any:
        return self.buffers[span.buffer][span.start : span.stop]

    def put(self, value: Any, into: plan.Span, onto: plan.Span | None) -> None:
        self.at(into)[...] = value if onto is None else UFUNCS[self.op](self.at(onto), value)


class Channels:
    """Values on their way: shared ones by writer and reader, sent ones likewise."""

    def __init__(self, world_size: int) -> None:
        ranks = range(world_size)
        self.shared: dict[tuple[int, int], deque[Any]] = {(a, b): deque() for a in ranks for b in ranks}
        self.sent: dict[tuple[int, int], deque[Any]] = {(a, b): deque() for a in ranks for b in ranks}
        self.world_size = world_size

    def step(self, member: Member) -> bool:
        """Whether the member could take its next step."""
        step, rank = member.steps[0], member.rank
        if isinstance(step, plan.Share):
            queues = [self.shared[rank, peer] for peer in plan.others(self.world_size, rank)]
            if any(len(queue) >= plan.MAX_AHEAD for queue in queues):
                return False
            for queue in queues:
                queue.append([member.at(span).copy() for span in step.spans])
        elif isinstance(step, plan.Send):
            queue = self.sent[rank, step.peer]
            if len(queue) >= plan.MAX_AHEAD:
                return False
            queue.append([member.at(step.span).copy()])
        elif isinstance(step, plan.Take):
            queue = (self.sent if step.is_sent else self.shared)[step.peer, rank]
            if not queue:
                return False
            value = queue.popleft()
            if step.into is not None:
                member.put(value[step.part or 0], step.into, step.onto)
        elif isinstance(step, plan.Local):
            member.put(member.at(step.span), step.into, step.onto)
        elif member.op is ReduceOp.AVERAGE:
            member.at(step.span)[...] = (member.at(step.span) / self.world_size).astype(
                member.buffers[0].dtype
            )
        member.steps.popleft()
        return True


def carry_out(
    shape: plan.Shape,
    buffers: list[list[Any]],
    plan_of: Callable[[int], Sequence[plan.Step]],
    op: ReduceOp = ReduceOp.SUM,
    seed: int = 0,
) -> None:
    """Lets the members run at random speeds until all are done."""
    order = random.Random(seed)
    channels = Channels(shape.world_size)
    waiting = [Member(rank, plan_of(rank), buffers[rank], op) for rank in range(shape.world_size)]
    waiting = [member for member in waiting if member.steps]
    while waiting:
        order.shuffle(waiting)
        eager = order.randrange(1, 30)
        moved = False
        for member in waiting:
            for _ in range(eager):
                if not member.steps or not channels.step(member):
                    break
                moved = True
        waiting = [member for member in waiting if member.steps]
        assert moved or not waiting, "the members wait for each other"
    left = [*channels.shared.values(), *channels.sent.values()]
    assert not any(left), "values that nobody takes"


def arrays(world_size: int, count: int, number: int, dtype: str, seed: int) -> list[list[Any]]:
    """For each member `number` arrays of small integers, which no order of additions rounds."""
    random_numbers = np.random.default_rng(seed)
    return [
        [random_numbers.integers(1, 4, count).astype(dtype) for _ in range(number)] for _ in range(world_size)
    ]


def reduced(values: Sequence[Any], op: ReduceOp) -> Any:
    result = UFUNCS[op].reduce(values, dtype=values[0].dtype)
    return (result / len(values)).astype(result.dtype) if op is ReduceOp.AVERAGE else result


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "CHUNK_BYTES", 64)
    monkeypatch.setattr(plan, "EXCHANGED_BYTES", 40)


def cases() -> list[Any]:
    order = random.Random(1)
    found = []
    for world_size in range(1, 9):
        for count in (0, 1, 2, 7, 16, 17, 100, order.randrange(1000)):
            dtype = order.choice(["f4", "f8", "i4", "u1", "c8", "f2"])
            found.append((world_size, count, dtype, order.choice([True, False]), order.randrange(1000)))
    return found


CASES = pytest.mark.parametrize(("world_size", "count", "dtype", "is_spread", "seed"), cases())


@CASES
@pytest.mark.parametrize("op", list(ReduceOp))
def test_allreduce(world_size: int, count: int, dtype: str, is_spread: bool, seed: int, op: ReduceOp) -> None:
    shape = plan.Shape(world_size, count, np.dtype(dtype).itemsize, is_spread)
    buffers = arrays(world_size, count, 2, dtype, seed)
    expected = reduced([own[0] for own in buffers], op)
    carry_out(shape, buffers, lambda rank: plan.allreduce(shape, rank), op, seed)
    for own in buffers:
        assert np.array_equal(own[0], expected)


@CASES
def test_reduce_and_broadcast(world_size: int, count: int, dtype: str, is_spread: bool, seed: int) -> None:
    shape = plan.Shape(world_size, count, np.dtype(dtype).itemsize, is_spread)
    buffers = arrays(world_size, count, 1, dtype, seed)
    before = [own[0].copy() for own in buffers]
    root = seed % world_size
    carry_out(shape, buffers, lambda rank: plan.reduce(shape, rank, root), ReduceOp.SUM, seed)
    expected = reduced(before, ReduceOp.SUM)
    for rank, own in enumerate(buffers):
        assert np.array_equal(own[0], expected if rank == root else before[rank])
    carry_out(shape, buffers, lambda rank: plan.broadcast(shape, rank, root), seed=seed)
    assert all(np.array_equal(own[0], expected) for own in buffers)


@CASES
def test_allgather(world_size: int, count: int, dtype: str, is_spread: bool, seed: int) -> None:
    shape = plan.Shape(world_size, count, np.dtype(dtype).itemsize, is_spread)
    buffers = arrays(world_size, count, 1 + world_size, dtype, seed)
    expected = [own[0].copy() for own in buffers]
    carry_out(shape, buffers, lambda rank: plan.allgather(shape, rank), seed=seed)
    for own in buffers:
        assert np.array_equal(own[1:], expected)


@CASES
@pytest.mark.parametrize("op", [ReduceOp.SUM, ReduceOp.AVERAGE])
def test_reducescatter(
    world_size: int, count: int, dtype: str, is_spread: bool, seed: int, op: ReduceOp
) -> None:
    shape = plan.Shape(world_size, count, np.dtype(dtype).itemsize, is_spread)
    buffers = arrays(world_size, count, 1 + world_size, dtype, seed)
    before = [[one.copy() for one in own] for own in buffers]
    carry_out(shape, buffers, lambda rank: plan.reducescatter(shape, rank), op, seed)
    for rank, own in enumerate(buffers):
        assert np.array_equal(own[0], reduced([one[1 + rank] for one in before], op))
        assert np.array_equal(own[1:], before[rank][1:])


@pytest.mark.parametrize("world_size", range(1, 9))
def test_barrier(world_size: int) -> None:
    shape = plan.Shape(world_size, 0, 1)
    carry_out(shape, [[] for _ in range(world_size)], lambda rank: plan.barrier(shape, rank))


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_one_to_one(count: int) -> None:
    shape = plan.Shape(2, count, 8)
    buffers = arrays(2, count, 1, "f8", count)
    sent = buffers[0][0].copy()
    carry_out(shape, buffers, lambda rank: plan.receive(shape, 0) if rank else plan.send(shape, 1))
    assert np.array_equal(buffers[1][0], sent)


def test_every_member_rounds_alike() -> None:
    for world_size in range(1, 9):
        for count in (3, 300):
            shape = plan.Shape(world_size, count, 4)
            random_numbers = np.random.default_rng(count)
            buffers = [
                [random_numbers.random(count, dtype="f4") for _ in range(2)] for _ in range(world_size)
            ]
            carry_out(shape, buffers, lambda rank, shape=shape: plan.allreduce(shape, rank))
            assert all(np.array_equal(own[0], buffers[0][0]) for own in buffers)


@pytest.mark.parametrize("world_size", range(1, 9))
@pytest.mark.parametrize(("start", "stop"), [(0, 0), (3, 4), (0, 100), (5, 106)])
def test_slices_cover_all_and_are_even(world_size: int, start: int, stop: int) -> None:
    found = plan.slices(start, stop, world_size)
    assert [at for edges in found for at in range(*edges)] == list(range(start, stop))
    assert len({b - a for a, b in found}) <= 2


def test_a_chunk_is_under_way_while_one_is_taken() -> None:
    shape = plan.Shape(2, 64, 4)
    kinds = [type(step).__name__ for step in plan.allreduce(shape, 0)]
    assert kinds[:6] == ["Share", "Take", "Share", "Share", "Take", "Finish"]
