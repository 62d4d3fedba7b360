"""Which member sends which elements to whom, and when. Pure: `group` carries the plans out.

A plan is what one member does, a list of steps over numbered buffers of equal length (the tensors of one call). What a
member shares, every other one takes, in the same order; what it sends goes to one. Large tensors go in chunks, and the
next chunk is under way while one is taken, so that memory stays small and all members copy at the same time.

No member is ever more than `MAX_AHEAD` values ahead of what another has taken: channels of that capacity do not block.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

CHUNK_BYTES = 8 << 20
EXCHANGED_BYTES = 64 << 10
"""Up to this size every member reduces everything itself: one exchange instead of two."""
MAX_AHEAD = 8


class Span(NamedTuple):
    """Elements `start` to `stop` of a buffer."""

    buffer: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Share:
    """Writes spans, as one value, for all other members."""

    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Send:
    """Writes a span for one member."""

    peer: int
    span: Span


@dataclass(frozen=True, slots=True)
class Take:
    """Reads the next value of a member.

    Attributes:
        peer: who wrote it.
        part: which of the spans it shared; None: nothing of it, or it was sent to this member alone.
        into: where the elements go; None: nowhere.
        onto: what they are combined with by the reduction; None: they are copied.
        is_sent: whether the member sent it to this one instead of sharing it.
    """

    peer: int
    part: int | None
    into: Span | None
    onto: Span | None = None
    is_sent: bool = False


@dataclass(frozen=True, slots=True)
class Local:
    """Like `Take`, of this member's own elements."""

    span: Span
    into: Span
    onto: Span | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """The span has been reduced over all members; an average is divided now."""

    span: Span


Step = Share | Send | Take | Local | Finish


class Shape(NamedTuple):
    """What plans depend on; the same for all members of one call.

    Attributes:
        world_size: the number of members.
        elements: of each buffer.
        item_bytes: bytes of an element.
        is_spread: whether members are on several nodes. Then slices are sent to those that need them only.
    """

    world_size: int
    elements: int
    item_bytes: int
    is_spread: bool = False

    @property
    def size_bytes(self) -> int:
        """Of one buffer."""
        return self.elements * self.item_bytes


@lru_cache(maxsize=64)
def chunks(shape: Shape) -> Sequence[tuple[int, int]]:
    """The buffer in pieces of at most `CHUNK_BYTES`; one empty piece if there are no elements."""
    size = max(1, CHUNK_BYTES // shape.item_bytes)
    return [(at, min(at + size, shape.elements)) for at in range(0, shape.elements, size)] or [(0, 0)]


def slices(start: int, stop: int, world_size: int) -> list[tuple[int, int]]:
    """A piece of the buffer divided among the members, as evenly as possible."""
    edges = [start + (stop - start) * rank // world_size for rank in range(world_size + 1)]
    return list(itertools.pairwise(edges))


def allreduce(shape: Shape, rank: int) -> list[Step]:
    """Buffer 0 becomes the reduction of all buffers 0. With three or more members and small tensors, buffer 1 is used
    as well (see `needs_scratch`)."""
    if needs_scratch(shape):
        return _exchange_in_order(shape, rank)
    if shape.world_size <= 2:
        return _opened(shape, rank, [_exchanged(shape, rank, *chunk) for chunk in chunks(shape)])
    return _opened(shape, rank, [_reduced_by_slices(shape, rank, *chunk) for chunk in chunks(shape)])


def needs_scratch(shape: Shape) -> bool:
    """Whether `allreduce` uses a second buffer.

    Every member then combines all tensors in the order of the ranks. Combining the own one with the others as they
    come would round differently on each member; between two it does not.
    """
    return shape.world_size > 2 and shape.size_bytes <= EXCHANGED_BYTES


def reduce(shape: Shape, rank: int, root: int) -> list[Step]:
    """Buffer 0 of `root` becomes the reduction of all buffers 0."""
    stages: list[list[list[Step]]] = []
    for chunk in chunks(shape):
        span = Span(0, *chunk)
        if rank != root:
            stages.append([[Send(root, span)]])
        else:
            takes: list[Step] = [
                Take(peer, None, span, span, is_sent=True) for peer in others(shape.world_size, rank)
            ]
            stages.append([[*takes, Finish(span)]])
    return list(_pipelined(stages))


def broadcast(shape: Shape, rank: int, root: int) -> list[Step]:
    """Every buffer 0 becomes that of `root`."""
    stages: list[list[list[Step]]] = []
    for chunk in chunks(shape):
        span = Span(0, *chunk)
        stages.append([[Share((span,)) if rank == root else Take(root, 0, span)]])
    return list(_pipelined(stages))


def allgather(shape: Shape, rank: int) -> list[Step]:
    """Buffer `1 + r` becomes buffer 0 of member r."""
    stages: list[list[list[Step]]] = []
    for chunk in chunks(shape):
        span = Span(0, *chunk)
        takes: list[Step] = [Take(peer, 0, Span(1 + peer, *chunk)) for peer in others(shape.world_size, rank)]
        stages.append([[Share((span,))], [Local(span, Span(1 + rank, *chunk)), *takes]])
    return _opened(shape, rank, stages)


def reducescatter(shape: Shape, rank: int) -> list[Step]:
    """Buffer 0 becomes the reduction of all buffers `1 + rank`."""
    stages: list[list[list[Step]]] = []
    peers = others(shape.world_size, rank)
    for chunk in chunks(shape):
        target, mine = Span(0, *chunk), Span(1 + rank, *chunk)
        given: list[Step]
        if shape.is_spread:
            given = [Send(peer, Span(1 + peer, *chunk)) for peer in peers]
        else:
            given = [Share(tuple(Span(1 + peer, *chunk) for peer in peers))]
        taken: list[Step] = [
            _take_own(shape, peer, rank, target, mine if index == 0 else target)
            for index, peer in enumerate(peers)
        ]
        if not peers:
            taken = [Local(mine, target)]
        stages.append([given, [*taken, Finish(target)]])
    return _opened(shape, rank, stages)


def barrier(shape: Shape, rank: int) -> list[Step]:
    """Nobody ends before all have begun."""
    return [Share(()), *(Take(peer, None, None) for peer in others(shape.world_size, rank))]


def send(shape: Shape, peer: int) -> list[Step]:
    """Buffer 0 goes to one member."""
    return [Send(peer, Span(0, *chunk)) for chunk in chunks(shape)]


def receive(shape: Shape, peer: int) -> list[Step]:
    """Buffer 0 becomes what one member sends."""
    return [Take(peer, None, Span(0, *chunk), is_sent=True) for chunk in chunks(shape)]


def others(world_size: int, rank: int) -> list[int]:
    """All ranks but one, in order."""
    return [peer for peer in range(world_size) if peer != rank]


def _exchange_in_order(shape: Shape, rank: int) -> list[Step]:
    whole, scratch = Span(0, 0, shape.elements), Span(1, 0, shape.elements)
    steps: list[Step] = [Share((whole,))]
    for peer in range(shape.world_size):
        onto = scratch if peer else None
        steps.append(Local(whole, scratch, onto) if peer == rank else Take(peer, 0, scratch, onto))
    return [*steps, Finish(scratch), Local(scratch, whole)]


def _exchanged(shape: Shape, rank: int, start: int, stop: int) -> list[list[Step]]:
    span = Span(0, start, stop)
    takes: list[Step] = [Take(peer, 0, span, span) for peer in others(shape.world_size, rank)]
    return [[Share((span,))], [*takes, Finish(span)]]


def _reduced_by_slices(shape: Shape, rank: int, start: int, stop: int) -> list[list[Step]]:
    """Every member reduces its slice and shares it."""
    spans = [Span(0, *edges) for edges in slices(start, stop, shape.world_size)]
    peers = others(shape.world_size, rank)
    own = spans[rank]
    given: list[Step]
    if shape.is_spread:
        given = [Send(peer, spans[peer]) for peer in peers]
    else:
        given = [Share(tuple(spans[peer] for peer in peers))]
    reduced: list[Step] = [_take_own(shape, peer, rank, own, own) for peer in peers]
    return [given, [*reduced, Finish(own), Share((own,))], [Take(peer, 0, spans[peer]) for peer in peers]]


def _take_own(shape: Shape, peer: int, rank: int, into: Span, onto: Span) -> Take:
    """Takes what a peer gave each of the others: the part for this member."""
    if shape.is_spread:
        return Take(peer, None, into, onto, is_sent=True)
    return Take(peer, others(shape.world_size, peer).index(rank), into, onto)


def _opened(shape: Shape, rank: int, stages: Sequence[Sequence[Sequence[Step]]]) -> list[Step]:
    """If more than one value follows, all first see whether they mean the same: a wrong shape is known before anything
    was moved that nobody takes."""
    steps = list(_pipelined(stages))
    is_sent = any(isinstance(step, Send) for step in steps)
    if shape.world_size > 1 and (len(stages) > 1 or is_sent):
        return [*barrier(shape, rank), *steps]
    return steps


def _pipelined(stages: Sequence[Sequence[Sequence[Step]]]) -> Iterator[Step]:
    """The steps of all chunks, by chunk and stage; the first stage of a chunk goes before the second of the one
    before it, and so on."""
    depth = max(map(len, stages), default=0)
    for tick in range(len(stages) + depth - 1):
        for stage in range(depth):
            chunk = tick - stage
            if 0 <= chunk < len(stages):
                yield from stages[chunk][stage]
