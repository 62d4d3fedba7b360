"""Submitting tasks: what `RemoteFunction.remote` needs. What becomes of them decides `runtime._ownership.tasks`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from runtime._core.ids import TaskIds
from runtime._core.tasks import TaskState
from runtime._ownership.lease_pool import LeasePool
from runtime._ownership.records import NO_ARGUMENTS
from runtime._ownership.streams import Streams
from runtime._ownership.tasks import Task, TaskOptions, Tasks
from runtime._wire.messages.worker import Push
from runtime.object_ref import ObjectRef
from runtime.object_ref_generator import ObjectRefGenerator

from .arguments import ArgumentPacker
from .functions import Function, Functions
from .links import Links
from .objects import Objects
from .promises import NO_REFERENCES, parent, pickled_classes, promise
from .streaming import Readers


class TaskSubmitter:
    """Makes tasks of calls of remote functions. From any thread."""

    def __init__(
        self,
        links: Links,
        task_ids: TaskIds,
        objects: Objects,
        packer: ArgumentPacker,
        functions: Functions,
        streams: Streams,
        readers: Readers,
        tasks: Tasks,
    ) -> None:
        self._links = links
        self._ids = task_ids
        self._objects = objects
        self._packer = packer
        self._functions = functions
        self._streams = streams
        self._readers = readers
        self._tasks = tasks

    def pool(self, function: Function, options: TaskOptions) -> LeasePool:
        """The scheduling class of a function with these options."""
        self._functions.use(function)
        return self._tasks.pool(function, options)

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
        self._links.check()
        retried = options.retry_exceptions
        retry_on = () if retried.__class__ is bool else pickled_classes(retried)  # may run user code
        packed = self._packer.pack(function.name, args, kwargs) if args or kwargs else NO_ARGUMENTS
        with self._links.lock:
            task = Task(
                packed,
                Push(
                    self._ids.task(),
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
            result = promise(self._objects, self._streams, self._readers, task)
            self._tasks.submit(task)
        return result
