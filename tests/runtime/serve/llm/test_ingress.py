"""The ingress's routes, with stand-ins for the handles of servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

pytest.importorskip("fastapi")

from runtime.serve.asgi import BUILD_METHOD
from runtime.serve.exceptions import BackPressureError, DeploymentUnavailableError
from runtime.serve.llm.config import LLMConfig
from runtime.serve.llm.ingress import DEFAULT_ENDPOINTS, OpenAiIngress, make_fastapi_ingress
from runtime.serve.llm.openai_api_models import ErrorInfo, ErrorResponse, to_model_metadata


class Answers:
    """What a handle's `remote` returns: yields items, and raises those that are errors."""

    def __init__(self, items: list[Any]) -> None:
        self._items = iter(items)
        self.cancelled = False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        for item in self._items:
            if isinstance(item, Exception):
                raise item
            return item
        raise StopAsyncIteration

    def cancel(self) -> None:
        self.cancelled = True


class Handle:
    """Answers every call with the same items."""

    def __init__(self, *items: Any) -> None:
        self._items = list(items)
        self.chosen: dict[str, Any] = {}
        self.answers: list[Answers] = []

    def options(self, **chosen: Any) -> Handle:
        self.chosen.update(chosen)
        return self

    @property
    def completions(self) -> Handle:
        return self

    def remote(self, *_: Any) -> Answers:
        self.answers.append(Answers(self._items))
        return self.answers[-1]


def ask(
    method: str, path: str, body: Any = None, *, cls: type = OpenAiIngress, **handles: Handle
) -> httpx.Response:
    """One request to an ingress of models with these handles."""
    cards = {
        name: to_model_metadata(name, LLMConfig(model_loading_config={"model_id": name})) for name in handles
    }
    endpoints = {**DEFAULT_ENDPOINTS, "ping": lambda app: app.get("/ping")} if hasattr(cls, "ping") else None
    instance = make_fastapi_ingress(cls, endpoint_map=endpoints)(handles, cards)
    app = getattr(instance, BUILD_METHOD)()

    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.request(method, path, json=body)

    return asyncio.run(send())


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (BackPressureError(5, 5, 429, 1.5), 429, "service_unavailable_error"),
        (DeploymentUnavailableError("d"), 503, "service_unavailable_error"),
        (TimeoutError(), 408, "timeout_error"),
        (RuntimeError("secret"), 500, "internal_error"),
    ],
)
def test_errors_of_servers(error: Exception, status: int, kind: str) -> None:
    handle = Handle(error)
    answer = ask("POST", "/v1/completions", {"model": "m", "prompt": "a"}, m=handle)
    told = answer.json()["error"]
    assert (answer.status_code, told["code"], told["type"]) == (status, status, kind)
    assert "secret" not in answer.text
    assert answer.headers.get("retry-after") == ("2" if status == 429 else None)
    assert handle.answers[0].cancelled


def test_an_error_in_a_stream_is_its_last_event() -> None:
    handle = Handle("data: 1\n\n", RuntimeError("x"))
    answer = ask("POST", "/v1/completions", {"model": "m", "prompt": "a", "stream": True}, m=handle)
    assert answer.status_code == 200
    one, error, done, _ = answer.text.split("\n\n")
    assert (one, done) == ("data: 1", "data: [DONE]")
    assert '"code":500' in error


def test_what_a_server_refuses_has_its_status() -> None:
    refused = ErrorResponse(error=ErrorInfo(message="no", type="t", param="prompt", code=418))
    answer = ask("POST", "/v1/completions", {"model": "m", "prompt": "a"}, m=Handle(refused))
    assert answer.status_code == 418
    assert answer.json() == {"error": {"message": "no", "type": "t", "param": "prompt", "code": 418}}


def test_the_model_may_be_left_out_if_there_is_one() -> None:
    told = Handle(ErrorResponse(error=ErrorInfo(message="", type="", code=400)))
    body = {"prompt": "a"}
    assert ask("POST", "/v1/completions", body, m=told).status_code == 400
    assert told.answers
    answer = ask("POST", "/v1/completions", body, m=told, n=Handle())
    assert answer.json()["error"]["message"] == "'model' is missing; there are m, n."


def test_requests_for_an_adapter_are_routed_by_its_name() -> None:
    handle = Handle("data: [DONE]\n\n")
    ask("POST", "/v1/completions", {"model": "m:a", "prompt": "a"}, m=handle)
    assert handle.chosen == {"stream": True, "multiplexed_model_id": "m:a"}


def test_a_class_may_have_more_routes() -> None:
    class Own(OpenAiIngress):
        async def ping(self) -> str:
            return "pong"

    assert ask("GET", "/ping", cls=Own, m=Handle()).json() == "pong"
    models = ask("GET", "/v1/models", cls=Own, m=Handle()).json()
    assert [card["id"] for card in models["data"]] == ["m"]


def test_handles_and_cards_belong_together() -> None:
    with pytest.raises(ValueError, match="must have the same model IDs"):
        OpenAiIngress({"m": Handle()}, {})


def test_the_ingress_scales_to_zero_with_its_models() -> None:
    zero, one = (
        LLMConfig(
            model_loading_config={"model_id": "m"},
            deployment_config={"autoscaling_config": {"min_replicas": least, "max_replicas": 2}},
        )
        for least in (0, 1)
    )
    options = OpenAiIngress.get_deployment_options([zero])
    assert options["autoscaling_config"]["min_replicas"] == 0
    assert "autoscaling_config" not in OpenAiIngress.get_deployment_options([zero, one])
