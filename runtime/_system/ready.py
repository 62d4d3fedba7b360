"""The pipe on which a daemon tells whoever started it that it is up, or why not."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

Tell = Callable[[Mapping[str, Any]], None]
"""Hears {"error": why} of a daemon that did not come up, and else what there is to know of it."""


class Ready:
    """Such a pipe; it hears one thing. Negative: there is none."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def tell(self, words: Mapping[str, Any]) -> None:
        """Writes one JSON line and closes the pipe, the first time."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(BrokenPipeError), os.fdopen(descriptor, "w") as pipe:
                pipe.write(json.dumps(words) + "\n")
