"""What all replicas need, for the process that their workers are forked from: memory and time are spent once per node.

Used by `runtime._extension.workers.preloaded`. Starts no thread.
"""

from __future__ import annotations

import contextlib

import runtime.serve._caller.caller
import runtime.serve._replica.actor
import runtime.serve.exceptions
import runtime.serve.handle  # noqa: F401

with contextlib.suppress(ImportError):
    import uvloop  # noqa: F401
with contextlib.suppress(ImportError):
    import starlette.requests
    import starlette.responses  # noqa: F401
