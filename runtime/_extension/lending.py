"""CPUs of an actor or a task that waits, in any of its threads, for work which it has others do."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from runtime._executor.executor import Executor
from runtime._process.core_worker import Core, current_or_none


def holds_cpus() -> bool:
    """Whether this process is an actor, or runs a task, that has CPUs."""
    executor = _executor()
    return executor is not None and executor.holds_cpus


def lent_cpus() -> AbstractContextManager[None]:
    """While the block runs in any thread, others may use all CPUs of this process, if it has any: those of a placement
    group also outside of the group. Afterwards it has them back at once, even if that oversubscribes its node for a
    while."""
    executor = _executor()
    return executor.lent() if executor is not None and executor.holds_cpus else nullcontext()


def _executor() -> Executor | None:
    core = current_or_none()
    found = core.executor if isinstance(core, Core) else None
    return found if isinstance(found, Executor) else None
