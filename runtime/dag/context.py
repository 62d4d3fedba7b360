"""Settings of compiled graphs."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import ClassVar


def _from_environment(name: str, default: float) -> float:
    return float(os.environ.get(f"RAY_CGRAPH_{name}", default))


@dataclass
class DAGContext:
    """The settings of this process; each begins as the environment's RAY_CGRAPH_<name> says.

    Attributes:
        get_timeout: seconds that `get` waits for a result of a compiled graph.
        max_inflight_executions: executions whose results have not been fetched.
        submit_timeout, teardown_timeout, read_iteration_timeout, buffer_size_bytes, max_buffered_results: of Ray's
            channels; without effect here.
    """

    get_timeout: float = field(default_factory=lambda: _from_environment("get_timeout", 10))
    max_inflight_executions: int = field(
        default_factory=lambda: int(_from_environment("max_inflight_executions", 10))
    )
    submit_timeout: float = field(default_factory=lambda: _from_environment("submit_timeout", 10))
    teardown_timeout: float = field(default_factory=lambda: _from_environment("teardown_timeout", 30))
    read_iteration_timeout: float = field(
        default_factory=lambda: _from_environment("read_iteration_timeout_s", 0.1)
    )
    buffer_size_bytes: int = field(default_factory=lambda: int(_from_environment("buffer_size_bytes", 1e6)))
    max_buffered_results: int = field(
        default_factory=lambda: int(_from_environment("max_buffered_results", 1000))
    )

    _current: ClassVar[DAGContext | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    @staticmethod
    def get_current() -> DAGContext:
        """The one of this process."""
        with DAGContext._lock:
            if DAGContext._current is None:
                DAGContext._current = DAGContext()
            return DAGContext._current
