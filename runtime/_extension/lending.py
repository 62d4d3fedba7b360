"""CPUs of an actor, or of a thread of a task, that waits for work which it has others do."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext

from runtime._executor.executor import Executor
from runtime._process.core_worker import Core, current_or_none


def keeps_cpus() -> bool:
    """Whether this process has CPUs, which it keeps while the calling thread waits in `get`: an actor, in any thread,
    or a task, in another thread than its main one."""
    executor = _executor()
    if executor is None or not executor.holds_cpus:
        return False
    return executor.setup is not None or threading.current_thread() is not threading.main_thread()


def lent_cpus() -> AbstractContextManager[None]:
    """While the block runs in any thread, others may use all CPUs of this process. Afterwards it has them back at once,
    even if that oversubscribes its node for a while."""
    executor = _executor()
    return nullcontext() if executor is None else executor.lent()


def _executor() -> Executor | None:
    core = current_or_none()
    found = core.executor if isinstance(core, Core) else None
    return found if isinstance(found, Executor) else None
