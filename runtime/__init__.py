"""Tasks, actors and objects over many machines. `import runtime as ray` runs a Ray program.

Names are imported on first use, because daemons import this package without needing them.
"""

from __future__ import annotations

import atexit
import importlib
import sys
from typing import TYPE_CHECKING, Any

from runtime._system.ray_version import RAY_COMMIT, RAY_VERSION

__version__ = RAY_VERSION
"""The version of Ray whose API this is, for programs that compare it. The distribution has a version of its own."""
__commit__ = RAY_COMMIT
SCRIPT_MODE, WORKER_MODE, SPILL_WORKER_MODE, RESTORE_WORKER_MODE = 0, 1, 2, 3

_PUBLIC = {
    "runtime._api.cluster_view": ("available_resources", "cluster_resources", "nodes"),
    "runtime._core.ids": (
        "ActorClassID",
        "ActorID",
        "ClusterID",
        "FunctionID",
        "JobID",
        "NodeID",
        "PlacementGroupID",
        "TaskID",
        "UniqueID",
        "WorkerID",
    ),
    "runtime._api.init": ("init", "is_initialized", "shutdown"),
    "runtime._process.logging_config": ("LoggingConfig",),
    "runtime._api.timeline": ("timeline",),
    "runtime.actor": ("get_actor", "method"),
    "runtime.api": ("cancel", "get", "get_gpu_ids", "kill", "put", "remote", "wait"),
    "runtime.client_builder": ("ClientBuilder", "client"),
    "runtime.cross_language": ("Language", "cpp_function", "java_actor_class", "java_function"),
    "runtime.object_ref": ("ObjectID", "ObjectRef"),
    "runtime.object_ref_generator": ("DynamicObjectRefGenerator", "ObjectRefGenerator"),
    "runtime.runtime_context": ("get_runtime_context",),
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}
_SUBMODULES = frozenset(
    "_private actor autoscaler cloudpickle cluster_utils cross_language dag data exceptions experimental job_config "
    "job_submission remote_function rllib runtime_context runtime_env serve testing train tune types util".split()
)
_LIBRARIES = frozenset("air llm workflow widgets".split())

__all__ = [*_MODULE_OF, "SCRIPT_MODE", "WORKER_MODE", "__commit__", "__version__", "exceptions", "util"]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is not None:
        loaded = importlib.import_module(module)
        # All of its names: some are used when the interpreter ends, and nothing can be imported any more.
        globals().update((each, getattr(loaded, each)) for each in _PUBLIC[module])
        return globals()[name]
    elif name in _SUBMODULES:
        value = importlib.import_module(f"runtime.{name}")
    elif name == "_raylet":
        value = importlib.import_module("runtime.compat._raylet")
    elif name in _LIBRARIES:
        raise ImportError(
            f"The library {name!r} is not part of this engine: "
            "it has Ray's core API, Ray Data, Train, Tune, Serve and RLlib."
        )
    else:
        raise AttributeError(f"module 'runtime' has no attribute {name!r}")
    globals()[name] = value
    return value


def _leave() -> None:
    """Shuts down at exit, after the handlers that the program has registered since it imported this package."""
    if "runtime._api.init" in sys.modules:
        sys.modules["runtime._api.init"].shutdown()


atexit.register(_leave)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_SUBMODULES})


if TYPE_CHECKING:
    from runtime import exceptions as exceptions
    from runtime import util as util
    from runtime._api.cluster_view import available_resources as available_resources
    from runtime._api.cluster_view import cluster_resources as cluster_resources
    from runtime._api.cluster_view import nodes as nodes
    from runtime._api.init import init as init
    from runtime._api.init import is_initialized as is_initialized
    from runtime._api.init import shutdown as shutdown
    from runtime._api.timeline import timeline as timeline
    from runtime._core.ids import ActorClassID as ActorClassID
    from runtime._core.ids import ActorID as ActorID
    from runtime._core.ids import ClusterID as ClusterID
    from runtime._core.ids import FunctionID as FunctionID
    from runtime._core.ids import JobID as JobID
    from runtime._core.ids import NodeID as NodeID
    from runtime._core.ids import PlacementGroupID as PlacementGroupID
    from runtime._core.ids import TaskID as TaskID
    from runtime._core.ids import UniqueID as UniqueID
    from runtime._core.ids import WorkerID as WorkerID
    from runtime._process.logging_config import LoggingConfig as LoggingConfig
    from runtime.actor import get_actor as get_actor
    from runtime.actor import method as method
    from runtime.api import cancel as cancel
    from runtime.api import get as get
    from runtime.api import get_gpu_ids as get_gpu_ids
    from runtime.api import kill as kill
    from runtime.api import put as put
    from runtime.api import remote as remote
    from runtime.api import wait as wait
    from runtime.client_builder import ClientBuilder as ClientBuilder
    from runtime.client_builder import client as client
    from runtime.cross_language import Language as Language
    from runtime.cross_language import cpp_function as cpp_function
    from runtime.cross_language import java_actor_class as java_actor_class
    from runtime.cross_language import java_function as java_function
    from runtime.object_ref import ObjectID as ObjectID
    from runtime.object_ref import ObjectRef as ObjectRef
    from runtime.object_ref_generator import DynamicObjectRefGenerator as DynamicObjectRefGenerator
    from runtime.object_ref_generator import ObjectRefGenerator as ObjectRefGenerator
    from runtime.runtime_context import get_runtime_context as get_runtime_context
