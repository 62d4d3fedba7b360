"""Actors as seen by a library: code that runs in their processes, and their methods and errors there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from runtime import exceptions
from runtime._core.bound_method import bound_method
from runtime.object_ref import ObjectRef

from .process import attached, connected

__all__ = ["bound_method", "results", "task_error"]


def results(refs: Sequence[ObjectRef]) -> list[Any]:
    """The values of calls, as `get` gives them: without a limit, since a call may wait for a busy actor.

    Raises:
        RayError: as `get` raises it.
    """
    return list(attached().reader.get(list(refs), None))


def task_error(error: Exception, method: str, actor: Any, actor_id: str) -> exceptions.RayTaskError:
    """The error that a caller gets of a method that raised.

    Args:
        actor: the instance, or None.
        actor_id: in hex.
    """
    cls = type(actor).__name__
    return exceptions.RayTaskError.from_exception(
        error,
        f"{cls}.{method}" if actor is not None else method,
        pid=os.getpid(),
        ip=connected().address.host,
        actor_id=actor_id,
    )
