"""What the current thread executes."""

from __future__ import annotations

import contextvars
import threading

from runtime._owner.context import ActorExit, Execution, captures_children, execution
from runtime._wire.messages.worker import BindLease


def in_context(lease: BindLease | None) -> bool:
    def look() -> bool:
        execution.set(Execution(b"t" * 24, "name", "module.name", lease))
        return captures_children()

    return contextvars.copy_context().run(look)


def test_children_are_captured_by_leases_that_say_so() -> None:
    assert not captures_children()
    assert not in_context(None)
    assert not in_context(BindLease(b"lease", {}, []))
    assert in_context(BindLease(b"lease", {}, [], capture_child_tasks=True))
    assert not captures_children()


def test_a_new_thread_executes_nothing() -> None:
    seen: list[Execution | None] = []

    def run() -> None:
        execution.set(Execution(b"t" * 24, "name", "module.name", None))
        thread = threading.Thread(target=lambda: seen.append(execution.get()))
        thread.start()
        thread.join()

    contextvars.copy_context().run(run)
    assert seen == [None]


def test_no_handler_of_users_catches_the_exit_of_an_actor() -> None:
    assert not issubclass(ActorExit, Exception)
