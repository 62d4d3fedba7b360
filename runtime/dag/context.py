"""Settings of compiled graphs."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import ClassVar

from runtime._system import settings


@dataclass
class DAGContext:
    """The settings of this process. The environment variable RAY_CGRAPH_<name> sets the initial value of each.

    Attributes:
        get_timeout: seconds that `get` waits for a result of a compiled graph; -1: no limit.
        max_inflight_executions: executions that are on their way at once; more wait in the process that executes.
        teardown_timeout: seconds that `teardown` waits for calls that have begun; -1: no limit.
        buffer_size_bytes: a hint; values of any size pass.
        max_buffered_results: results that are kept because an earlier one was not fetched yet.
        submit_timeout, read_iteration_timeout: without effect.
    """

    get_timeout: float = field(default_factory=settings.GRAPH_GET_TIMEOUT_S.get)
    max_inflight_executions: int = field(default_factory=settings.GRAPH_MAX_INFLIGHT.get)
    submit_timeout: float = field(default_factory=settings.GRAPH_SUBMIT_TIMEOUT_S.get)
    teardown_timeout: float = field(default_factory=settings.GRAPH_TEARDOWN_TIMEOUT_S.get)
    read_iteration_timeout: float = field(default_factory=settings.GRAPH_READ_TIMEOUT_S.get)
    buffer_size_bytes: int = field(default_factory=settings.GRAPH_BUFFER_BYTES.get)
    max_buffered_results: int = field(default_factory=settings.GRAPH_MAX_BUFFERED.get)

    _current: ClassVar[DAGContext | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    @staticmethod
    def get_current() -> DAGContext:
        """The settings of this process."""
        with DAGContext._lock:
            if DAGContext._current is None:
                DAGContext._current = DAGContext()
            return DAGContext._current
