"""Makes a conda environment with py-rattler: `python -m runtime._node.environments.conda_rattler < JSON`.

JSON has the `channels`, the `specs` of packages, and the `prefix`, a new folder. It is no argument, because channels
may have credentials and process lists show arguments. The solver is a process of its own, so that the agent does not
load it, and can stop it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any


async def create(channels: list[str], specs: list[str], prefix: str) -> None:
    """Solves for the packages and installs them.

    Raises:
        Exception: py-rattler's own errors; their texts say which package or channel they are about.
    """
    import rattler

    found: Any = await rattler.solve(
        [rattler.Channel(channel) for channel in channels],
        [rattler.MatchSpec(spec) for spec in specs],
        virtual_packages=rattler.VirtualPackage.detect(),
    )
    await rattler.install(found, prefix, show_progress=False)


def main() -> None:
    """Entry point."""
    status = 0
    try:
        asyncio.run(create(**json.load(sys.stdin)))
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        status = 1
    sys.stderr.flush()
    os._exit(status)  # py-rattler's threads may still run, and crash a Python that ends in order


if __name__ == "__main__":
    main()
