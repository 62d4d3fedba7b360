"""What a framework does around the training function, in the workers."""

from __future__ import annotations

from typing import Any, Protocol


class WorkerContext(Protocol):
    """A worker's place in its run."""

    def get_world_rank(self) -> int:
        """Among all workers."""

    def get_world_size(self) -> int:
        """The number of workers."""

    def get_local_rank(self) -> int:
        """Among the workers of its node."""

    def get_local_world_size(self) -> int:
        """The number of workers of its node."""

    def get_node_rank(self) -> int:
        """Of its node, among the nodes with workers."""


class Backend:
    """Connects the workers with each other. This one does nothing, for functions that need no connection.

    One object lives in each worker, for as long as its process: `join` and `leave` are called for each call of the
    training function.
    """

    modules: tuple[str, ...] = ()
    """Imported before the worker begins, once for all workers of a node."""

    has_rendezvous = False
    """Whether `rendezvous` is to be called."""

    needs_new_process = False
    """Whether a process can be connected only once: ranks that go on after a failure get new processes."""

    def rendezvous(self, context: WorkerContext) -> dict[str, Any]:
        """On rank 0: opens what the others connect to. What it returns is given to `join` of all ranks."""
        return {}

    def join(self, rendezvous: dict[str, Any], context: WorkerContext) -> None:
        """On every rank, side by side, in the thread of the training function."""

    def leave(self) -> None:
        """After the training function, in its thread: takes back what `join` did, whole or not, and must
        not wait for ranks that may have failed."""

    def abort(self) -> None:
        """On another thread than the training function's: has it fail, if it can, where it waits for ranks that do not
        answer. A rank that does not leave is replaced by a new process."""
