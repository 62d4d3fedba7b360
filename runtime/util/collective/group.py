"""This process's membership of one group: carries plans out."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from runtime._extension import channels

from . import plan
from .links import Links
from .tensors import Operand
from .torch_plane import Operation, TorchPlane, reduction
from .types import Backend, ReduceOp

INLINE_BYTES = 2048
"""Spans up to this size travel as bytes, which pickle faster than buffers."""
OF_GLOO = frozenset(
    "float16 float32 float64 torch.bfloat16 int8 uint8 int32 int64".split()  # torch.bool: no sums
)
"""The dtypes that torch's Gloo can reduce."""


class Call(NamedTuple):
    """What a member calls; all members must call the same.

    Attributes:
        operation: its name.
        detail: the reduction, or the member that others get something from.
        shape, dtype: of the tensors.
        chunks: in how many pieces each of them goes.
    """

    operation: str
    detail: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    chunks: int = 1


ONE_SIDED = frozenset({"broadcast", "reduce", "send"})
"""The operations of which some members give and know of nobody else's tensor."""


class Group:
    """A member of a collective group. Operations of several threads follow each other; sending to a member and
    receiving from one wait for nothing else.

    Large torch tensors of members on several nodes go by torch's Gloo, and all else through channels, reducescatter and
    send included.

    Args:
        name: of the group.
        links: to the other members.
        world_size: the number of members.
        rank: this one.
        backend: of torch.distributed, where that is used.
    """

    def __init__(
        self, name: str, links: Links, world_size: int, rank: int, backend: str = Backend.GLOO
    ) -> None:
        self.group_name = name
        self.backend = backend
        self.world_size = world_size
        self.rank = rank
        self._links = links
        self._lock = threading.Lock()
        self._turns: dict[tuple[str, int], threading.Lock] = {}
        self._number = 0
        self._plane = TorchPlane(links, world_size, rank, backend)

    def allreduce(self, tensor: Any, op: ReduceOp) -> None:
        """Every member's tensor becomes the reduction of all."""
        operand = Operand(tensor, is_written=True)
        steps = partial(_planned, plan.allreduce, rank=self.rank)
        by_torch = partial(_allreduce, operand, op, self.world_size)
        self._run("allreduce", op.name, [operand], [operand], steps, op, by_torch)

    def reduce(self, tensor: Any, root: int, op: ReduceOp) -> None:
        """The tensor of `root` becomes the reduction of all."""
        self._check_rank(root)
        operand = Operand(tensor, is_written=self.rank == root)
        steps = partial(_planned, plan.reduce, rank=self.rank, root=root)
        written = [operand] if self.rank == root else []
        by_torch = partial(_reduce, operand, root, op, self.world_size)
        self._run("reduce", f"{op.name} {root}", [operand], written, steps, op, by_torch)

    def broadcast(self, tensor: Any, root: int) -> None:
        """Every member's tensor becomes that of `root`."""
        self._check_rank(root)
        operand = Operand(tensor, is_written=self.rank != root)
        steps = partial(_planned, plan.broadcast, rank=self.rank, root=root)
        written = [operand] if self.rank != root else []
        by_torch = partial(_broadcast, operand, root)
        self._run("broadcast", f"{root}", [operand], written, steps, by_torch=by_torch)

    def allgather(self, tensors: Sequence[Any], tensor: Any) -> None:
        """`tensors` become the tensors of all members, by rank."""
        self._check_length(tensors)
        operand = Operand(tensor, is_written=False)
        targets = self._listed("allgather", operand, tensors, is_written=True)
        steps = partial(_planned, plan.allgather, rank=self.rank)
        by_torch = partial(_allgather, operand, targets)
        self._run("allgather", "", [operand, *targets], targets, steps, by_torch=by_torch)

    def reducescatter(self, tensor: Any, tensors: Sequence[Any], op: ReduceOp) -> None:
        """`tensor` becomes the reduction of all members' tensors at this member's index."""
        self._check_length(tensors)
        operand = Operand(tensor, is_written=True)
        sources = self._listed("reducescatter", operand, tensors, is_written=False)
        steps = partial(_planned, plan.reducescatter, rank=self.rank)
        self._run("reducescatter", op.name, [operand, *sources], [operand], steps, op)

    def barrier(self) -> None:
        """Waits for all members."""
        steps = partial(_planned, plan.barrier, rank=self.rank)
        self._run("barrier", "", [], [], steps)

    def send(self, tensor: Any, peer: int) -> None:
        """Sends a tensor to one member, which receives it."""
        self._check_other(peer)
        operand = Operand(tensor, is_written=False)
        steps = partial(_planned, plan.send, peer=peer)
        self._run("send", "", [operand], [], steps, turn=self._turn("to", peer))

    def receive(self, tensor: Any, peer: int) -> None:
        """The tensor becomes what one member sends."""
        self._check_other(peer)
        operand = Operand(tensor, is_written=True)
        steps = partial(_planned, plan.receive, peer=peer)
        self._run("send", "", [operand], [operand], steps, turn=self._turn("from", peer))

    def rank_of(self, actor_id: str) -> int | None:
        """The rank of an actor (hex); None: it is not known as a member."""
        return self._links.rank_of(actor_id)

    def _turn(self, direction: str, peer: int) -> threading.Lock:
        """What is sent to one member, or comes from it, waits for nothing else."""
        return self._turns.setdefault((direction, peer), threading.Lock())

    def destroy_group(self) -> None:
        """Leaves the group; waits in this process end with an error. Idempotent."""
        self._links.close()
        self._plane.close()

    # ------------------------------------------------------------ arguments

    def _check_rank(self, rank: int) -> None:
        if not 0 <= rank < self.world_size:
            raise ValueError(
                f"rank '{rank}' must be within 0 to {self.world_size - 1}, the ranks of the group."
            )

    def _check_other(self, rank: int) -> None:
        self._check_rank(rank)
        if rank == self.rank:
            raise RuntimeError(f"The destination rank '{rank}' is self.")

    def _check_length(self, tensors: Any) -> None:
        if not isinstance(tensors, list | tuple) or len(tensors) != self.world_size:
            raise RuntimeError(
                "The length of the tensor list operands to a collective must be equal to world_size, "
                f"{self.world_size}."
            )

    def _listed(
        self, operation: str, like: Operand, tensors: Sequence[Any], is_written: bool
    ) -> list[Operand]:
        operands = [Operand(one, is_written) for one in tensors]
        for index, one in enumerate(operands):
            if (one.shape, one.dtype) != (like.shape, like.dtype):
                raise _unequal(operation, f"number {index} of the list is", one, like)
        return operands

    # ------------------------------------------------------------ carrying out

    def _run(
        self,
        operation: str,
        detail: str,
        operands: Sequence[Operand],
        written: Sequence[Operand],
        steps: Callable[[plan.Shape], Sequence[plan.Step]],
        op: ReduceOp = ReduceOp.SUM,
        by_torch: Operation | None = None,
        turn: threading.Lock | None = None,
    ) -> None:
        """Carries out a call; `operation` and `detail` as in `Call`. All operands are like the first one."""
        flats = [operand.flat for operand in operands]
        if turn is not None and not self._links.is_connected:
            with self._lock:
                self._links.connect()
        with turn or self._lock:
            self._links.connect()
            if by_torch is not None and self._links.is_spread and _is_for_gloo(operands):
                self._agree(Call(operation, detail, operands[0].shape, f"torch {operands[0].dtype}"))
                self._plane.run(by_torch)
                for operand in written:
                    operand.commit()
                return
            if flats:
                elements, item_bytes = flats[0].size, max(1, flats[0].itemsize)
                shape = plan.Shape(self.world_size, elements, item_bytes, self._links.is_spread)
                call = Call(operation, detail, operands[0].shape, operands[0].dtype, len(plan.chunks(shape)))
            else:
                shape = plan.Shape(self.world_size, 0, 1, self._links.is_spread)
                call = Call(operation, detail)
            if operation == "allreduce" and plan.needs_scratch(shape):
                flats.append(flats[0].copy())
            run = _Run(self._links, call, self._number, flats, operands, op, self.world_size)
            if operation != "send":
                self._number += 1
            run.all(steps(shape))
        for operand in written:
            operand.commit()

    def _agree(self, call: Call) -> None:
        """Waits until all members call the same."""
        self._links.connect()
        run = _Run(self._links, call, self._number, [], [], ReduceOp.SUM, self.world_size)
        self._number += 1
        run.all(plan.barrier(plan.Shape(self.world_size, 0, 1, True), self.rank))


class _Run:
    """One call."""

    def __init__(
        self,
        links: Links,
        call: Call,
        number: int,
        flats: Sequence[Any],
        operands: Sequence[Operand],
        op: ReduceOp,
        world_size: int,
    ) -> None:
        self._links = links
        self._call = call
        self._said = tuple(call)  # pickles faster
        self._number = number
        self._flats = flats
        self._operands = operands
        self._op = op
        self._world_size = world_size
        self._problem: Exception | None = None
        self._is_broken = False

    def all(self, steps: Sequence[plan.Step]) -> None:
        """Carries out a plan.

        What does not fit is raised once the values of all members were taken that belong together, so that the group
        can be used again; where other members know nothing of it and go on, the group fails.
        """
        at = 0
        try:
            for at, step in enumerate(steps):  # noqa: B007
                if isinstance(step, plan.Take):
                    self._take(step)
                elif self._problem is None:
                    self._give(step)
                elif isinstance(step, plan.Share | plan.Send):
                    break
        except TimeoutError as error:
            problem = self._late(steps[at:], error)
            self._links.fail(problem)
            raise problem from error
        if self._problem is not None:
            if self._is_broken:
                self._links.fail(self._problem)
            raise self._problem

    def _give(self, step: plan.Share | plan.Send | plan.Local | plan.Finish) -> None:
        if isinstance(step, plan.Share):
            self._links.share(self._pickled(step.spans))
        elif isinstance(step, plan.Send):
            self._links.send(step.peer, self._pickled((step.span,)))
        elif isinstance(step, plan.Local):
            self._put(self._at(step.span), step.into, step.onto)
        elif self._op is ReduceOp.AVERAGE:
            self._operands[0].divide(self._at(step.span), self._world_size)

    def _take(self, step: plan.Take) -> None:
        while True:
            number, call, *parcels = self._links.take(step.peer, step.is_sent)
            if step.is_sent or number >= self._number:
                break  # lower numbers are of calls that ended with an error here
        own = self._call
        if call != own or (not step.is_sent and number != self._number):
            self._problem = self._problem or self._unequal(step.peer, Call(*call))
            follows = call[:2] != own[:2] or max(call[4], own.chunks) > 1
            is_one_sided = own.operation in ONE_SIDED or call[0] in ONE_SIDED
            self._is_broken = self._is_broken or call == own or (is_one_sided and follows)
        elif step.into is not None and self._problem is None:
            elements = _elements(parcels[step.part or 0], self._flats[step.into.buffer].dtype)
            self._put(elements, step.into, step.onto)

    def _put(self, elements: Any, into: plan.Span, onto: plan.Span | None) -> None:
        target = self._at(into)
        if onto is None:
            target[...] = elements
        else:
            self._operands[0].combine(self._op, self._at(onto), elements, target)

    def _at(self, span: plan.Span) -> Any:
        return self._flats[span.buffer][span.start : span.stop]

    def _pickled(self, spans: Sequence[plan.Span]) -> channels.Pickled:
        parcels = [self._parcel(span) for span in spans]
        value = (self._number, self._said, *parcels)
        if all(parcel.__class__ is bytes for parcel in parcels):
            return channels.dump_plain(value)
        return channels.serialize(value)

    def _parcel(self, span: plan.Span) -> Any:
        elements = self._at(span)
        if elements.nbytes <= INLINE_BYTES:
            return elements.tobytes()
        return pickle.PickleBuffer(elements.view("u1"))

    def _late(self, left: Sequence[plan.Step], error: TimeoutError) -> TimeoutError:
        awaited = {step.peer for step in left if isinstance(step, plan.Take) and not step.is_sent}
        missing = sorted(awaited.intersection(self._links.silent()))
        if not isinstance(left[0], plan.Take) or left[0].is_sent or not missing:
            return error
        return TimeoutError(
            f"Ranks {missing} did not join {self._call.operation} within {self._links.timeout_s:g} s."
        )

    def _unequal(self, peer: int, call: Call) -> Exception:
        own = self._call
        if call[:2] != own[:2] or call == own:
            return RuntimeError(
                f"The members of the group call different operations: rank {peer} {_named(call)}, and {_named(own)} is "
                "called here."
            )
        return _unequal(own.operation, f"rank {peer} sent", call, own)


@lru_cache(maxsize=64)
def _planned(make: Callable[..., list[plan.Step]], shape: plan.Shape, **ranks: int) -> list[plan.Step]:
    """The plan of a call; programs repeat theirs."""
    return make(shape, **ranks)


def _is_for_gloo(operands: Sequence[Operand]) -> bool:
    first = operands[0]
    return (
        first.dtype in OF_GLOO
        and first.flat.nbytes > plan.EXCHANGED_BYTES
        and all(operand.is_torch for operand in operands)
    )


def _allreduce(operand: Operand, op: ReduceOp, world_size: int, group: Any) -> None:
    group.allreduce([operand.as_torch(operand.flat)], reduction(op)).wait()
    if op is ReduceOp.AVERAGE:
        operand.divide(operand.flat, world_size)


def _reduce(operand: Operand, root: int, op: ReduceOp, world_size: int, group: Any) -> None:
    # Gloo leaves what others had in their tensors in disorder.
    elements = operand.flat if group.rank() == root else operand.flat.copy()
    group.reduce(operand.as_torch(elements), root, reduction(op)).wait()
    if op is ReduceOp.AVERAGE and group.rank() == root:
        operand.divide(operand.flat, world_size)


def _broadcast(operand: Operand, root: int, group: Any) -> None:
    group.broadcast(operand.as_torch(operand.flat), root).wait()


def _allgather(operand: Operand, targets: Sequence[Operand], group: Any) -> None:
    places = [target.as_torch(target.flat) for target in targets]
    group.allgather(places, operand.as_torch(operand.flat)).wait()


def _elements(parcel: Any, dtype: Any) -> Any:
    import numpy

    return numpy.frombuffer(parcel, dtype) if len(parcel) else numpy.empty(0, dtype)


def _named(call: Call) -> str:
    return f"{call.operation} ({call.detail})" if call.detail else call.operation


def _unequal(operation: str, whose: str, one: Any, here: Any) -> RuntimeError:
    return RuntimeError(
        f"All tensors of {operation} must have the same shape and dtype: {whose} {one.shape} of {one.dtype}, and the "
        f"tensor here has {here.shape} of {here.dtype}."
    )
