"""How programs reach the controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import runtime
from runtime._extension import workers
from runtime.serve._core.controller import DeployFailed, Refused
from runtime.serve._core.published import CONTROLLER, NAMESPACE
from runtime.serve._core.world import HEAD

PRELOAD = (
    "runtime.serve._controller.actor",
    "runtime.serve._replica.preload",
    "runtime.serve._ingress.actor",
)
"""Imported once per node by the process that all actors of serving are forked from."""
TIMEOUT_S = 60.0
"""After so long without a status the controller counts as unreachable."""


def find() -> Any:
    """The controller, or None."""
    if not runtime.is_initialized():
        return None
    try:
        return runtime.get_actor(CONTROLLER, NAMESPACE)
    except ValueError:
        return None


def running() -> Any:
    """The controller.

    Raises:
        RayServeException: there is none.
    """
    from runtime.serve.exceptions import RayServeException

    controller = find()
    if controller is None:
        raise RayServeException("There is no Serve controller here: call serve.start or serve.run first.")
    return controller


def connect(runtime_env: Mapping[str, Any] | None = None) -> Any:
    """The controller, which is created if there is none. Starts a local session if there is none, either."""
    if not runtime.is_initialized():
        runtime.init(namespace=NAMESPACE)
    controller = find()
    if controller is not None:
        return controller
    from runtime.serve._controller.actor import Options, ServeControllerActor

    return (
        runtime.remote(ServeControllerActor)
        .options(
            name=CONTROLLER,
            namespace=NAMESPACE,
            lifetime="detached",
            num_cpus=0,
            resources={HEAD: 0.001},
            max_restarts=-1,
            max_task_retries=-1,
            get_if_exists=True,
            runtime_env=workers.preloaded(*PRELOAD, runtime_env=runtime_env),
        )
        .remote(Options(preload=PRELOAD))
    )


def ask(result: Any) -> Any:
    """The answer to a call of the controller. It waits for as long as the controller waits.

    Raises:
        RuntimeError: an application could not be deployed.
        RayServeException: the controller refuses it.
    """
    from runtime.serve.exceptions import RayServeException

    try:
        return runtime.get(result)
    except DeployFailed as error:
        raise RuntimeError(_reason(error)) from None
    except Refused as error:
        raise RayServeException(_reason(error)) from None


def _reason(error: BaseException) -> str:
    """Without the traceback of the controller's own code."""
    cause = getattr(error, "cause", None)
    return str(cause if cause is not None else error)
