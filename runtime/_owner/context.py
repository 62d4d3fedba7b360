"""What the current thread or coroutine is executing."""

from __future__ import annotations

from contextvars import ContextVar

from runtime._wire.messages.worker import BindLease


class ActorExit(SystemExit):
    """Raised by `exit_actor`, to unwind the call."""


class Execution:
    """One running task or actor call."""

    __slots__ = ("actor_id", "attempt", "cancelled", "function_name", "lease", "leaves", "name", "task_id")

    def __init__(
        self,
        task_id: bytes,
        name: str,
        function_name: str,
        lease: BindLease | None,
        actor_id: bytes = b"",
        attempt: int = 0,
    ) -> None:
        self.task_id = task_id
        self.name = name
        self.function_name = function_name
        self.lease = lease
        self.actor_id = actor_id
        self.attempt = attempt
        self.cancelled = False
        self.leaves = False  # it ends its actor, and is never answered


execution: ContextVar[Execution | None] = ContextVar("execution", default=None)


chosen_tag: ContextVar[str] = ContextVar("chosen_tag", default="")


def tag() -> str:
    """What the node's store counts the objects under that are made here: the name of the running task, unless another
    tag was chosen; "" in a driver."""
    chosen = chosen_tag.get()
    if chosen:
        return chosen
    running = execution.get()
    return running.name if running is not None else ""


def captures_children() -> bool:
    """Whether what runs here keeps the tasks it starts in its own placement group."""
    running = execution.get()
    return running is not None and running.lease is not None and running.lease.capture_child_tasks
