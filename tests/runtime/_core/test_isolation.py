"""What is kept for the engine, in values of control groups."""

from __future__ import annotations

import pytest

from runtime._core.isolation import MIN_BYTES, Isolation, plan

GIB = 1 << 30


def planned(
    cpus: float | None = None,
    memory: int | None = None,
    machine_cpus: int = 10,
    machine_bytes: int = 100 * GIB,
) -> Isolation:
    return plan("/group", cpus, memory, GIB, machine_cpus, machine_bytes)


def test_weights_are_shares_of_the_machine() -> None:
    made = planned(2.5, GIB)
    assert (made.path, made.controllers) == ("/group", ("cpu", "memory"))
    assert made.system == {"cpu.weight": "2500", "memory.min": str(GIB)}
    assert made.workers == {"cpu.weight": "7500"}
    assert made.node == {"memory.min": str(GIB)}


def test_defaults() -> None:
    assert planned(machine_cpus=2, machine_bytes=2 * GIB).system == {
        "cpu.weight": "5000",
        "memory.min": str(MIN_BYTES),
    }
    assert planned(machine_cpus=40).system["cpu.weight"] == "500"
    large = planned(machine_cpus=100, machine_bytes=1000 * GIB)
    assert large.system == {"cpu.weight": "300", "memory.min": str(10 * GIB)}
    assert plan(None, 1.0, GIB, 0, 2, 2 * GIB).path == "/sys/fs/cgroup"


@pytest.mark.parametrize(
    ("cpus", "memory", "words"),
    [
        (0.5, None, "less than the minimum"),
        (10, None, "leaves nothing for tasks"),
        (None, 1000, "less than the minimum"),
        (None, 100 * GIB, "more than the memory"),
    ],
)
def test_amounts_that_cannot_be(cpus: float | None, memory: int | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        planned(cpus, memory)
