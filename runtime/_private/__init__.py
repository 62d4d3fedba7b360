"""Names that Ray's programs import from `ray._private` although they should not. The engine does not use it."""

import importlib
from types import ModuleType

_MODULES = frozenset(
    "internal_api profiling ray_constants runtime_env services state test_utils utils worker".split()
)


def __getattr__(name: str) -> ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
