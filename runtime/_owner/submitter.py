"""Submitting tasks: what `RemoteFunction.remote` needs. What becomes of them decides `runtime._ownership.tasks`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runtime._core.tasks import TaskState
from runtime._ownership.lease_pool import LeasePool
from runtime._ownership.records import NO_ARGUMENTS
from runtime._ownership.tasks import Task, TaskOptions
from runtime._wire.messages.worker import Push

from .promises import NO_REFERENCES, parent, pickled_classes, promise

if TYPE_CHECKING:
    from runtime._process.core_worker import Core
    from runtime.object_ref import ObjectRef
    from runtime.object_ref_generator import ObjectRefGenerator

    from .functions import Function


class TaskSubmitter:
    """Makes tasks of calls of remote functions. From any thread."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def pool(self, function: Function, options: TaskOptions) -> LeasePool:
        """The scheduling class of a function with these options."""
        self._core.functions.use(function)
        return self._core.tasks.pool(function, options)

    def submit(
        self,
        pool: LeasePool,
        function: Function,
        options: TaskOptions,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> ObjectRef | list[ObjectRef] | ObjectRefGenerator | None:
        """Starts a task; returns at once what the user gets for its results.

        Raises:
            RaySystemError: the node agent is gone.
        """
        core = self._core
        core.check()
        retried = options.retry_exceptions
        retry_on = () if retried.__class__ is bool else pickled_classes(retried)  # may run user code
        packed = core.arguments.pack(function.name, args, kwargs) if args or kwargs else NO_ARGUMENTS
        with core.lock:
            task = Task(
                packed,
                Push(
                    core.ids.task(),
                    function.key,
                    "",
                    packed.value,
                    NO_REFERENCES,
                    options.num_returns,
                    None,
                    0,
                    options.name,
                    stream=options.stream,
                    retry_on=retry_on,
                ),
                options.max_retries,
                options.max_retries,
                retried,
                time.time(),
                parent(),
                TaskState.WAITING_FOR_ARGUMENTS if packed.entries else TaskState.QUEUED,
                pool=pool,
                function=function,
                options=options,
            )
            result = promise(core, task)
            core.tasks.submit(task)
        return result
