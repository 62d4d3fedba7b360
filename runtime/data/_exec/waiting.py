"""How the main thread of a task waits for a thread of its own: its CPUs go to the tasks that make what it waits for."""

from __future__ import annotations

from collections.abc import Callable

from runtime.data._iteration.prefetch import Feed


def wait_of_task() -> Callable[[Feed], None] | None:
    """The wait for `prefetch.ahead`; None where the process runs no task: it has no CPUs to lend."""
    import runtime

    if not runtime.is_initialized() or runtime.get_runtime_context().get_task_id() is None:
        return None
    return _wait


def _wait(feed: Feed) -> None:
    from runtime._extension.events import Subscription

    with Subscription() as subscription:
        feed.bell = lambda: subscription.post(None)
        try:
            while not feed.is_ready:
                subscription.take()
        finally:
            feed.bell = None
