"""OpenAI's HTTP API in front of the models of an application."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, NoReturn

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse

from runtime._system import settings
from runtime.serve.asgi import BUILD_METHOD
from runtime.serve.asgi import ingress as serve_ingress
from runtime.serve.context import current_request
from runtime.serve.exceptions import BackPressureError, DeploymentUnavailableError
from runtime.serve.llm import _sources
from runtime.serve.llm._answers import DONE, event
from runtime.serve.llm.config import LLMConfig
from runtime.serve.llm.openai_api_models import (
    ChatCompletionRequest,
    CompletionRequest,
    EmbeddingRequest,
    ErrorInfo,
    ErrorResponse,
    ModelCard,
    ModelList,
    OpenAIHTTPException,
    unknown_model,
)
from runtime.serve.llm.server import RawRequestInfo

__all__ = ["DEFAULT_ENDPOINTS", "OpenAiIngress", "make_fastapi_ingress"]

log = logging.getLogger("ray.serve")

MAX_ONGOING_REQUESTS = 1000
Route = Callable[[Any], Any]
DEFAULT_ENDPOINTS: dict[str, Callable[[FastAPI], Route]] = {
    "models": lambda app: app.get("/v1/models", response_model=ModelList),
    "model_data": lambda app: app.get("/v1/models/{model:path}", response_model=ModelCard),
    "completions": lambda app: app.post("/v1/completions"),
    "chat": lambda app: app.post("/v1/chat/completions"),
    "embeddings": lambda app: app.post("/v1/embeddings"),
}
"""Methods of the ingress, each with what makes its route."""


class OpenAiIngress:
    """The routes of OpenAI's API. `make_fastapi_ingress` makes a deployment's class of it, or of a subclass.

    Args:
        llm_deployments: a handle for each id of a model.
        model_cards: what is told of each.
        lora_paths: the folder of a model's adapters.

    Raises:
        ValueError: handles and cards are not of the same models.
    """

    def __init__(
        self,
        llm_deployments: Mapping[str, Any],
        model_cards: Mapping[str, ModelCard],
        *,
        lora_paths: Mapping[str, str | None] | None = None,
    ) -> None:
        if set(llm_deployments) != set(model_cards):
            raise ValueError(
                "llm_deployments and model_cards must have the same model IDs, not "
                f"{sorted(llm_deployments)} and {sorted(model_cards)}."
            )
        self._handles = {model: handle.options(stream=True) for model, handle in llm_deployments.items()}
        self._model_cards = dict(model_cards)
        self._lora_paths = {model: path for model, path in (lora_paths or {}).items() if path}
        self._timeout_s = settings.SERVE_LLM_TIMEOUT_S.get()

    async def check_health(self) -> None:
        """It is healthy as long as it answers."""

    # ------------------------------------------------------------ models

    async def models(self) -> ModelList:
        """All models and their adapters."""
        cards = []
        for model, card in self._model_cards.items():
            cards.append(card)
            path = self._lora_paths.get(model)
            if path is not None:
                names = await asyncio.to_thread(_sources.adapters_in, path)
                cards += [_adapter_card(card, name) for name in names]
        return ModelList(data=cards)

    async def model_data(self, model: str) -> ModelCard:
        """One model or adapter."""
        for model_id in (model, model.replace("--", "/")):  # for clients that cannot send a "/"
            base, _, adapter = model_id.partition(":")
            card = self._model_cards.get(base)
            if card is not None and not adapter:
                return card
            if card is not None and base in self._lora_paths:
                try:
                    await asyncio.to_thread(_sources.adapter_folder, self._lora_paths[base], adapter)
                except FileNotFoundError:
                    break
                return _adapter_card(card, adapter)
        raise unknown_model(model)

    # ------------------------------------------------------------ requests

    async def completions(self, body: CompletionRequest, request: Request) -> Response:
        """Continues prompts."""
        return await self._response(body, "completions", request)

    async def chat(self, body: ChatCompletionRequest, request: Request) -> Response:
        """Answers messages."""
        return await self._response(body, "chat", request)

    async def embeddings(self, body: EmbeddingRequest, request: Request) -> Response:
        """Vectors of texts."""
        return await self._response(body, "embeddings", request)

    async def _response(self, body: Any, method: str, request: Request) -> Response:
        handle = self._handle(body.model)
        answers = getattr(handle, method).remote(body, RawRequestInfo.from_starlette_request(request))
        try:
            async with asyncio.timeout(self._timeout_s):
                first = await answers.__anext__()
        except Exception as error:
            answers.cancel()
            _translate(error)
        if isinstance(first, ErrorResponse):
            return JSONResponse(first.model_dump(), first.error.code)
        if not isinstance(first, str):
            return JSONResponse(first.model_dump())
        return StreamingResponse(_events(first, answers), media_type="text/event-stream")

    def _handle(self, model: str | None) -> Any:
        if model is None and len(self._handles) == 1:
            return next(iter(self._handles.values()))
        if model is None:
            raise OpenAIHTTPException(
                400, f"'model' is missing; there are {', '.join(self._handles)}.", param="model"
            )
        base, _, adapter = model.partition(":")
        handle = self._handles.get(base)
        if handle is None:
            raise unknown_model(model)
        # Requests for the base model go to all replicas; those for an adapter to replicas that have it.
        return handle.options(multiplexed_model_id=model) if adapter else handle

    @classmethod
    def get_deployment_options(cls, llm_configs: list[LLMConfig] | None = None) -> dict[str, Any]:
        """Options of the ingress's deployment. It scales to zero if all models do."""
        options: dict[str, Any] = {"max_ongoing_requests": MAX_ONGOING_REQUESTS}
        scaling = [config.deployment_config.get("autoscaling_config") for config in llm_configs or ()]
        if scaling and all(isinstance(each, dict) and each.get("min_replicas") == 0 for each in scaling):
            options["autoscaling_config"] = {
                "min_replicas": 0,
                "target_ongoing_requests": MAX_ONGOING_REQUESTS // 2,
            }
        return options


async def _events(first: str, answers: Any) -> AsyncGenerator[str, None]:
    """The events of a server. If it fails on the way, the last event is the error."""
    try:
        yield first
        async for packet in answers:
            yield packet
    except Exception as error:
        try:
            _translate(error)
        except OpenAIHTTPException as told:
            yield event(told.response()) + DONE
    finally:
        answers.cancel()  # of no effect after the end


def _translate(error: Exception) -> NoReturn:
    """Raises what the client is told of an error of a server."""
    if isinstance(error, OpenAIHTTPException):
        raise error
    if isinstance(error, BackPressureError):
        wait_s = error.retry_after_s
        headers = None if wait_s is None else {"Retry-After": str(math.ceil(wait_s))}
        raise OpenAIHTTPException(
            error.status_code, str(error), "service_unavailable_error", headers=headers
        ) from error
    if isinstance(error, DeploymentUnavailableError):
        raise OpenAIHTTPException(503, str(error), "service_unavailable_error") from error
    if isinstance(error, TimeoutError):
        raise OpenAIHTTPException(408, "The model did not answer in time.", "timeout_error") from error
    log.error("A request to a model failed", exc_info=error)
    raise OpenAIHTTPException(
        500,
        f"The model failed. The logs tell more of request {current_request().request_id}.",
        "internal_error",
    ) from error


def _adapter_card(card: ModelCard, adapter: str) -> ModelCard:
    model_id = f"{card.id}:{adapter}"
    return card.model_copy(update={"id": model_id, "metadata": {**card.metadata, "model_id": model_id}})


# ---------------------------------------------------------------- the application


def init() -> FastAPI:
    """An application without routes. Its errors have OpenAI's form, and pages of all origins may use it."""
    app = FastAPI()
    app.add_middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"])
    app.add_exception_handler(OpenAIHTTPException, _answer_error)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    return app


async def _answer_error(request: Request, error: Any) -> Response:
    return JSONResponse(error.response().model_dump(), error.status_code, error.headers)


async def _answer_http_error(request: Request, error: Any) -> Response:
    info = ErrorInfo(message=str(error.detail), type="invalid_request_error", code=error.status_code)
    return JSONResponse(ErrorResponse(error=info).model_dump(), error.status_code, error.headers)


async def _answer_invalid(request: Request, error: Any) -> Response:
    wrong = error.errors()[0]
    places = [str(place) for place in wrong["loc"] if place != "body"]
    message = f"{'.'.join(places)}: {wrong['msg']}" if places else str(wrong["msg"])
    told = OpenAIHTTPException(400, message, param=places[0] if places else None)
    return JSONResponse(told.response().model_dump(), 400)


def make_fastapi_ingress(
    cls: type,
    *,
    endpoint_map: Mapping[str, Callable[[FastAPI], Route]] | None = None,
    app: FastAPI | None = None,
) -> type:
    """A class for `serve.deployment` whose methods are routes.

    Args:
        cls: `OpenAiIngress`, a subclass, or any other class.
        endpoint_map: for names of methods, functions that take the application and return a decorator for the route.
        app: the application; None: one as `init` makes it.
    """
    endpoints = dict(DEFAULT_ENDPOINTS if endpoint_map is None else endpoint_map)

    def build(self: Any) -> FastAPI:
        made = init() if app is None else app
        for method, route in endpoints.items():
            route(made)(getattr(self, method))
        return made

    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return serve_ingress()(type(cls.__name__, (cls,), {**names, BUILD_METHOD: build}))
