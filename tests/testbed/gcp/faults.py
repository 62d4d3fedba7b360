"""What the pretended platform does wrong, on demand."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field


@dataclass
class Fault:
    """One thing that goes wrong.

    Attributes:
        where: a regular expression for "METHOD path" of the calls that it concerns.
        status: of the answer; 0: the connection ends without any.
        is_done: what was asked for happens all the same.
        operation: instead, the operation that is answered with ends with this error code.
        times: how often. None: until it is removed.
        slow_s: the answer comes so late.
        every: only each so many-th of these calls.
    """

    where: str
    status: int = 503
    reason: str = "backendError"
    message: str = "pretended"
    is_done: bool = False
    operation: str = ""
    times: int | None = 1
    slow_s: float = 0.0
    every: int = 1
    calls: int = 0


@dataclass
class Faults:
    """All of it.

    Attributes:
        stockouts: zones and markets ("standard", "spot") without machines.
        operation_s: how long an operation takes.
        delete_s: how long the end of a machine takes.
        listing_lag_s: how long lists do not know of a new machine.
        unreachable: zones of which aggregated lists say nothing.
    """

    stockouts: set[tuple[str, str]] = field(default_factory=set)
    operation_s: float = 0.05
    delete_s: float = 0.1
    listing_lag_s: float = 0.0
    unreachable: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    _faults: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, where: str, status: int = 503, **how: object) -> Fault:
        """From now on; see `Fault`."""
        fault = Fault(where, status, **how)  # type: ignore[arg-type]
        with self._lock:
            self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        with self._lock:
            self._faults.remove(fault)

    def of(self, call: str) -> Fault | None:
        """The fault that this call meets."""
        with self._lock:
            self.calls.append(call)
            for fault in self._faults:
                if re.search(fault.where, call) and fault.times != 0:
                    fault.calls += 1
                    if fault.calls % fault.every:
                        continue
                    if fault.times is not None:
                        fault.times -= 1
                    return fault
        return None
