"""Calls that block, made beside an event loop: each has a thread of its own and a deadline, so that a platform
that never answers stops nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from autoscaler.provider import ProviderError, SetupError, Transient

log = logging.getLogger(__name__)
T = TypeVar("T")

MOST_UNANSWERED = 4
"""Calls of one name that outlived their deadline and still hold a thread; no further one is started ..."""
WRITTEN_OFF_S = 600.0
"""... before so long: a call may never return, and the next one may."""


class BlockingCalls:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._unanswered: dict[str, dict[object, float]] = {}

    async def run(self, call: Callable[[], T], name: str, limit_s: float) -> T:
        """Runs the call in a thread of its own. What it returns after `limit_s` is not used.

        Raises:
            ProviderError: the call's own; whatever it raises that is no `ProviderError` or `SetupError` becomes
                `Transient` with its text, and so does a deadline that passed.
            SetupError: the call's own.
        """
        self._allow(name)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def deliver(result: T | None, error: BaseException | None) -> None:
            self._answered(name, future)
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def work() -> None:
            result: T | None = None
            failure: BaseException | None = None
            try:
                result = call()
            except (ProviderError, SetupError) as error:
                failure = error
            except Exception as error:
                log.exception("the provider's %s failed unexpectedly", name)
                failure = Transient(f"{name}: {type(error).__name__}: {error}")
            with contextlib.suppress(RuntimeError):  # the loop has ended; nobody waits
                loop.call_soon_threadsafe(deliver, result, failure)

        # Daemonic, for a platform that never answers must not keep the process alive.
        threading.Thread(target=work, name=f"autoscaler {name}", daemon=True).start()
        try:
            async with asyncio.timeout(limit_s):
                return await future
        except TimeoutError:
            self._unanswered.setdefault(name, {})[future] = time.monotonic()
            raise Transient(f"{name} did not end within {limit_s:g} s") from None

    def _allow(self, name: str) -> None:
        """A platform that answers nothing must not fill the process with threads."""
        waiting = self._unanswered.get(name, {})
        for call_id, since_s in list(waiting.items()):
            if time.monotonic() - since_s > WRITTEN_OFF_S:
                self._answered(name, call_id)
        if len(waiting) >= MOST_UNANSWERED:
            raise Transient(f"{name}: {len(waiting)} calls have not been answered for long")

    def _answered(self, name: str, call_id: object) -> None:
        waiting = self._unanswered.get(name)
        if waiting is not None:
            waiting.pop(call_id, None)
            if not waiting:
                del self._unanswered[name]
