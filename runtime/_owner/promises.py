"""What the user gets for a submission before it has run: references to its results, or a generator."""

from __future__ import annotations

from functools import lru_cache

from runtime._core import ids
from runtime._ownership.records import Submission
from runtime._ownership.streams import Streams
from runtime._wire import serialization
from runtime._wire.messages.worker import Argument
from runtime.object_ref import ObjectRef
from runtime.object_ref_generator import ObjectRefGenerator

from . import context
from .objects import Objects
from .streaming import STREAMING, Readers, StreamReader

_FIRST = (1).to_bytes(4, "little")  # what `ids.object_id` appends for the first result
NO_REFERENCES: list[Argument] = []  # of a push; never changed


def parent() -> bytes:
    """The task that runs here, or b""."""
    running = context.execution.get()
    return running.task_id if running is not None else b""


@lru_cache(256)
def pickled_classes(classes: tuple[type[BaseException], ...]) -> tuple[bytes, ...]:
    """Exception classes as `Push.retry_on` has them: each by itself, as the worker may not know all of them."""
    return tuple(serialization.dumps_function(cls)[0] for cls in classes)


def promise(
    objects: Objects, streams: Streams, readers: Readers, task: Submission
) -> ObjectRef | list[ObjectRef] | ObjectRefGenerator | None:
    """Makes the objects of the results, and what the user gets for them: a reference, a list of them, a generator, or
    None. The submission holds its results until it is over. Under the lock."""
    task_id, count = task.push.task_id, task.push.num_returns
    if count == 1:
        entry = objects.own(task_id + _FIRST, 2)
        task.entries = (entry,)
        return objects.held_ref(entry)
    if count < 0:
        entry = objects.own(task_id + _FIRST, 1)
        task.entries = (entry,)
        ref = objects.new_ref(entry)
        stream = streams.open(task, entry, collects=count != STREAMING)
        return ObjectRefGenerator(StreamReader(readers, stream, ref)) if count == STREAMING else ref
    task.entries = tuple([objects.own(ids.object_id(task_id, index + 1), 1) for index in range(count)])
    return [objects.new_ref(entry) for entry in task.entries] or None
