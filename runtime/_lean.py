"""Imports of daemons, which are started often and have to come up fast."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator
from typing import cast


@contextlib.contextmanager
def lean_imports() -> Iterator[None]:
    """While it lasts, what is imported comes a fifth cheaper. For a daemon's first imports, in a process that runs no
    code of users.

    asyncio comes without TLS, which no daemon's event loop uses: to load OpenSSL is a fifth of what asyncio costs.
    `ssl` itself can be imported afterwards. And nobody looks for garbage among what is imported: it stays.
    """
    modules = cast("dict[str, object]", sys.modules)
    hides = "asyncio" not in modules and "ssl" not in modules
    if hides:
        modules["ssl"] = None  # asyncio takes this for a Python that was built without it
    gc.disable()
    try:
        yield
    finally:
        if hides:
            del modules["ssl"]
        gc.freeze()
        gc.enable()
