"""Options of tasks and actors that the context of a data set has for all of them: pure."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.data._exec import sizing
from runtime.data._exec.compiling import ACTOR_MODULES, Compiler
from runtime.data._exec.operators import Stage, topological
from runtime.data._plan.rules import fused, optimize
from runtime.data.context import DataContext
from runtime.data.dataset import Dataset
from runtime.data.read_api import range as data_range

FACTS = sizing.Facts(4.0, 1 << 30, {"a0" * 28: 4.0})


def options(dataset: Dataset, context: DataContext) -> list[dict[str, Any]]:
    """Of the tasks or actors of each stage."""
    sink = Compiler(context, FACTS, 1 << 27).sink(fused(optimize(dataset._node)))
    stages = [each for each in topological(sink) if isinstance(each, Stage)]
    return [
        dict(each.spec.options) if each.group is None else dict(each.group.spec.options_of(0))
        for each in stages
    ]


class Model:
    def __call__(self, batch: Any) -> Any:
        return batch


def made() -> Dataset:
    """A read, a pool of actors, maps and reducers, the last of which have a strategy of their own."""
    return (
        data_range(100)
        .map_batches(Model, concurrency=1)
        .random_shuffle()
        .map_batches(lambda batch: batch, scheduling_strategy="DEFAULT", label_selector={"zone": "b"})
    )


def test_a_strategy_of_the_context_is_that_of_all_steps_without_one() -> None:
    context = DataContext(scheduling_strategy="SPREAD")
    found = [each.get("scheduling_strategy") for each in options(made(), context)]
    assert set(found[:-1]) == {"SPREAD"}
    assert found[-1] == "DEFAULT"


def test_labels_of_the_context_are_joined_with_those_of_a_step() -> None:
    context = DataContext()
    context.execution_options.label_selector = {"zone": "a", "disk": "fast"}
    found = [each["label_selector"] for each in options(made(), context)]
    assert all(each == {"zone": "a", "disk": "fast"} for each in found[:-1])
    assert found[-1] == {"zone": "b", "disk": "fast"}


def test_actors_have_the_modules_of_the_package_imported_for_them() -> None:
    of_user = {"env_vars": {"A": "1"}, "preload": ["json"]}
    made = (
        data_range(100)
        .map_batches(Model, concurrency=1, runtime_env=of_user)
        .map_batches(Model, concurrency=2)
    )
    first, second = (each["runtime_env"] for each in options(made, DataContext())[-2:])
    assert first == {"env_vars": {"A": "1"}, "preload": ["json", *ACTOR_MODULES]}
    assert second == {"preload": [*ACTOR_MODULES]}
    assert of_user["preload"] == ["json"]


@pytest.mark.parametrize(
    ("excluded", "limit", "cpus"), [(None, None, 5), (None, 2, 2), (1, None, 3), (1, 8, 3), (9, None, 1)]
)
def test_tasks_take_no_more_cpus_than_they_may(excluded: Any, limit: Any, cpus: float) -> None:
    """Unless they may take all: then one more waits for its turn."""
    free = sizing.without(FACTS, excluded, 1 << 29)
    assert sizing.task_slots(FACTS, free, limit) == cpus
    assert free.store_bytes == 1 << 29
