"""Names that Ray's programs import from `ray._private` although they should not. Nothing of the engine lives here."""

import importlib
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    if name not in ("internal_api", "services", "test_utils", "worker"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
