"""Tasks that wait for others need few workers, and always come to their end."""

from __future__ import annotations

import math
import random

import pytest

from runtime._core.worker_cap import FIRST_DELAY_S, LONGEST_DELAY_S
from tests.sim.leases.node import Await, Barrier, Compute, SimNode, Task


def fib(n: int) -> Task:
    return Task("fib", [Compute(0.01)] if n < 2 else [[fib(n - 1), fib(n - 2)], Compute(0.01)])


def everything(task: Task) -> list[Task]:
    found = [task]
    for step in task.steps:
        if isinstance(step, list):
            for child in step:
                found += everything(child)
    return found


def most_over(seconds: float) -> int:
    """How many workers above its limit a class may get in this time."""
    doubling = int(math.log2(LONGEST_DELAY_S / FIRST_DELAY_S)) + 1
    return doubling + int(seconds / LONGEST_DELAY_S) + 1


def test_nested_tasks_on_one_cpu() -> None:
    node = SimNode(cpus=1)
    tasks = [Task("f", [Compute(0.001), [Task("g", [Compute(0.05)])]]) for _ in range(1000)]
    node.run(tasks)
    assert all(task.is_done for task in tasks)
    assert node.peak == 2
    assert node.ended_s == pytest.approx(51)
    assert node.is_idle()


@pytest.mark.parametrize("cpus", [1, 4])
def test_recursion_is_not_held_back(cpus: int) -> None:
    node, root = SimNode(cpus), fib(12)
    node.run([root])
    assert root.is_done
    assert node.peak <= cpus * 12
    work = 0.01 * len(everything(root))
    assert node.ended_s == pytest.approx(work) if cpus == 1 else node.ended_s < 2 * work / cpus
    assert node.is_idle()


def test_tasks_that_wait_for_something_outside() -> None:
    node = SimNode(cpus=2)
    tasks = [Task("f", [Await(0.3)]) for _ in range(1000)]
    node.run(tasks)
    assert all(task.is_done for task in tasks)
    assert node.peak <= 2 + most_over(node.ended_s)
    assert node.is_idle()


def test_tasks_that_wait_for_each_other() -> None:
    """The last of them can begin only beyond the limit, while others go on as if nothing was."""
    node, barrier = SimNode(cpus=2), Barrier(12)
    others = [Task("other", [Compute(0.1), Await(0.1)]) for _ in range(100)]
    tasks = [Task("f", [barrier]) for _ in range(12)]
    node.run(tasks + others)
    assert all(task.is_done for task in tasks + others)
    assert node.is_idle()


def some_task(rng: random.Random, depth: int, barriers: dict[int, Barrier]) -> Task:
    steps: list[Compute | Await | Barrier | list[Task]] = []
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(["compute", "await", "children", "children"])
        if kind == "compute":
            steps.append(Compute(rng.random() * 0.1))
        elif kind == "await":
            steps.append(Await(rng.random()))
        elif depth < 4:
            steps.append([some_task(rng, depth + 1, barriers) for _ in range(rng.randint(1, 4))])
    if depth == 1 and rng.random() < 0.3:
        steps.insert(0, barriers.setdefault(1, Barrier(0)))
        barriers[1].count += 1
    return Task(rng.choice("fgh"), steps, depth)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_end(seed: int) -> None:
    rng = random.Random(seed)
    node = SimNode(cpus=rng.randint(1, 4))
    cpus = node._ledger.total["CPU"] // 10_000
    barriers: dict[int, Barrier] = {}
    roots = [some_task(rng, 1, barriers) for _ in range(rng.randint(1, 12))]
    node.run(roots)
    assert all(task.is_done for root in roots for task in everything(root)), f"seed {seed}"
    classes = {(task.function, task.depth) for root in roots for task in everything(root)}
    assert node.peak <= len(classes) * (cpus + most_over(node.ended_s)), f"seed {seed}"
    assert node.is_idle(), f"seed {seed}"
