"""Imports of daemons, which are started often and have to come up fast."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator
from typing import cast

_OPENSSL = {"ssl": "asyncio", "_hashlib": "hashlib"}
"""The modules that load OpenSSL, and who does without when they are missing."""


@contextlib.contextmanager
def lean_imports() -> Iterator[None]:
    """While it lasts, what is imported comes cheaper. For a daemon's first imports, in a process that runs no
    code of users.

    OpenSSL is not loaded: asyncio comes without TLS, which no daemon's event loop uses, and hashlib and hmac come with
    Python's own digests. All that can be had afterwards: `ssl` as ever, and whoever imports `hashlib` or `hmac` then
    gets OpenSSL's digests, which are faster for much data. And nobody looks for garbage among what is imported: it
    stays.
    """
    modules = cast("dict[str, object]", sys.modules)
    hidden = [name for name, user in _OPENSSL.items() if name not in modules and user not in modules]
    for name in hidden:
        modules[name] = None  # its user takes this for a Python that was built without OpenSSL
    gc.disable()
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]
        if "_hashlib" in hidden:
            for name in ("hashlib", "hmac"):
                modules.pop(name, None)
        gc.freeze()
        gc.enable()
