"""Which read tasks a plan has, where they run, and into how many blocks they cut what they read."""

from __future__ import annotations

import pyarrow as pa

from runtime.data._exec import reading
from runtime.data._exec.compiling import Compiler
from runtime.data._exec.sizing import Facts
from runtime.data._plan import nodes
from runtime.data._plan.rules import fused
from runtime.data.context import DataContext
from runtime.data.datasource import BlockMetadata, Datasource, ReadTask

CONTEXT = DataContext()


class Ones(Datasource):
    """`tasks` tasks of ten rows."""

    def __init__(self, tasks=2):
        self.tasks = tasks
        self.calls = []

    def get_read_tasks(self, parallelism, per_task_row_limit=None, data_context=None):
        self.calls.append((parallelism, data_context))
        metadata = BlockMetadata(10, 80)
        return [ReadTask(lambda: [pa.table({"one": [1] * 10})], metadata) for _ in range(self.tasks)]


def compiled(node):
    return Compiler(CONTEXT, Facts(2, 1 << 30), 1 << 27).operator(fused(node))


def blocks_of(stage):
    return [[ready.table.num_rows for ready in work.args[0]()] for work in stage.queue.drain()]


def test_the_context_goes_to_sources_that_take_it():
    class Old(Ones):
        def get_read_tasks(self, parallelism):
            self.calls.append(parallelism)
            return []

    class Free(Ones):
        def get_read_tasks(self, parallelism, **options):
            self.calls.append(options)
            return []

    sources = Ones(), Old(), Free()
    for source in sources:
        reading.read_tasks(source, 3, CONTEXT)
    assert [source.calls for source in sources] == [[(3, CONTEXT)], [3], [{"data_context": CONTEXT}]]


def test_fewer_tasks_than_wanted_blocks_cut_them():
    assert blocks_of(compiled(nodes.Read(Ones(), 5))) == [[5, 5], [3, 3, 4]]
    assert blocks_of(compiled(nodes.Read(Ones(1), 100))) == [[1] * 10]


def test_steps_over_cut_blocks_have_their_own_tasks():
    step = nodes.Rename(nodes.Read(source := Ones(), 5), {})
    assert [stage.name for stage in compiled(step).inputs] == ["ReadOnes"]
    assert len(source.calls) == 1
    for blocks in (2, 1, None):
        assert compiled(nodes.Rename(nodes.Read(Ones(), blocks), {})).inputs == []


def test_blocks_of_a_number_of_rows_are_worked_on_side_by_side():
    cut = nodes.Rebatch(nodes.Read(Ones()), 3)
    assert [stage.name for stage in compiled(nodes.Rename(cut, {})).inputs] == ["ReadOnes->Rebatch[3 rows]"]
