"""Imports of daemons, which are started often and have to come up fast."""

from __future__ import annotations

import sys
from typing import cast


def import_asyncio() -> None:
    """Imports asyncio without TLS, which no daemon's event loop uses: to load OpenSSL is a fifth of what asyncio costs.

    `ssl` itself can be imported afterwards. Not for processes that run code of users.
    """
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    modules = cast("dict[str, object]", sys.modules)
    modules["ssl"] = None  # asyncio takes this for a Python that was built without it
    try:
        import asyncio  # noqa: F401
    finally:
        del modules["ssl"]
