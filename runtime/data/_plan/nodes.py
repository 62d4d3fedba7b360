"""The nodes of a plan. A node is immutable and knows the nodes that it reads from; rules make new ones (`rules`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

UdfKind = Literal["map_batches", "map", "flat_map", "filter", "map_groups"]


@dataclass(frozen=True, slots=True)
class Pool:
    """Actors that run the tasks of a node: between `least` and `most` (None: as many as there are CPUs for), `initial`
    of them at first. `calls`: how many tasks one actor has at a time."""

    least: int
    most: int | None
    initial: int
    calls: int = 2


@dataclass(frozen=True, slots=True)
class Compute:
    """How the tasks of a node run. `options`: of `remote`. `most`: tasks at a time. `pool`: in actors."""

    options: Mapping[str, Any] = field(default_factory=dict)
    most: int | None = None
    pool: Pool | None = None


@dataclass(frozen=True, slots=True)
class Udf:
    """A function or class of the user. `batch_size`: None: whole blocks. `is_zero_copy`: batches may be read-only.
    `keys`: of the groups that it gets."""

    kind: UdfKind
    fn: Callable[..., Any]
    batch_size: int | None = None
    batch_format: str | None = "default"
    is_zero_copy: bool = True
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    constructor_args: Sequence[Any] = ()
    constructor_kwargs: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        target: Any = self.fn
        while hasattr(target, "func"):  # functools.partial
            target = target.func
        called = (
            getattr(target, "__qualname__", type(target).__name__).removeprefix("<lambda>").rpartition(".")[2]
        )
        return f"{self.kind}({called or '<lambda>'})"


@dataclass(frozen=True, slots=True)
class GivenBlock:
    """A block that exists: `ref` is a reference to it, or the table. `start`, `rows`: the part of it that counts."""

    ref: Any
    rows: int
    size_bytes: int
    start: int = 0


@dataclass(frozen=True, eq=False)
class Node:
    """A step of a plan. Nodes are compared by identity."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """What it reads from."""
        return tuple(
            node for each in dataclasses.fields(self) for node in _nodes_in(getattr(self, each.name))
        )

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        """The same step over other inputs; itself if they are the same."""
        if all(new is old for new, old in zip(inputs, self.inputs, strict=True)):
            return self
        rest = iter(inputs)
        changes = {
            each.name: _replaced(getattr(self, each.name), rest)
            for each in dataclasses.fields(self)
            if _nodes_in(getattr(self, each.name))
        }
        return dataclasses.replace(self, **changes)

    @property
    def name(self) -> str:
        """One line for plans, statistics and errors."""
        return type(self).__name__


def _nodes_in(value: Any) -> tuple[Node, ...]:
    if isinstance(value, Node):
        return (value,)
    if isinstance(value, tuple) and value and all(isinstance(each, Node) for each in value):
        return value
    return ()


def _replaced(value: Any, rest: Iterator[Node]) -> Any:
    return next(rest) if isinstance(value, Node) else tuple(next(rest) for _ in value)


# ---------------------------------------------------------------- sources


@dataclass(frozen=True, eq=False)
class Read(Node):
    """Reads a data source. `blocks`: how many tasks; None: as its size and the cluster suggest. `columns`, `limit`,
    `predicates`: what was pushed into the source."""

    source: Any
    blocks: int | None = None
    compute: Compute = Compute()
    columns: tuple[str, ...] | None = None
    limit: int | None = None
    predicates: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        pushed = [
            f"columns {', '.join(self.columns)}" if self.columns is not None else "",
            f"where {' and '.join(map(str, self.predicates))}" if self.predicates else "",
            f"limit {self.limit}" if self.limit is not None else "",
        ]
        shown = "; ".join(filter(None, pushed))
        return f"Read{self.source.get_name()}{f'[{shown}]' if shown else ''}"


@dataclass(frozen=True, eq=False)
class Given(Node):
    """Blocks that exist."""

    blocks: tuple[GivenBlock, ...]
    schema: Any = None

    @property
    def name(self) -> str:
        return f"Given[{len(self.blocks)} blocks]"


# ---------------------------------------------------------------- row by row, block by block


@dataclass(frozen=True, eq=False)
class Transform(Node):
    """Applies a function of the user."""

    source: Node
    udf: Udf
    compute: Compute = Compute()

    @property
    def name(self) -> str:
        return self.udf.name


@dataclass(frozen=True, eq=False)
class Filter(Node):
    """Keeps the rows for which an expression is true."""

    source: Node
    predicate: Any
    compute: Compute = Compute()

    @property
    def name(self) -> str:
        return f"Filter[{self.predicate}]"


@dataclass(frozen=True, eq=False)
class Project(Node):
    """Makes columns: `columns` are pairs of a name and an expression. `keeps_others`: and keeps the rest."""

    source: Node
    columns: tuple[tuple[str, Any], ...]
    keeps_others: bool = False
    compute: Compute = Compute()

    @property
    def name(self) -> str:
        columns = ", ".join(
            name if str(expr) in (name, f"col('{name}')") else f"{name}={expr}" for name, expr in self.columns
        )
        return f"{'With' if self.keeps_others else 'Project'}[{columns}]"


@dataclass(frozen=True, eq=False)
class Rename(Node):
    """Gives columns other names."""

    source: Node
    names: Mapping[str, str]

    @property
    def name(self) -> str:
        return f"Rename[{', '.join(f'{old}->{new}' for old, new in self.names.items())}]"


@dataclass(frozen=True, eq=False)
class Drop(Node):
    """Leaves columns out."""

    source: Node
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"Drop[{', '.join(self.columns)}]"


@dataclass(frozen=True, eq=False)
class Sample(Node):
    """Keeps each row with a probability."""

    source: Node
    fraction: float
    seed: int | None = None

    @property
    def name(self) -> str:
        return f"Sample[{self.fraction}]"


@dataclass(frozen=True, eq=False)
class Rebatch(Node):
    """Cuts the rows of each task into blocks of so many rows."""

    source: Node
    rows: int

    @property
    def name(self) -> str:
        return f"Rebatch[{self.rows} rows]"


@dataclass(frozen=True, eq=False)
class Write(Node):
    """Writes to a sink; gives one row for each task."""

    source: Node
    sink: Any
    compute: Compute = Compute()

    @property
    def name(self) -> str:
        return f"Write{self.sink.get_name()}"


@dataclass(frozen=True, eq=False)
class Chain(Node):
    """Steps that run in one task, one after another; `steps` have no inputs of their own (`Hole`)."""

    source: Node
    steps: Steps
    compute: Compute = Compute()

    @property
    def name(self) -> str:
        return "->".join(step.name for step in self.steps.nodes)


@dataclass(frozen=True, slots=True)
class Steps:
    """The nodes of a chain, the first one first. What they read from does not count."""

    nodes: tuple[Node, ...]


BY_BLOCK = (Transform, Filter, Project, Rename, Drop, Sample, Rebatch, Write)
"""Nodes whose output depends on one block at a time."""


@dataclass(frozen=True, eq=False)
class Shared(Node):
    """What several nodes read, and is computed once. `keeps`: its blocks are kept until all have read them, because
    one reader waits for another."""

    source: Node
    keeps: bool = False


# ---------------------------------------------------------------- all rows together


@dataclass(frozen=True, eq=False)
class Limit(Node):
    """The first rows."""

    source: Node
    rows: int

    @property
    def name(self) -> str:
        return f"Limit[{self.rows}]"


@dataclass(frozen=True, eq=False)
class Union(Node):
    """The rows of several, one after another."""

    sources: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Zip(Node):
    """The columns of several side by side."""

    sources: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Repartition(Node):
    """The same rows in so many blocks. With `keys`, equal keys are in one block."""

    source: Node
    blocks: int
    keys: tuple[str, ...] = ()
    is_sorted: bool = False

    @property
    def name(self) -> str:
        by = f" by {', '.join(self.keys)}" if self.keys else ""
        return f"Repartition[{self.blocks}{by}]"


@dataclass(frozen=True, eq=False)
class Gather(Node):
    """The same rows in order, in blocks of at least so many rows and bytes, as far as there are enough."""

    source: Node
    rows: int = 0
    size_bytes: int = 0

    @property
    def name(self) -> str:
        wanted = [f"{self.rows} rows"] * bool(self.rows) + [f"{self.size_bytes} bytes"] * bool(
            self.size_bytes
        )
        return f"Gather[{' and '.join(wanted)}]"


@dataclass(frozen=True, eq=False)
class Shuffle(Node):
    """The rows in random order. `rows_too`: False moves whole blocks only."""

    source: Node
    seed: int | None = None
    blocks: int | None = None
    rows_too: bool = True

    @property
    def name(self) -> str:
        return "RandomShuffle" if self.rows_too else "RandomizeBlockOrder"


@dataclass(frozen=True, eq=False)
class Sort(Node):
    """The rows in order. `descending`: for each key. `boundaries`: of the blocks, for the first key."""

    source: Node
    keys: tuple[str, ...]
    descending: tuple[bool, ...]
    boundaries: tuple[Any, ...] | None = None

    @property
    def name(self) -> str:
        pairs = zip(self.keys, self.descending, strict=True)
        return f"Sort[{', '.join(key + (' desc' if down else '') for key, down in pairs)}]"


@dataclass(frozen=True, eq=False)
class Aggregate(Node):
    """One row for each group; without keys one row."""

    source: Node
    keys: tuple[str, ...]
    aggs: tuple[Any, ...]
    blocks: int | None = None

    @property
    def name(self) -> str:
        aggs = ", ".join(str(getattr(agg, "name", agg)) for agg in self.aggs)
        return f"Aggregate[{', '.join(self.keys)}: {aggs}]"


@dataclass(frozen=True, eq=False)
class MapGroups(Node):
    """Applies a function to each group of rows."""

    source: Node
    keys: tuple[str, ...]
    udf: Udf
    compute: Compute = Compute()
    blocks: int | None = None

    @property
    def name(self) -> str:
        return f"MapGroups[{', '.join(self.keys)}]"


@dataclass(frozen=True, eq=False)
class Join(Node):
    """Rows of two that have equal keys. `how`: as in `Dataset.join`."""

    left: Node
    right: Node
    on: tuple[str, ...]
    right_on: tuple[str, ...]
    how: str
    left_suffix: str | None = None
    right_suffix: str | None = None
    blocks: int | None = None

    @property
    def name(self) -> str:
        return f"Join[{self.how} on {', '.join(self.on)}]"


@dataclass(frozen=True, eq=False)
class Count(Node):
    """One row with the number of rows (`count`)."""

    source: Node
