"""APIs that may change: the cluster's key-value store, progress bars, object locations, collectives.
Imported on first use."""

from __future__ import annotations

import importlib
from typing import Any

_SUBMODULES = frozenset({"collective", "dynamic_resources", "internal_kv", "locations", "tqdm_ray"})
_MODULE_OF = {
    "get_local_object_locations": "locations",
    "get_object_locations": "locations",
    "set_resource": "dynamic_resources",
    "wait_tensor_freed": "tensors",
}

__all__ = [
    "collective",
    "dynamic_resources",
    "get_local_object_locations",
    "get_object_locations",
    "internal_kv",
    "locations",
    "set_resource",
    "tqdm_ray",
    "wait_tensor_freed",
]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    elif name in _MODULE_OF:
        value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value
