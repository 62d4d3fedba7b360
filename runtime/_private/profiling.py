"""`ray._private.profiling`: spans that programs record for the timeline."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

from runtime._owner.history import Span
from runtime._process.core_worker import current_or_none


@contextlib.contextmanager
def profile(event_type: str, extra_data: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Records the duration of the block for `timeline`. Does nothing in a process that is not connected.

    Args:
        event_type: the event's category, and its name unless `extra_data` has a `name`.
        extra_data: shown with the event.

    Raises:
        ValueError: `extra_data` is no mapping of strings to strings.
    """
    extra = dict(extra_data or {})
    if not all(isinstance(text, str) for pair in extra.items() for text in pair):
        raise ValueError(f"extra_data must be a dict of strings to strings, not {extra_data!r}.")
    began_s = time.time()
    try:
        yield
    finally:
        core = current_or_none()
        if core is not None:
            core.history.spans.append(Span(event_type, began_s, time.time(), extra))
