"""The process in which a library runs."""

from __future__ import annotations

from collections.abc import Callable

from runtime._process import core_worker
from runtime._process.core_worker import Core


def connected() -> Core:
    """The core of this process, which joins or starts a cluster if the program did not.

    Raises:
        RaySystemError: it is not connected.
        NotImplementedError: it is a program outside the cluster, whose driver process owns everything.
    """
    return _inside(core_worker.current())


def attached() -> Core:
    """The same for what has come from a session, such as references, and for threads that may outlive it: no other
    one is started for them.

    Raises: see `connected`.
    """
    return _inside(core_worker.attached())


def _inside(core: object) -> Core:
    if not isinstance(core, Core):
        raise NotImplementedError(
            "Libraries run inside the cluster: with a connection by ray:// call them from a task or an actor."
        )
    return core


def connected_or_none() -> Core | None:
    """The core of this process, or None; connects to nothing."""
    core = core_worker.current_or_none()
    return core if isinstance(core, Core) else None


def call_before_leaving(callback: Callable[[], object]) -> None:
    """Calls back, on the thread that ends the connection, when this process is about to leave the cluster.

    Raises: see `connected`.
    """
    connected().before_close.append(callback)
