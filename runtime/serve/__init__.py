"""Models and other code behind HTTP, gRPC and handles, with Ray Serve's API.

A controller (`_controller`, whose decisions are in `_core`) runs replicas (`_replica`) and an ingress on each node
(`_ingress`); requests go from callers (`_caller`) to replicas directly. Names are imported on first use. This package
uses the engine's public API, `runtime._extension` and `runtime._controllers`.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_PUBLIC = {
    "runtime.serve.api": (
        "RunTarget",
        "delete",
        "deployment",
        "get_app_handle",
        "get_deployment_handle",
        "run",
        "run_many",
        "shutdown",
        "shutdown_async",
        "start",
        "status",
    ),
    "runtime.serve.asgi": ("ingress",),
    "runtime.serve.batching": ("batch",),
    "runtime.serve.config": ("ControllerOptions", "HTTPOptions"),
    "runtime.serve.context": ("get_multiplexed_model_id", "get_replica_context", "get_trace_context"),
    "runtime.serve.deployment": ("Application", "Deployment"),
    "runtime.serve.multiplex": ("multiplexed",),
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}
_PACKAGES = (
    "autoscaling_policy",
    "batching",
    "config",
    "context",
    "exceptions",
    "grpc_util",
    "handle",
    "llm",
    "metrics",
    "request_router",
    "schema",
)

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"runtime.serve.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_PACKAGES})


class _Package(ModuleType):
    """`deployment` is the decorator, though there is a module of that name, which the import system would put there."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "deployment" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)  # code that is pickled by value refers to it


sys.modules[__name__].__class__ = _Package
