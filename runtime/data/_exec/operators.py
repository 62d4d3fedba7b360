"""The operators of an execution: their queues and running tasks. Pure; `state.Execution` moves what is in them."""

from __future__ import annotations

import heapq
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from runtime._controllers.controller import Key
from runtime._controllers.members import Group, MemberState

from .bundles import Bundle, Order, Work
from .credits import Prediction
from .figures import Figures

NEVER: Order = (sys.maxsize,)
"""The floor of an operator that emits nothing any more."""


T = TypeVar("T", Bundle, Work)


class OrderedHeap(Generic[T]):
    """Bundles or work, the earliest in the result first."""

    def __init__(self) -> None:
        self._heap: list[tuple[Order, int, T]] = []
        self._numbers = itertools.count()

    def push(self, item: T) -> None:
        heapq.heappush(self._heap, (item.order, next(self._numbers), item))

    def pop(self) -> T:
        return heapq.heappop(self._heap)[2]

    @property
    def first(self) -> T:
        return self._heap[0][2]

    def items(self) -> list[T]:
        """A copy, in no particular order."""
        return [item for _, _, item in list(self._heap)]

    def __len__(self) -> int:
        return len(self._heap)

    def drain(self) -> Iterator[T]:
        while self._heap:
            yield self.pop()


class Operator:
    """What all operators have.

    Attributes:
        outputs: the operators that get its bundles, each with the number of the input that they take it for.
        open_inputs: how many of its inputs may still give bundles.
    """

    def __init__(self, name: str, inputs: Sequence[Operator]) -> None:
        self.name = name
        self.inputs = list(inputs)
        self.outputs: list[tuple[Operator, int]] = []
        self.open_inputs = len(self.inputs)
        self.is_finished = False
        self.is_cut = False
        """Whether nobody wants its bundles any more."""
        self.figures = Figures()
        for port, operator in enumerate(inputs):
            operator.outputs.append((self, port))

    def floor(self) -> Order:
        """No bundle that it emits from now on lies before this place; `NEVER` if it emits none any more."""
        return min((each.floor() for each in self.inputs), default=NEVER)


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """How the tasks of a stage run. `function`: a remote generator; None with a pool. `cpus`: what one task or busy
    actor takes.
    `most`: how many may run at a time. `block_bytes`: how large its first block is, if that is known."""

    function: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    cpus: float = 1.0
    most: int | None = None
    block_bytes: int | None = None
    program: Any = None


@dataclass(slots=True)
class Running:
    """A task of a stage. `asked`: whether its next block was asked for; if not, it may be paused."""

    key: Key
    work: Work
    reserved_bytes: int
    begun_s: float = 0.0
    asked_bytes: int = 0
    asked: bool = False
    taken: int = 0
    cancelled: bool = False

    @property
    def floor(self) -> Order:
        return (*self.work.order, self.work.skip + self.taken)


class Stage(Operator):
    """Runs one task for each bundle (`as_work`), or for each piece of work that a barrier has planned.

    Args:
        group: the actors that run the tasks; None: any worker does.
        first_bytes: how large its first block is taken to be, unless the spec knows.
        seeds: work that needs no inputs of other operators.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[Operator],
        spec: TaskSpec,
        first_bytes: int = 0,
        group: Group | None = None,
        seeds: Sequence[Work] = (),
    ) -> None:
        super().__init__(name, inputs)
        self.spec = spec
        self.group = group
        self.queue: OrderedHeap[Work] = OrderedHeap()
        self.running: dict[Key, Running] = {}
        self.prediction = Prediction(spec.block_bytes or first_bytes)
        for work in seeds:
            self.queue.push(work)

    def floor(self) -> Order:
        floors = [task.floor for task in self.running.values() if not task.cancelled]
        if len(self.queue):
            floors.append(self.queue.first.order)
        return min([*floors, super().floor()])

    @property
    def is_idle(self) -> bool:
        return not self.running and not len(self.queue)

    @property
    def active(self) -> int:
        """Tasks that work towards a block that was asked for."""
        return sum(task.asked for task in self.running.values())

    @property
    def busy(self) -> int:
        """Tasks that use a CPU, or actors that do: calls that wait in an actor use none."""
        return self.active if self.group is None else len(self.group.in_state(MemberState.BUSY))

    @property
    def has_room(self) -> bool:
        """Whether its own limits allow one more task."""
        if self.group is not None:
            return self.group.free > 0
        return self.spec.most is None or len(self.running) < self.spec.most


Plan = Callable[[Sequence[Sequence[Bundle]]], Sequence[Work]]


class Barrier(Operator):
    """Collects all bundles of its inputs, then plans the work of the stage behind it.

    Args:
        plan: gets the bundles of each input, in order.
    """

    def __init__(self, name: str, inputs: Sequence[Operator], plan: Plan) -> None:
        super().__init__(name, inputs)
        self.plan = plan
        self.collected: list[list[Bundle]] = [[] for _ in inputs]

    def floor(self) -> Order:
        return NEVER if self.is_finished else ()


class Limit(Operator):
    """Lets the first rows through, then cuts off what is before it."""

    def __init__(self, name: str, source: Operator, rows: int) -> None:
        super().__init__(name, [source])
        self.left = rows
        self.waiting: OrderedHeap[Bundle] = OrderedHeap()

    def floor(self) -> Order:
        floors = [self.waiting.first.order] if len(self.waiting) else []
        return min([*floors, super().floor()])


class Together(Operator):
    """Puts neighbours together until they have so many rows or bytes: one piece of work for the stage behind it. What
    belongs together depends on the bundles alone, so that it is the same if everything runs again."""

    is_parked = False
    """Whether what was gathered does not count as held."""

    def __init__(self, name: str, source: Operator, rows: int, size_bytes: int) -> None:
        super().__init__(name, [source])
        self.rows = rows
        self.size_bytes = size_bytes
        self.waiting: OrderedHeap[Bundle] = OrderedHeap()
        self.gathered: list[Bundle] = []

    @property
    def is_full(self) -> bool:
        """Whether what was gathered is enough."""
        if sum(bundle.rows for bundle in self.gathered) >= self.rows:
            return True
        return sum(bundle.size_bytes for bundle in self.gathered) >= self.size_bytes

    def floor(self) -> Order:
        floors = [self.waiting.first.order] if len(self.waiting) else []
        floors += [self.gathered[0].order] if self.gathered else []
        return min([*floors, super().floor()])


class ForOneFile(Together):
    """As `Together`, until they have so many rows and so many bytes. They may be more than there is room for, so that
    they do not count against the budget."""

    is_parked = True

    @property
    def is_full(self) -> bool:
        """Whether what was gathered is enough."""
        enough = sum(bundle.rows for bundle in self.gathered) >= self.rows
        return enough and sum(bundle.size_bytes for bundle in self.gathered) >= self.size_bytes


class Union(Operator):
    """The bundles of its inputs, those of the first input first."""

    def floor(self) -> Order:
        floors = [each.floor() for each in self.inputs]
        return min(((port, *floor) for port, floor in enumerate(floors) if floor != NEVER), default=NEVER)


class Given(Operator):
    """Blocks that exist already."""

    def __init__(self, name: str, bundles: Sequence[Bundle]) -> None:
        super().__init__(name, [])
        self.bundles = bundles

    def floor(self) -> Order:
        return NEVER if self.is_finished else ()


class Sink(Operator):
    """What the consumer takes.

    Args:
        is_ordered: bundles leave in the order of the result; otherwise as they come.
    """

    def __init__(self, source: Operator, is_ordered: bool) -> None:
        super().__init__("output", [source])
        self.is_ordered = is_ordered
        self.waiting: OrderedHeap[Bundle] = OrderedHeap()
        self.given: set[Order] = set()
        """The places of bundles that were given; in order, one place that lies behind all of them."""

    @property
    def can_emit(self) -> bool:
        """Whether the consumer could take a bundle now."""
        if not len(self.waiting):
            return False
        if not self.is_ordered:
            return True
        return self.waiting.first.order < self.floor()

    def give(self) -> Bundle:
        """Takes the next bundle for the consumer."""
        bundle = self.waiting.pop()
        if self.is_ordered:
            self.given = {(*bundle.order, -1)}
        else:
            self.given.add(bundle.order)
        return bundle

    def has_given(self, order: Order) -> bool:
        """Whether the consumer has the bundle of this place."""
        if self.is_ordered:
            return any(order < end for end in self.given)
        return order in self.given

    def take_back(self, orders: Sequence[Order]) -> None:
        """The consumer could not use the bundles of these places, in order the last ones that were given."""
        if self.is_ordered:
            self.given = {min(orders)} if orders else self.given
        else:
            self.given.difference_update(orders)


def topological(last: Operator) -> list[Operator]:
    """An operator and all before it, sources first; of several inputs the last one first, as it is needed last."""
    found: dict[int, Operator] = {}

    def visit(operator: Operator) -> None:
        if id(operator) not in found:
            for each in reversed(operator.inputs):
                visit(each)
            found[id(operator)] = operator

    visit(last)
    return list(found.values())
