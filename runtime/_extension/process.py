"""The process in which a library runs."""

from __future__ import annotations

from collections.abc import Callable

from runtime._process.core_worker import Core, current, current_or_none


def connected() -> Core:
    """The core of this process.

    Raises:
        RaySystemError: it is not connected.
        NotImplementedError: it is a program outside the cluster, whose driver process owns everything.
    """
    core = current()
    if not isinstance(core, Core):
        raise NotImplementedError(
            "Libraries run inside the cluster: with a connection by ray:// call them from a task or an actor."
        )
    return core


def connected_or_none() -> Core | None:
    """The core of this process, or None; connects to nothing."""
    core = current_or_none()
    return core if isinstance(core, Core) else None


def call_before_leaving(callback: Callable[[], object]) -> None:
    """Calls back, on the thread that ends the connection, when this process is about to leave the cluster.

    Raises: see `connected`.
    """
    connected().before_close.append(callback)
