"""The applications of serve.py through a module with Ray Serve's API. They travel to their replicas by value.

Annotations are objects here, no strings: FastAPI reads those of a class that is local to a function.
"""

import asyncio
import os
import pickle
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from serve_work import BATCH, BATCH_WAIT_S, CHUNKS, PAUSE_S, STEP_PAUSE_S, big, body_facts, digest

OPTIONS = {"ray_actor_options": {"num_cpus": 0}, "max_ongoing_requests": 200}
SCALING = {
    "max_replicas": 4,
    "target_ongoing_requests": 4,
    "upscale_delay_s": 1,
    "downscale_delay_s": 2,
    "look_back_period_s": 2,
}


def apps(serve: Any, model: Path) -> dict[str, Callable[..., Any]]:
    """By name: what binds each. `model` is the file of the digits' model."""
    import numpy as np
    from fastapi import FastAPI
    from pydantic import BaseModel
    from starlette.responses import Response, StreamingResponse

    api = FastAPI()

    class Item(BaseModel):
        name: str
        values: list[float]

    @serve.deployment(**OPTIONS)
    class Noop:
        async def __call__(self, request: Any) -> str:
            return "ok"

    @serve.deployment(**OPTIONS)
    @serve.ingress(api)
    class Items:
        @api.post("/items/{item_id}")
        async def item(self, item_id: int, item: Item) -> dict[str, Any]:
            return {"id": item_id, "name": item.name, "sum": sum(item.values)}

    @serve.deployment(**OPTIONS)
    class Back:
        async def __call__(self, x: int) -> int:
            return x + 1

        async def stream(self, count: int) -> AsyncIterator[int]:
            for number in range(count):
                yield number

    @serve.deployment(**OPTIONS)
    class Front:
        def __init__(self, back: Any) -> None:
            self.back = back

        async def double(self, x: int) -> int:
            found: int = await self.back.remote(x)
            return 2 * found

        async def __call__(self, request: Any) -> str:
            return str(await self.double(int(request.query_params["x"])))

    @serve.deployment(**OPTIONS)
    class Stream:
        async def tokens(self) -> AsyncIterator[str]:
            for number in range(CHUNKS):
                yield f"token {number}\n"

        async def __call__(self, request: Any) -> Any:
            return StreamingResponse(self.tokens(), media_type="text/plain")

    @serve.deployment(**OPTIONS)
    class Body:
        def __init__(self) -> None:
            self.big = big()

        async def __call__(self, request: Any) -> Any:
            if request.method == "GET":
                return Response(self.big, media_type="application/octet-stream")
            body = await request.body()
            return digest(body) if "full" in request.query_params else body_facts(body)

    @serve.deployment(**OPTIONS)
    class Digits:
        def __init__(self, path: Path) -> None:
            self.model = pickle.loads(path.read_bytes())

        @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=BATCH_WAIT_S)
        async def predict(self, rows: list[list[int]]) -> list[str]:
            return [str(label) for label in self.model.predict(np.array(rows))]

        async def __call__(self, request: Any) -> Any:
            return await self.predict(await request.json())

    @serve.deployment(**OPTIONS)
    class Who:
        def __init__(self, version: int, pause_s: float) -> None:
            self.me, self.pause_s = f"v{version} {os.getpid()}", pause_s

        async def __call__(self, request: Any) -> str:
            await asyncio.sleep(self.pause_s)
            return self.me

    scaled = Who.options(max_ongoing_requests=16)
    return {
        "noop": lambda: Noop.bind(),
        "items": lambda: Items.bind(),
        "back": lambda: Back.bind(),
        "front": lambda: Front.bind(Back.bind()),
        "stream": lambda: Stream.bind(),
        "body": lambda: Body.bind(),
        "digits": lambda: Digits.bind(model),
        "who": lambda count, version: Who.options(num_replicas=count).bind(version, PAUSE_S),
        "steps": lambda least: scaled.options(
            autoscaling_config={"min_replicas": least, "initial_replicas": least, **SCALING}
        ).bind(1, STEP_PAUSE_S),
    }
