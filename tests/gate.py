"""An actor that holds tasks back until it is told to let them go."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.under_test import ray


@ray.remote(num_cpus=0, max_concurrency=1000)
class Gate:
    """Closed until `open`. Counts who came to wait."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.arrived = 0

    async def pass_through(self, value: Any = None) -> Any:
        """Returns `value` once it is open."""
        self.arrived += 1
        await self.opened.wait()
        return value

    async def open(self) -> None:
        self.opened.set()

    async def waiting(self) -> int:
        return self.arrived
