"""The process in which a library runs."""

from __future__ import annotations

from runtime._process.core_worker import Core, current


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
