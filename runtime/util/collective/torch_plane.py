"""torch.distributed below a group: it moves the elements, and the group's channels say who is there and who has died.

Measured with Gloo of torch 2.13: an operation ends with an error 10 ms after a process has died that it is connected to
and waits for. One that waits for a member that waits in turn ends at its timeout only, and neither `abort` nor
`shutdown` of the process group ends it. So operations run on a thread, which is left to its timeout when the channels
say that the group has failed, and the caller gets the error at once.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from runtime._extension import channels

from .links import Links
from .types import Backend, GroupError, ReduceOp

BLAME_S = 1.0
"""How long an error of torch.distributed waits for the channels to say who has died."""

Operation = Callable[[Any], None]
"""Carries out an operation of a process group."""


class TorchPlane:
    """A member of a process group.

    Args:
        links: to the other members.
        world_size: the number of members.
        rank: this one.
        backend: GLOO or NCCL.
    """

    def __init__(self, links: Links, world_size: int, rank: int, backend: str) -> None:
        self._links = links
        self._world_size = world_size
        self._rank = rank
        self._backend = backend
        self._operations: queue.SimpleQueue[Operation | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Exception | bool] = queue.SimpleQueue()
        self._is_open = False
        links.on_failure = self._wake

    def run(self, operation: Operation) -> None:
        """Carries an operation out; one call at a time.

        Raises:
            GroupError: a member is gone or has left, or torch.distributed failed.
        """
        self.open()
        self._operations.put(operation)
        self._wait()

    def close(self) -> None:
        """Gives the process group up. Idempotent."""
        self._operations.put(None)
        self._wake()

    def _wake(self) -> None:
        self._answers.put(False)

    def open(self) -> None:
        """Makes the process group, the first time; all members do it at the same point of what they share.

        Raises: as `run`.
        """
        if self._is_open:
            return
        import torch.distributed as distributed

        timeout = timedelta(seconds=self._links.timeout_s)
        if self._rank == 0:
            store = distributed.TCPStore(self._links.host, 0, self._world_size, True, timeout, False)
            self._links.share(channels.dump_plain(store.port))
        else:
            port = self._links.take(0)
            store = distributed.TCPStore(
                self._links.host_of(0), port, self._world_size, False, timeout, False
            )
        threading.Thread(
            target=_serve,
            args=(self._operations, self._answers, lambda: self._made(distributed, store, timeout)),
            name="torch.distributed",
            daemon=True,
        ).start()
        self._is_open = True
        self._wait()

    def _made(self, distributed: Any, store: Any, timeout: timedelta) -> Any:
        if self._backend == Backend.NCCL:
            options = distributed.ProcessGroupNCCL.Options()
            options._timeout = timeout
            return distributed.ProcessGroupNCCL(store, self._rank, self._world_size, options)
        kind = distributed.ProcessGroupGloo
        options = kind._Options()
        options._timeout = timeout
        # Of the interface by which the others know this node: a host's name often stands for 127.0.1.1.
        options._devices = [kind.create_device(hostname=self._links.host)]
        return kind(store, self._rank, self._world_size, options)

    def _wait(self) -> None:
        answer = self._answers.get()
        if answer is True:
            return
        if answer is not False:
            try:
                self._answers.get(timeout=BLAME_S)
            except queue.Empty:
                error = GroupError(f"torch.distributed failed at rank {self._rank}: {answer}")
                self._links.fail(error)
                raise error from answer
        self._links.check()
        raise GroupError("The group has failed.")


def _serve(
    operations: queue.SimpleQueue[Operation | None],
    answers: queue.SimpleQueue[Exception | bool],
    made: Callable[[], Any],
) -> None:
    """The thread's work. It alone holds the process group, whose end waits for what hangs in it."""
    try:
        group = made()
        answers.put(True)
        while (operation := operations.get()) is not None:
            operation(group)
            del operation
            answers.put(True)
    except Exception as error:
        answers.put(error)


def reduction(op: ReduceOp) -> Any:
    """torch's name of a reduction. AVERAGE is a SUM here, which the caller divides: Gloo has none."""
    import torch.distributed as distributed

    by: dict[ReduceOp, Any] = {
        ReduceOp.PRODUCT: distributed.ReduceOp.PRODUCT,
        ReduceOp.MIN: distributed.ReduceOp.MIN,
        ReduceOp.MAX: distributed.ReduceOp.MAX,
    }
    return by.get(op, distributed.ReduceOp.SUM)
