"""The engine that the tests of the public API run against.

`RAY_MODULE=ray` runs the same tests against the engine whose behaviour this one follows, where that is
installed: a test that fails there claims something wrong.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

NAME = os.environ.get("RAY_MODULE", "runtime")
OWN = NAME == "runtime"

ray: Any = importlib.import_module(NAME)
exceptions: Any = importlib.import_module(f"{NAME}.exceptions")
util: Any = importlib.import_module(f"{NAME}.util")
scheduling_strategies: Any = importlib.import_module(f"{NAME}.util.scheduling_strategies")


def init(**options: Any) -> Any:
    """Starts a local session with what only the one or the other needs."""
    if not OWN:
        options.setdefault("include_dashboard", False)
        options.setdefault("logging_level", "ERROR")
    return ray.init(**options)
