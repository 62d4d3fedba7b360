"""How values of large libraries travel, where their own pickling costs too much. Each module here is loaded when a
value is pickled in a process that has imported its library, so that nobody pays for what is not used. May be imported
by `serialization` only.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

Reducer = Callable[[Any], Any]
"""Gives what `__reduce__` would, or NotImplemented for values of other types."""

_MODULES = {"pyarrow": "arrow", "torch": "tensors"}
_reducers: dict[str, Reducer] = {}


def loaded() -> tuple[Reducer, ...]:
    """The reducers for the libraries that this process has imported."""
    if len(_reducers) < len(_MODULES):
        for library, module in _MODULES.items():
            if library in sys.modules and library not in _reducers:
                _reducers[library] = importlib.import_module(f"{__name__}.{module}").reduce
    return tuple(_reducers.values())
