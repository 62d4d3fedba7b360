"""Event loops: a new one for a thread of Serve, and the one that runs in the calling thread."""

from __future__ import annotations

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop, or the slower one of asyncio if uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that runs in the calling thread; None if none does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
