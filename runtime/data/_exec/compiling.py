"""Makes the operators of an execution from a plan."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Any

from runtime._controllers.controller import ResultOf
from runtime._controllers.members import Group, GroupSpec
from runtime._controllers.policies import Elastic
from runtime._extension.workers import preloaded
from runtime.data._plan import nodes
from runtime.data._plan.nodes import Compute, Node, Udf
from runtime.data.context import DataContext

from . import exchange, placement, reading, reslicing, sizing
from .bundles import Bundle, Work
from .exchange import Exchange
from .operators import (
    Barrier,
    ForOneFile,
    Given,
    Limit,
    Operator,
    Plan,
    Sink,
    Stage,
    TaskSpec,
    Together,
    Union,
)
from .programs import Finish, Host, Program, run
from .sizing import Facts
from .steps import Step, step_of

POOL_IDLE_S = 30.0
MOST_RETRIES = 3
"""Attempts of a task after the first one, if its worker or node has died; as many to rebuild what it has made."""
FAILED_STARTS = 3
"""After so many actors in a row that died in their constructors a pool is given up."""
ACTOR_MODULES = ("runtime.data._exec.programs", "runtime.data._block.batcher")
"""What an actor of a pool needs of this package, with pyarrow and numpy: the first actor of a node has it imported for
all, as no idle worker of the tasks becomes an actor."""
_group_names = itertools.count()


class Compiler:
    """Makes operators.

    Args:
        budget_bytes: of the execution.
    """

    def __init__(self, context: DataContext, facts: Facts, budget_bytes: int) -> None:
        self._context = context
        self._facts = facts
        self.target_bytes = sizing.target_bytes(facts, budget_bytes, context.target_max_block_size)
        self._exchange_bytes = sizing.exchange_bytes(facts, self.target_bytes, context.target_max_block_size)
        self._first_bytes = min(self.target_bytes, budget_bytes // (4 * max(1, int(facts.cpus))))
        self._reads: dict[nodes.Read, Sequence[Any]] = {}
        self._kept_cpus = 0.0  # by the actors of pools
        self.programs: dict[Any, Program] = {}
        """By the key that stands for it among the arguments of tasks."""
        self._shared_operators: dict[int, Operator] = {}

    def sink(self, node: Node, is_ordered: bool | None = None) -> Sink:
        """The operators of a plan whose steps are fused."""
        if is_ordered is None:
            is_ordered = self._context.execution_options.preserve_order
        self._kept_cpus = placement.kept_cpus(node)
        return Sink(self.operator(node), is_ordered)

    def operator(self, node: Node) -> Operator:
        match node:
            case nodes.Given(blocks):
                return Given(node.name, [_bundle(block, i) for i, block in enumerate(blocks)])
            case nodes.Read() | nodes.Chain():
                return self.stage(node)
            case nodes.Shared():
                return self._shared(node)
            case nodes.Limit(source, rows):
                return Limit(node.name, self.operator(source), rows)
            case nodes.Union(sources):
                return Union(node.name, [self.operator(each) for each in sources])
            case nodes.Zip(sources):
                return self._planned(
                    node.name,
                    [self.operator(each) for each in sources],
                    reslicing.zipped,
                    reslicing.ZipStep(),
                )
            case nodes.Repartition(source, blocks, ()):
                plan = reslicing.Evenly(blocks)
                return self._planned(node.name, [self.operator(source)], plan, reslicing.OneBlock())
            case nodes.Gather(source, rows, size_bytes):
                together = ForOneFile(node.name, self.operator(source), rows, size_bytes)
                return self._stage(node.name, [together], [reslicing.OneBlock()], Compute())
            case nodes.Shuffle(source, seed, _, False):
                return self._planned(
                    node.name, [self.operator(source)], reslicing.Reordered(seed), reslicing.OneBlock()
                )
            case _:
                return self._exchange(exchange.of(node, self._context), node)

    def _shared(self, node: nodes.Shared, is_stage: bool = False) -> Operator:
        """The operator whose bundles all readers get. One that keeps them hands them to stages only, so another reader
        needs a stage before it."""
        made = self._shared_operators.get(id(node))
        if made is None:
            made = self.operator(node.source)
            if node.keeps:
                made = Barrier("Shared", [made], _one_by_one)
            self._shared_operators[id(node)] = made
        return self._stage("Shared", [made], [], Compute()) if node.keeps and not is_stage else made

    def _before_stage(self, node: Node) -> Operator:
        """The operator that a stage reads from."""
        return self._shared(node, is_stage=True) if isinstance(node, nodes.Shared) else self.operator(node)

    # ------------------------------------------------------------ stages

    def stage(self, node: Node, finish: Finish | None = None, suffix: str = "") -> Stage:
        """The stage of a chain, which may begin with a read. `finish`: see `programs.Finish`; its blocks are those of
        an exchange."""
        steps: list[Step] = []
        names: list[str] = []
        computes: list[Compute] = []
        if isinstance(node, nodes.Chain):
            steps = [step_of(each) for each in node.steps.nodes]
            names = [each.name for each in node.steps.nodes]
            computes.append(node.compute)
            if not self._begins_with_read(node):
                source = self._before_stage(node.source)
                rows = _batch_rows(node.steps.nodes)
                if rows > 1:
                    source = Together("Together", source, rows, self._exchange_bytes)
                return self._stage(
                    "->".join([*names, *([suffix] if suffix else [])]), [source], steps, node.compute, finish
                )
            node = node.source
        if isinstance(node, nodes.Read):
            compute = next((each for each in computes if each != Compute()), node.compute)
            name = "->".join([node.name, *names, *([suffix] if suffix else [])])
            tasks = self._read_tasks(node)
            if node.blocks is not None and 0 < len(tasks) < node.blocks:
                tasks = reading.in_blocks(tasks, node.blocks)
            seeds = [Work((i,), args=(task,)) for i, task in enumerate(tasks)]
            return self._stage(name, [], steps, reading.placed(node.source, compute), finish, seeds)
        source = self._before_stage(node)
        if isinstance(node, nodes.Given):
            share = sizing.share(self._facts, _known_bytes(node) or 0, self._exchange_bytes)
            source = Barrier(suffix, [source], reslicing.Grouped(share))
        return self._stage(suffix, [source], [], Compute(), finish)

    def _begins_with_read(self, chain: nodes.Chain) -> bool:
        """Whether the steps of a chain run in the tasks that read."""
        read = chain.source
        if not isinstance(read, nodes.Read) or not _can_join(read.compute, chain.compute):
            return False
        tasks = self._read_tasks(read)
        if read.blocks is not None and len(tasks) < read.blocks:
            return False
        known = [task.metadata.num_rows for task in tasks]
        wanted = _batch_rows(chain.steps.nodes)
        return len(tasks) < 2 or not all(rows is not None and rows < wanted for rows in known)

    def _read_tasks(self, node: nodes.Read) -> Sequence[Any]:
        if node not in self._reads:
            source = node.source
            wanted = node.blocks or sizing.read_tasks(
                self._facts,
                source.estimate_inmemory_data_size(),
                self.target_bytes,
                self._context.read_op_min_num_blocks,
            )
            self._reads[node] = reading.read_tasks(source, wanted, self._context)
        return self._reads[node]

    def _stage(
        self,
        name: str,
        inputs: Sequence[Operator],
        steps: Sequence[Step],
        compute: Compute,
        finish: Finish | None = None,
        seeds: Sequence[Work] = (),
        target_bytes: int | None = None,
    ) -> Stage:
        if target_bytes is None:
            target_bytes = self.target_bytes if finish is None else self._exchange_bytes
        program = Program(name, steps, target_bytes, finish, self._context.kept_heap_bytes)
        options = self._options(compute)
        if compute.pool is not None:
            return Stage(
                name,
                inputs,
                TaskSpec(cpus=placement.busy_cpus(compute)),
                self._first_bytes,
                self._group(name, program, compute),
                seeds,
            )
        key = ("program", len(self.programs))
        self.programs[key] = program
        options.setdefault("name", name[:200])
        if options.get("num_cpus") is None:
            options["num_cpus"] = placement.task_cpus(self._facts, self._kept_cpus)
        cpus = float(options["num_cpus"])
        spec = TaskSpec(_task(), options, cpus or 1.0, compute.most, program=ResultOf(key))
        return Stage(name, inputs, spec, self._first_bytes, seeds=seeds)

    def _options(self, compute: Compute) -> dict[str, Any]:
        """Those of a step, and those that the context has for all tasks and actors."""
        options = dict(compute.options)
        if self._context.scheduling_strategy is not None:
            options.setdefault("scheduling_strategy", self._context.scheduling_strategy)
        labels = self._context.execution_options.label_selector
        if labels:
            options["label_selector"] = {**labels, **(options.get("label_selector") or {})}
        return options

    def _group(self, name: str, program: Program, compute: Compute) -> Group:
        pool = compute.pool
        assert pool is not None
        most = placement.most_actors(self._facts, compute, self._kept_cpus)
        is_placed = placement.is_placed(self._options(compute))
        environment = preloaded(*ACTOR_MODULES, runtime_env=compute.options.get("runtime_env"))

        def options_of(number: int) -> dict[str, Any]:
            options = {"num_cpus": 0, **self._options(compute), "runtime_env": environment}
            options["max_restarts"] = 0  # the pool replaces them
            if not is_placed:
                node_id = placement.node_of(self._facts.cpus_of, number)
                options["scheduling_strategy"] = _near(node_id)
            return options

        spec = GroupSpec(
            f"{name[:100]} #{next(_group_names)}",
            _host(),
            (program,),
            options_of=options_of,
            most_calls=pool.calls,
            failed_starts=FAILED_STARTS,
        )
        return Group(spec, Elastic(max(pool.least, pool.initial), most, POOL_IDLE_S))

    # ------------------------------------------------------------ barriers and exchanges

    def _planned(self, name: str, inputs: Sequence[Operator], plan: Any, step: Step) -> Stage:
        """A barrier, and the stage that does what it plans."""
        return self._stage(name, [Barrier(name, inputs, plan)], [step], Compute())

    def _exchange(self, kind: Exchange, node: Node) -> Stage:
        """Maps that split blocks into partitions, a barrier, and reducers that each take some partitions."""
        sizes = [_known_bytes(each) for each in node.inputs]
        known = None if None in sizes else sum(size or 0 for size in sizes)
        parts = kind.parts or sizing.partitions(self._facts, known, self._exchange_bytes, kind.blocks)
        objects = sizing.map_objects(self._facts, known, parts)
        maps = [
            self.stage(each, make(parts, objects), f"{kind.name}: split")
            for each, make in zip(node.inputs, kind.maps, strict=True)
        ]
        barrier = Barrier(kind.name, maps, self._reducers(kind))
        whole = sys.maxsize if kind.blocks is not None else None  # as many blocks as were asked for
        return self._stage(kind.name, [barrier], [kind.reduce], kind.compute, target_bytes=whole)

    def _reducers(self, kind: Exchange) -> Plan:
        """Plans reducers that are not too large, and as many as there are cores for unless the rows are too few."""

        def planned(inputs: Sequence[Sequence[Bundle]]) -> Sequence[Work]:
            target_bytes = self._exchange_bytes
            if kind.blocks is None:
                total = sum(bundle.size_bytes for bundles in inputs for bundle in bundles)
                share = sizing.share(self._facts, total, target_bytes)
                target_bytes = min(target_bytes, max(share, kind.least_bytes))
            return kind.plan(target_bytes)(inputs)

        return planned


def _one_by_one(inputs: Sequence[Sequence[Bundle]]) -> list[Work]:
    return [Work(bundle.order, (bundle,)) for bundle in inputs[0]]


def _near(node_id: str | None) -> Any:
    from runtime.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return "DEFAULT" if node_id is None else NodeAffinitySchedulingStrategy(node_id, soft=True)


def _batch_rows(steps: Sequence[Node]) -> int:
    """How many rows the first function of batches wants at a time; 0: any number."""
    for step in steps:
        match step:
            case nodes.Transform(_, Udf(kind="map_batches", batch_size=rows)):
                return rows or 0
            case nodes.Transform(_, Udf(kind="map")) | nodes.Project() | nodes.Rename() | nodes.Drop():
                pass  # as many rows as before
            case _:
                return 0
    return 0


def _can_join(first: Compute, second: Compute) -> bool:
    if first.pool is not None or second.pool is not None:
        return False
    return first == second or first == Compute() or second == Compute()


def _known_bytes(node: Node) -> int | None:
    """How large its rows are at most; None if that is not known: functions may make rows larger."""
    match node:
        case nodes.Given(blocks):
            return sum(block.size_bytes for block in blocks)
        case nodes.Read(source):
            size = source.estimate_inmemory_data_size()
            return None if size is None else int(size)
        case nodes.Chain(source, steps):
            has_functions = any(isinstance(step, nodes.Transform | nodes.Project) for step in steps.nodes)
            return None if has_functions else _known_bytes(source)
        case nodes.Shared(source):
            return _known_bytes(source)
    return None


def _bundle(block: nodes.GivenBlock, number: int) -> Bundle:
    key = ("given", number)
    return Bundle(key, block.ref, block.rows, block.size_bytes, (number,), block.start, is_given=True)


def _task() -> Any:
    """The remote function of all stages."""
    global _remote_run
    if _remote_run is None:
        import runtime

        _remote_run = runtime.remote(num_returns="streaming", max_retries=MOST_RETRIES)(run)
    return _remote_run


def _host() -> Any:
    import runtime

    return runtime.remote(Host)


_remote_run: Any = None
