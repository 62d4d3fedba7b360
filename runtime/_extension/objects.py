"""Values of objects, and the end of what makes them, for code that reacts to `events` and never waits for a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from runtime._owner.streaming import StreamReader
from runtime._process.core_worker import current_or_none
from runtime.object_ref import ObjectRef
from runtime.object_ref_generator import ObjectRefGenerator

from .process import attached, connected


def cancel(result: ObjectRef | ObjectRefGenerator, force: bool = False) -> None:
    """Cancels the task or call that makes a result, and what it has submitted. See `runtime.cancel`."""
    ref = result.completed() if isinstance(result, ObjectRefGenerator) else result
    attached().cancellation.cancel(ref._entry, force, True)


def kill(handle: Any, restarts: bool = False) -> None:
    """Ends the process of an actor. See `runtime.kill`.

    Args:
        restarts: the actor restarts, if restarts are left; else it is dead.
    """
    handle._ray_kill(not restarts)


def ignore_errors(results: Iterable[ObjectRef | ObjectRefGenerator]) -> None:
    """Errors of these that nobody reads are not logged, nor those of items to come: what they were made for is over."""
    core = current_or_none()
    if core is None:  # it has left the cluster, and nobody hears of them any more
        return
    with core.lock:
        for result in results:
            if isinstance(result, ObjectRefGenerator):
                cast(StreamReader, result._stream).ignore_errors()
            else:
                result._entry.seen = True


def error_of(ref: ObjectRef) -> BaseException:
    """The error that a failed object holds; loaded in the calling thread.

    Raises:
        ValueError: it holds a value.
    """
    try:
        attached().reader.get_one(ref, None)
    except Exception as error:
        return error
    raise ValueError(f"{ref!r} holds no error")


def value_of(ref: ObjectRef) -> Any:
    """The value of an object; loaded in the calling thread, and brought to this node if need be."""
    return attached().reader.get_one(ref, None)


def call_when_freed(ref: ObjectRef, callback: Callable[[], Any]) -> None:
    """Calls back once nobody needs an object that this process has put. Under the engine's lock: the callback must not
    wait, and what it raises is logged. There is one callback for an object.

    Raises:
        ValueError: another process owns the object.
    """
    entry = ref._entry
    if entry.owner is not None:
        raise ValueError(f"{ref!r} is owned by another process.")
    with attached().lock:
        entry.on_free = callback


def put(value: Any) -> ObjectRef:
    """See `runtime.put`."""
    return connected().objects.put(value)
