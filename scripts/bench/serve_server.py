"""The applications of serve.py on Starlette or FastAPI alone, and what uvicorn imports them from.

`python serve_server.py KIND PORT WORKERS` serves one; its folder is the variable BENCH_FOLDER. A worker that is up
leaves a file `up-PID` there, and reads its version from the file `version`. "fixed" is a server of constant bytes.
"""

import asyncio
import contextlib
import os
import pickle
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from serve_client import HOST
from serve_work import BATCH, BATCH_WAIT_S, CHUNKS, PAUSE_S, big, body_facts, digest

FOLDER, KIND, PORT = "BENCH_FOLDER", "BENCH_KIND", "BENCH_PORT"
"""Variables of the environment, for uvicorn's workers."""
FIXED = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def app() -> Any:
    """The application that the environment names."""
    kind = os.environ[KIND]
    if kind == "bare":
        return bare
    return items() if kind == "items" else _Plain(kind).app()


async def bare(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[Any]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """The no-op without any framework."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


def items() -> Any:
    from fastapi import FastAPI
    from pydantic import BaseModel

    api = FastAPI()

    class Item(BaseModel):
        name: str
        values: list[float]

    @api.post("/items/{item_id}")
    async def item(item_id: int, item: Item) -> dict[str, Any]:
        return {"id": item_id, "name": item.name, "sum": sum(item.values)}

    return api


class _Plain:
    """An application of Starlette with one route, and "/back"."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._folder = Path(os.environ[FOLDER])
        self._me = ""
        self._big = big() if kind == "body" else b""

    def app(self) -> Any:
        from starlette.applications import Starlette
        from starlette.routing import Route

        root = Route("/", getattr(self, self._kind), methods=["GET", "POST"])
        return Starlette(routes=[root, Route("/back", self.back, methods=["POST"])], lifespan=self._life)

    @contextlib.asynccontextmanager
    async def _life(self, app: Any) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            if self._kind == "front":
                import aiohttp

                self._client = await stack.enter_async_context(aiohttp.ClientSession())
            if self._kind == "digits":
                self._model = pickle.loads((self._folder / "model").read_bytes())
                self._rows: asyncio.Queue[tuple[list[int], asyncio.Future[str]]] = asyncio.Queue()
                batching = asyncio.create_task(self._batch())
                stack.callback(batching.cancel)
            self._me = f"v{(self._folder / 'version').read_text()} {os.getpid()}"
            (self._folder / f"up-{os.getpid()}").touch()
            yield

    async def noop(self, request: Any) -> Any:
        return _text("ok")

    async def back(self, request: Any) -> Any:
        return _text(str(int(await request.body()) + 1))

    async def front(self, request: Any) -> Any:
        url = f"http://{HOST}:{int(os.environ[PORT]) + 1}/back"
        async with self._client.post(url, data=request.query_params["x"]) as answer:
            return _text(str(2 * int(await answer.text())))

    async def stream(self, request: Any) -> Any:
        from starlette.responses import StreamingResponse

        async def tokens() -> AsyncIterator[str]:
            for number in range(CHUNKS):
                yield f"token {number}\n"

        return StreamingResponse(tokens(), media_type="text/plain")

    async def body(self, request: Any) -> Any:
        if request.method == "GET":
            from starlette.responses import Response

            return Response(self._big, media_type="application/octet-stream")
        body = await request.body()
        return _text(digest(body) if "full" in request.query_params else body_facts(body))

    async def who(self, request: Any) -> Any:
        await asyncio.sleep(PAUSE_S)
        return _text(self._me)

    async def digits(self, request: Any) -> Any:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        await self._rows.put((await request.json(), answer))
        return _text(await answer)

    async def _batch(self) -> None:
        """What one would write by hand: a batch is full, or its first request has waited long enough."""
        import numpy as np

        loop = asyncio.get_running_loop()
        while True:
            batch = [await self._rows.get()]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BATCH_WAIT_S):
                    while len(batch) < BATCH:
                        batch.append(await self._rows.get())
            rows = np.array([row for row, _ in batch])
            answers = await loop.run_in_executor(None, self._model.predict, rows)
            for (_, future), answer in zip(batch, answers, strict=True):
                future.set_result(str(answer))


def _text(text: str) -> Any:
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(text)


class _Fixed(asyncio.Protocol):
    """Takes whatever comes for one request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(FIXED)


async def fixed(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Fixed, HOST, port)
    await server.serve_forever()


def serve(kind: str, port: int, workers: int) -> None:
    """Until SIGTERM."""
    if kind == "fixed":
        import uvloop

        uvloop.run(fixed(port))
        return
    import uvicorn

    os.environ[KIND], os.environ[PORT] = kind, str(port)
    place = str(Path(__file__).parent)
    options: dict[str, Any] = {"host": HOST, "port": port, "workers": workers}
    options |= {"access_log": False, "log_level": "error"}
    uvicorn.run("serve_server:app", factory=True, app_dir=place, **options)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
