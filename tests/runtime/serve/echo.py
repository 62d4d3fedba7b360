"""The application that `SteadyLoad` asks."""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
from typing import Any

from tests.under_test import NAME

serve: Any = importlib.import_module(f"{NAME}.serve")
APP = "load"


@serve.deployment(
    num_replicas=2, max_ongoing_requests=2, ray_actor_options={"num_cpus": 0.1}, user_config={"version": 0}
)
class Echo:
    """Answers its number, who it is, and the version that it was told last."""

    def __init__(self, version: int = 0) -> None:
        self.version = version

    def reconfigure(self, config: dict[str, int]) -> None:
        self.version = config["version"] or self.version

    async def __call__(self, request: Any) -> dict[str, int]:
        await asyncio.sleep(0.01)
        number = int(request.query_params["number"])
        return {"number": number, "version": self.version, "pid": os.getpid()}


def start(**options: Any) -> str:
    """Starts Serve on a free port; the URL of the application, once it is deployed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port}, **options)
    return f"http://127.0.0.1:{port}/{APP}"


def deploy(deployment: Any, *arguments: int) -> None:
    """Runs it as the application, and returns when it runs."""
    serve.run(deployment.bind(*arguments), name=APP, route_prefix=f"/{APP}")
