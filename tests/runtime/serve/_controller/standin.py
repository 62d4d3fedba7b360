"""A replica and an ingress that do what the controller asks of them, and serve nobody: their actors are real."""

from __future__ import annotations

import os
from typing import Any

import runtime
from runtime import cloudpickle
from runtime.serve._core.published import load_routes
from runtime.serve._core.specs import DeploymentOptions, DeploymentSpec, ReplicaReady


class Replica:
    """Makes the user's object; its method `check_health` is called, if it has one."""

    def __init__(
        self,
        replica_id: str,
        token: bytes,
        app: str,
        spec: DeploymentSpec,
        rank: int,
        session: dict[str, Any],
    ) -> None:
        self._spec = spec
        self._user: Any = None

    def start(self) -> ReplicaReady:
        code = cloudpickle.loads(self._spec.code)
        args, kwargs = cloudpickle.loads(self._spec.init)
        self._user = code(*args, **kwargs)
        if self._spec.options.user_config is not None:
            self._user.reconfigure(self._spec.options.user_config)
        node = runtime.get_runtime_context().get_node_id()
        return ReplicaReady(node, "", "127.0.0.1", 1, os.getpid(), "127.0.0.1", "worker", "log")

    def reconfigure(self, options: DeploymentOptions, rank: int) -> None:
        self._user.reconfigure(options.user_config)

    def check_health(self) -> None:
        check = getattr(self._user, "check_health", None)
        if check is not None:
            check()

    def drain(self, timeout_s: float) -> int:
        return 0


class Ingress:
    """Listens nowhere."""

    def __init__(self, node_id: str, session: dict[str, Any]) -> None:
        self._node_id = node_id

    def start(self, http: dict[str, Any], grpc: dict[str, Any]) -> dict[str, Any]:
        if http["port"] == 1:
            raise RuntimeError("port 1 is taken")
        return {"host": http["host"], "port": http["port"], "grpc_port": None}

    def check_health(self) -> None:
        pass

    def update_routes(self, routes: bytes) -> None:
        load_routes(routes)

    def drain(self, timeout_s: float) -> int:
        return 0
