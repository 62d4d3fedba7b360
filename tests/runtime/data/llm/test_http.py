"""Rows posted to a real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from runtime.data.llm import HttpRequestProcessorConfig, build_processor
from runtime.data.llm.http import HttpRequests
from tests.under_test import ray

web = pytest.importorskip("aiohttp.web")


class Service:
    """Doubles numbers; fails as often as it is told to."""

    def __init__(self) -> None:
        self.failures: list[int] = []
        self.headers: list[dict[str, str]] = []
        self.now = self.most = 0
        self.url = ""
        self._ready = threading.Event()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(20)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        app = web.Application()
        app.router.add_post("/double", self._double)
        app.router.add_post("/form", self._form)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._ready.set()
        await self._end.wait()
        await runner.cleanup()

    async def _double(self, request: Any) -> Any:
        self.headers.append(dict(request.headers))
        if self.failures:
            return web.Response(status=self.failures.pop(), text="not now")
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1
        return web.json_response({"value": (await request.json())["value"] * 2})

    async def _form(self, request: Any) -> Any:
        form = await request.post()
        file = form["file"]
        return web.json_response(
            {
                "name": file.filename,
                "bytes": len(file.file.read()),
                "word": form["word"],
                "type": file.content_type,
            }
        )

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(20)


@pytest.fixture(scope="module")
def running() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


@pytest.fixture
def service(running: Service) -> Service:
    running.failures, running.headers, running.most = [], [], 0
    return running


def ask(rows: list[dict[str, Any]], url: str, **settings: Any) -> list[Any]:
    asyncio.run(HttpRequests(HttpRequestProcessorConfig(url=url, **settings))(rows))
    return [row["http_response"] for row in rows]


def payloads(count: int) -> list[dict[str, Any]]:
    return [{"payload": {"value": number}} for number in range(count)]


def test_answers_are_columns(service: Service) -> None:
    answers = ask(payloads(3), service.url + "/double", headers={"X-Key": "k"})
    assert answers == [{"value": 0}, {"value": 2}, {"value": 4}]
    assert [each["X-Key"] for each in service.headers] == ["k"] * 3
    assert service.most == 1  # one after the other


def test_with_a_rate_requests_do_not_wait_for_answers(service: Service) -> None:
    assert len(ask(payloads(20), service.url + "/double", qps=2000)) == 20
    assert service.most > 1


def test_some_failures_are_tried_again(service: Service) -> None:
    service.failures = [503, 429]
    config: dict[str, Any] = {"max_retries": 2, "base_retry_wait_time_in_s": 0.001}
    assert ask(payloads(1), service.url + "/double", **config) == [{"value": 0}]
    assert len(service.headers) == 3


def test_too_many_failures_are_an_error(service: Service) -> None:
    service.failures = [503, 502]
    with pytest.raises(RuntimeError, match="failed after 2 requests: 503 Service Unavailable: not now"):
        ask(payloads(1), service.url + "/double", max_retries=1, base_retry_wait_time_in_s=0.001)


def test_other_failures_are_not_tried_again(service: Service) -> None:
    service.failures = [400]
    with pytest.raises(RuntimeError, match="failed after 1 requests: 400 Bad Request"):
        ask(payloads(1), service.url + "/double", max_retries=5)


def test_no_server() -> None:
    with pytest.raises(RuntimeError, match=r"POST http://127\.0\.0\.1:1/ failed after 1 requests: ClientC"):
        ask(payloads(1), "http://127.0.0.1:1/")


def test_a_row_without_a_payload(service: Service) -> None:
    with pytest.raises(ValueError, match="needs the column 'payload': preprocess made value"):
        ask([{"value": 1}], service.url)


def test_files_are_posted_as_a_form(service: Service) -> None:
    rows: list[dict[str, Any]] = [
        {"payload": {"file": b"12345", "word": "a"}},
        {"payload": {"file": {"content": b"1", "filename": "f.wav", "content_type": "audio/wav"}, "word": 3}},
    ]
    answers = ask(rows, service.url + "/form", headers={"Content-Type": "application/json"})
    assert answers == [
        {"name": "file", "bytes": 5, "word": "a", "type": "application/octet-stream"},
        {"name": "f.wav", "bytes": 1, "word": "3", "type": "audio/wav"},
    ]


def test_a_processor_of_requests(session: Any, service: Service) -> None:
    processor = build_processor(
        HttpRequestProcessorConfig(url=service.url + "/double", batch_size=4),
        preprocess=lambda row: {"payload": {"value": row["id"]}, "id": row["id"]},
        postprocess=lambda row: {"id": row["id"], "twice": row["http_response"]["value"]},
    )
    rows = processor(ray.data.range(10)).take_all()
    assert rows == [{"id": number, "twice": 2 * number} for number in range(10)]
