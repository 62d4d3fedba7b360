"""What a worker's calls are named after, and what they may use."""

from __future__ import annotations

import os

import pytest

from runtime._executor.assignment import Assignment
from runtime._owner.context import Execution
from runtime._wire.messages.worker import ActorSetup, BindLease
from tests.runtime._executor.stand_ins import Functions, push

LEASE = BindLease(b"lease", {"CPU": 20_000, "GPU": 10_000}, ["3"])


class Counter:
    """An actor's class."""

    def __repr__(self) -> str:
        return "the counter"


@pytest.fixture
def assignment(monkeypatch: pytest.MonkeyPatch) -> Assignment:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    return Assignment(Functions())


def test_a_task_is_named_after_its_function(assignment: Assignment) -> None:
    running = assignment.execution(push(1, attempt=2))
    assert (running.name, running.function_name) == ("f", "module.f")
    assert (running.attempt, running.actor_id, running.lease) == (2, b"", None)


def test_a_task_may_have_a_name_of_its_own(assignment: Assignment) -> None:
    assert assignment.execution(push(1, name="mine")).name == "mine"


def test_a_lease_sets_what_tasks_see(assignment: Assignment) -> None:
    assignment.bind(LEASE)
    assert assignment.execution(push(1)).lease is LEASE
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    assignment.bind(BindLease(b"other", {"CPU": 10_000}, []))
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_an_actor_names_its_calls_and_the_output(assignment: Assignment) -> None:
    running = Execution(b"t" * 24, "__init__", "__init__", None)
    setup = ActorSetup(b"a" * 16, 1, "", "", "Counter", lease=LEASE, capture_child_tasks=True)
    assignment.becomes_actor(setup, running)
    assert running.actor_id == setup.actor_id
    assert running.lease is not None
    assert running.lease.capture_child_tasks
    assert assignment.current_name == "Counter"
    assignment.knows_class(Counter, running)
    assert running.function_name.endswith("Counter.__init__")
    assignment.constructed(Counter())
    assert "the counter" in assignment.current_name
    call = assignment.execution(push(2, "add"))
    assert call.name == "add"
    assert call.function_name.endswith("Counter.add")
    assert call.actor_id == setup.actor_id
