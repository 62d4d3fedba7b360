"""How the main thread of a task waits for another thread of its process: its CPUs go to the tasks that make what it
waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from runtime.data._iteration.prefetch import Feed

T = TypeVar("T")


def wait_of_task() -> Callable[[Feed], None] | None:
    """The wait for `prefetch.ahead`; None where the process runs no task: it has no CPUs to lend."""
    return _wait if _runs_task() else None


def result(future: Future[T]) -> T:
    """Waits for the result of a future that another thread of this process sets.

    Raises:
        BaseException: that of the future.
    """
    if not future.done() and threading.current_thread() is threading.main_thread() and _runs_task():
        _lend_until(future.done, lambda ring: future.add_done_callback(lambda _: ring()))
    return future.result()


def _runs_task() -> bool:
    import runtime

    return runtime.is_initialized() and runtime.get_runtime_context().get_task_id() is not None


def _wait(feed: Feed) -> None:
    def set_bell(ring: Callable[[], Any]) -> None:
        feed.bell = ring

    try:
        _lend_until(lambda: feed.is_ready, set_bell)
    finally:
        feed.bell = None


def _lend_until(is_over: Callable[[], bool], set_bell: Callable[[Callable[[], Any]], Any]) -> None:
    """Waits in the engine, which lends a task's CPUs.

    Args:
        set_bell: gets a function that is to be called, in any thread, when the wait may be over.
    """
    from runtime._extension.events import Subscription

    with Subscription() as subscription:
        set_bell(lambda: subscription.post(None))
        while not is_over():
            subscription.take()
