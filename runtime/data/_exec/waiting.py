"""How a consumer in a task or an actor waits for another thread of its process: its CPUs go to the tasks that make what
it waits for."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from runtime.data._iteration.prefetch import PATIENCE_S, Feed, is_preparing

T = TypeVar("T")


def wait_of_consumer() -> Callable[[Feed], None] | None:
    """The wait for `prefetch.ahead`; None for a thread that has no CPUs to lend."""
    return _wait if _has_cpus() else None


def result(future: Future[T]) -> T:
    """Waits for the result of a future that another thread of this process sets.

    Raises:
        BaseException: that of the future.
    """
    if not future.done() and not is_preparing() and _has_cpus():
        try:
            return future.result(PATIENCE_S)
        except concurrent.futures.TimeoutError:
            if not future.done():
                _lend_until(future.done, lambda ring: future.add_done_callback(lambda _: ring()))
    return future.result()


def _has_cpus() -> bool:
    """Whether the calling thread is of an actor or task that has CPUs, or the main thread of a task."""
    import runtime
    from runtime._extension.lending import holds_cpus

    if not runtime.is_initialized():
        return False
    return holds_cpus() or (
        threading.current_thread() is threading.main_thread()
        and runtime.get_runtime_context().get_task_id() is not None
    )


def _wait(feed: Feed) -> None:
    def set_bell(ring: Callable[[], Any]) -> None:
        feed.bell = ring

    try:
        _lend_until(lambda: feed.is_ready, set_bell)
    finally:
        feed.bell = None


def _lend_until(is_over: Callable[[], bool], set_bell: Callable[[Callable[[], Any]], Any]) -> None:
    """Waits in the engine, and lends the CPUs of this process.

    Args:
        set_bell: gets a function that is to be called, in any thread, when the wait may be over.
    """
    from runtime._extension.events import Subscription
    from runtime._extension.lending import lent_cpus

    with lent_cpus(), Subscription() as subscription:
        set_bell(lambda: subscription.post(None))
        while not is_over():
            subscription.take()
