"""CPUs of an actor that waits for work which it has others do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from runtime._process.core_worker import Core, current_or_none
from runtime._wire.messages.node import Blocked, Unblocked

from .process import connected

_lock = threading.Lock()
_waiting = 0
"""How many threads of this process wait; guarded by the lock."""


def keeps_cpus() -> bool:
    """Whether this process is an actor with CPUs, which it keeps while it waits in `get`."""
    core = current_or_none()
    executor = core.executor if isinstance(core, Core) else None
    setup = executor.setup if executor is not None else None
    return setup is not None and setup.lease is not None and setup.lease.resources.get("CPU", 0) > 0


@contextmanager
def lent_cpus() -> Iterator[None]:
    """While the block runs in any thread, others may use all CPUs of this actor. Afterwards it has them back at once,
    even if that oversubscribes its node for a while."""
    global _waiting
    core = connected()
    with _lock:
        _waiting += 1
        if _waiting == 1:
            with core.lock:
                core.agent.send(Blocked(whole=True))
            core.pump.kick()
    try:
        yield
    finally:
        with _lock:
            _waiting -= 1
            if not _waiting:
                with core.lock:
                    core.agent.send(Unblocked())
                core.pump.kick()
