"""How values of large libraries travel, where their own pickling costs too much. A module is loaded when a value is
pickled in a process that has imported its library, so that nobody pays for what is not used.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

Reducer = Callable[[Any], Any]
"""Gives what `__reduce__` would, or NotImplemented for values of other types."""

_modules = {"pyarrow": f"{__name__}.arrow", "torch": f"{__name__}.tensors"}
_reducers: dict[str, Reducer] = {}


def register(library: str, module: str) -> None:
    """Adds a module for the values of a library: its function `reduce` is a `Reducer`. For this process; those that
    only unpickle need nothing.

    Args:
        library: the name under which the library is imported.
        module: may import the library.

    Raises:
        ValueError: the library has another module.
    """
    known = _modules.setdefault(library, module)
    if known != module:
        raise ValueError(f"Values of {library} are pickled by {known} already, and not by {module}.")


def loaded() -> tuple[Reducer, ...]:
    """The reducers for the libraries that this process has imported."""
    if len(_reducers) < len(_modules):
        for library, module in _modules.items():
            if library in sys.modules and library not in _reducers:
                _reducers[library] = importlib.import_module(module).reduce
    return tuple(_reducers.values())
