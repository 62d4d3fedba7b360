"""How programs reach the controller."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

import runtime
from runtime._extension import workers
from runtime.exceptions import RayError
from runtime.serve._core.controller import DeployFailed, Refused
from runtime.serve._core.published import CONTROLLER, NAMESPACE
from runtime.serve._core.world import HEAD

PRELOAD = (
    "runtime.serve._controller.actor",
    "runtime.serve._replica.preload",
    "runtime.serve._ingress.actor",
)
"""Imported once per node by the process that all actors of serving are forked from."""
log = logging.getLogger(__name__)

TELL_S = 35.0
"""How often a waiting call logs what it waits for: longer than the 30 s after which the status names a slow start."""
TIMEOUT_S = 60.0
"""Timeout of a status request."""


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


def ask(result: Any, apps: Collection[str] = ()) -> Any:
    """The answer to a call of the controller. It waits for as long as the controller waits, and logs why.

    Args:
        apps: the applications that the call waits for.

    Raises:
        RuntimeError: an application could not be deployed.
        RayServeException: the controller refuses it.
    """
    from runtime.serve.exceptions import RayServeException

    try:
        while apps and not runtime.wait([result], timeout=TELL_S)[0]:
            _tell(apps)
        return runtime.get(result)
    except DeployFailed as error:
        raise RuntimeError(_reason(error)) from None
    except Refused as error:
        raise RayServeException(_reason(error)) from None


def _tell(apps: Collection[str]) -> None:
    """Logs what applications wait for."""
    controller = find()
    try:
        details = {} if controller is None else runtime.get(controller.details.remote(), timeout=TIMEOUT_S)
    except (RayError, TimeoutError) as error:
        log.warning("The Serve controller does not answer, and is asked again: %s", error)
        return
    for name, app in details.get("applications", {}).items():
        if name in apps:
            for deployment in app["deployments"].values():
                log.info(
                    "Application %s waits: deployment %s is %s. %s",
                    name, deployment["name"], deployment["status"], deployment["message"],
                )  # fmt: skip


def _reason(error: BaseException) -> str:
    """Without the traceback of the controller's own code."""
    cause = getattr(error, "cause", None)
    return str(cause if cause is not None else error)
