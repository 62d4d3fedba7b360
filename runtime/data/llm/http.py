"""Rows that a web service answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from runtime.data.llm.stages import Row

if TYPE_CHECKING:
    from runtime.data.llm.config import HttpRequestProcessorConfig

RETRIED = frozenset({408, 429, 502, 503, 504})
_SHOWN = 200


class HttpRequests:
    """Posts `payload` and keeps the answer in `http_response`."""

    def __init__(self, config: HttpRequestProcessorConfig) -> None:
        try:
            import aiohttp
        except ImportError as error:
            raise ImportError(
                "HttpRequestProcessorConfig needs the package aiohttp: pip install 'clusterctl[llm]'."
            ) from error
        self._aiohttp = aiohttp
        self._config = config
        self._turn = asyncio.Lock()
        self._next_s = 0.0  # when the next request may start, by the loop's clock

    async def __call__(self, rows: list[Row]) -> None:
        make = self._config.session_factory or self._aiohttp.ClientSession
        async with make() as session:
            if self._config.qps is None:
                async with self._turn:
                    for row in rows:
                        row["http_response"] = await self._answer(session, row)
                return
            async with asyncio.TaskGroup() as group:
                for row in rows:
                    await self._wait_for_turn(self._config.qps)
                    group.create_task(self._put_answer(session, row))

    async def _put_answer(self, session: Any, row: Row) -> None:
        row["http_response"] = await self._answer(session, row)

    async def _wait_for_turn(self, qps: int) -> None:
        now = asyncio.get_running_loop().time()
        at = max(now, self._next_s)
        self._next_s = at + 1 / qps
        await asyncio.sleep(at - now)

    async def _answer(self, session: Any, row: Row) -> Any:
        config = self._config
        payload = row.get("payload")
        if payload is None:
            raise ValueError(
                f"HttpRequestStage needs the column 'payload': preprocess made {', '.join(row) or 'none'}."
            )
        failure = ""
        cause: Exception | None = None
        for tries in range(config.max_retries + 1):
            if tries:
                await asyncio.sleep(config.base_retry_wait_time_in_s * 2 ** (tries - 1))
            try:
                async with session.post(config.url, **self._body(payload)) as response:
                    if response.ok:
                        return await response.json(content_type=None)
                    failure = f"{response.status} {response.reason}: {(await response.text())[:_SHOWN]}"
                    cause = None
                    if response.status not in RETRIED:
                        break
            except (self._aiohttp.ClientError, TimeoutError) as error:
                failure, cause = f"{type(error).__name__}: {error}", error
        raise RuntimeError(f"POST {config.url} failed after {tries + 1} requests: {failure}") from cause

    def _body(self, payload: Any) -> dict[str, Any]:
        """JSON, or a form if a value is a file; a form is read once, so each request has its own."""
        headers = dict(self._config.headers or {})
        if not (isinstance(payload, Mapping) and any(map(_is_file, payload.values()))):
            return {"json": payload, "headers": headers}
        form = self._aiohttp.FormData()
        for name, value in payload.items():
            if isinstance(value, Mapping) and "content" in value:
                form.add_field(
                    name,
                    value["content"],
                    filename=value.get("filename", name),
                    content_type=value.get("content_type"),
                )
            elif isinstance(value, bytes):
                form.add_field(name, value, filename=name)
            else:
                form.add_field(name, str(value))
        # aiohttp writes the content type, with the boundary between the fields
        return {
            "data": form,
            "headers": {key: each for key, each in headers.items() if key.lower() != "content-type"},
        }


def _is_file(value: Any) -> bool:
    return isinstance(value, bytes) or (isinstance(value, Mapping) and "content" in value)
